"""One decoder of bytes from outside, as a function that either accepts its input or refuses it with a documented error."""

from __future__ import annotations

import importlib
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")
"""Kept inputs, one folder a target: what the fuzzer found to reach new code, and every input that once found a fault."""
MIB: Final = 2**20


class TooExpensive(AssertionError):  # noqa: N818 - says what the input is
    """An input took more processor time or memory than its target allows."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder.

    Attributes:
        name: Its name, which is the folder of its corpus.
        use: Decodes the bytes of an input and asserts what must hold of the result.
        refusals: The documented errors; any other exception is a finding.
        seeds: Returns valid inputs by name, from which the fuzzer starts.
        max_bytes: Largest input.
        cpu_seconds: Most processor time of an input; a fuzzer's instrumentation makes code several times slower.
        memory_bytes: Most memory that Python allocates for an input.
        words: Byte strings that the fuzzer inserts.
    """

    name: str
    use: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Mapping[str, bytes]]
    max_bytes: int = 4096
    cpu_seconds: float = 2.0
    memory_bytes: int = 64 * MIB
    words: tuple[bytes, ...] = ()

    def accepts(self, data: bytes) -> bool:
        """Returns whether an input is accepted; False if it is refused with a documented error.

        Raises:
            TooExpensive: It took too much processor time.
            Exception: A finding.
        """
        began = time.process_time()
        try:
            self.use(data)
            return True
        except self.refusals:
            return False
        finally:
            seconds = time.process_time() - began
            if seconds > self.cpu_seconds:
                raise TooExpensive(f"{self.name}: {len(data)} bytes took {seconds:.1f} s of processor time")

    def accepts_within_memory(self, data: bytes) -> bool:
        """Returns the same as `accepts`, and measures memory, which makes the call several times slower.

        Raises:
            TooExpensive: It took too much processor time or memory.
        """
        tracemalloc.start()
        try:
            accepted = self.accepts(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak > self.memory_bytes:
            raise TooExpensive(f"{self.name}: {len(data)} bytes took {peak / MIB:.0f} MiB")
        return accepted

    def kept(self) -> dict[str, bytes]:
        """Returns the inputs of the corpus by name."""
        folder = CORPUS / self.name
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else {}


PARTS: Final = ("wire", "unity", "web", "service", "trainers", "files")
"""Modules with targets, those that import least first."""
LONG: Final = frozenset({"open-session", "token-file", "http", "trainer-introduction"})
"""Decoders of bytes of callers that are not identified yet; they are fuzzed three times as long."""


def find(name: str) -> Target:
    """Returns a target; imports no more modules than it takes to find it."""
    for part in PARTS:
        for target in _targets(part):
            if target.name == name:
                return target
    raise KeyError(name)


def all_targets() -> dict[str, Target]:
    """Returns all targets, by name."""
    return {target.name: target for part in PARTS for target in _targets(part)}


def _targets(part: str) -> tuple[Target, ...]:
    found: tuple[Target, ...] = importlib.import_module(f"tests.tools.fuzz.{part}").TARGETS
    return found
