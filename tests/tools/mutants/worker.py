"""Runs the tests of one module on its mutants, in a process of its own; `python -m tests.tools.mutants` starts it.

pytest collects once: what the tests import, torch above all, is loaded once. A fork of that process then runs the tests on the
module as it is and notes the lines that each executes; another fork for each mutant exchanges the code of the module's functions
in memory, and runs every test that executes the mutant's statement. No file changes.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import coverage
import hypothesis
import pytest

from tests.tools.mutants.mutations import Mutant, mutants

STALL_SECONDS: Final = 10.0
STALL_FACTOR: Final = 20.0
"""A mutant ends in a loop if no test ends for these seconds, and this many times what the longest of its tests usually takes."""
Functions = dict[tuple[str, int], list[FunctionType]]
MEMORY_GIB: Final = 4
SETUP: Final = "setup "


@dataclass
class Outcomes:
    """What a fork's tests did.

    Attributes:
        seconds: Processor time of each test that ended.
        failed: Tests that failed.
        stopped: The test in which the fork was killed or died; empty if it ran all.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    stopped: str = ""


class Runs:
    """A plugin of pytest that runs the collected tests on each mutant, instead of once.

    Args:
        module: The module's file.
        sample: Most mutants.
        seed: Chooses them.
        results: The file that the results are written to.
        own: The files of tests that are about the module. Tests of other files run on what these do not catch, until one fails.
    """

    def __init__(self, module: Path, sample: int, seed: int, results: Path, own: set[str]) -> None:
        self._module = module.resolve()
        self._source = module.read_text()
        self._sample, self._seed, self._results = sample, seed, results
        self._own = own
        self._failed = False
        self._note: Callable[[str], object] = lambda _: None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes whether a part of a test failed."""
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Notes that the fixtures of a test come."""
        self._note(f"{SETUP}{item.nodeid.partition('::')[0]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Notes that a test comes."""
        self._note(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs the tests on the module, then on each mutant."""
        made = mutants(self._source)
        functions = _functions(self._module)
        chosen: list[Mutant] = []
        for make in random.Random(self._seed).sample(made, len(made)):
            mutant = make()
            if mutant is not None and _exchangeable(functions, _codes(mutant.code, self._module)):
                chosen.append(mutant)
            if len(chosen) == self._sample:
                break
        usual, lines = self._usual(session.items)
        items = [item for item in session.items if item.nodeid in usual.seconds and item.nodeid not in usual.failed]
        tests = {item.nodeid: usual.seconds[item.nodeid] for item in items}
        gc.collect()
        gc.freeze()  # forks then share the memory of what is loaded
        with self._results.open("w") as stream:
            _write(stream, made=len(made), tests=tests, broken=sorted(usual.failed))
            for mutant in sorted(chosen, key=lambda each: each.line):
                began = time.monotonic()
                reaching = set().union(*(lines[line] for line in mutant.lines))
                ran = [item for item in items if item.nodeid in reaching]
                outcomes = self._mutated(ran, tests, functions, mutant)
                _write(
                    stream,
                    line=mutant.line,
                    diff=mutant.diff,
                    tests=len(ran),
                    failed=sorted(outcomes.failed),
                    stopped=outcomes.stopped,
                    seconds=time.monotonic() - began,
                )
        return True

    def _mutated(
        self, items: list[pytest.Item], seconds: dict[str, float], functions: Functions, mutant: Mutant
    ) -> Outcomes:
        """Runs tests on a mutant."""

        def prepare() -> None:
            _exchange(functions, self._module, mutant)

        own = [item for item in items if item.nodeid.partition("::")[0] in self._own]
        outcomes = self._fork(own, seconds, prepare)
        if outcomes.failed or outcomes.stopped:
            return outcomes
        others = sorted(set(items) - set(own), key=lambda item: seconds[item.nodeid])
        return self._fork(others, seconds, prepare, to_first=True)

    def _usual(self, items: list[pytest.Item]) -> tuple[Outcomes, dict[int, set[str]]]:
        """Runs the tests on the module itself; returns also the tests that execute each line."""
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "lines")
            watch = coverage.Coverage(data_file=str(data), include=[str(self._module)], config_file=False)

            def begin() -> None:
                watch.start()
                self._note = watch.switch_context

            def end() -> None:
                watch.stop()
                watch.save()

            outcomes = self._fork(items, {}, begin, end)
            if outcomes.stopped:
                sys.exit(f"{outcomes.stopped} does not end on the module as it is")
            read = coverage.CoverageData(str(data))
            read.read()
            found: dict[int, set[str]] = defaultdict(set)
            for line, contexts in read.contexts_by_lineno(str(self._module)).items():
                for context in contexts:
                    # The fixtures that the first test of a file sets up can serve them all.
                    file = context.removeprefix(SETUP)
                    if file != context:
                        found[line] |= {item.nodeid for item in items if item.nodeid.startswith(f"{file}::")}
                    else:
                        found[line].add(context)
        return outcomes, found

    def _fork(
        self,
        items: list[pytest.Item],
        usual: dict[str, float],
        prepare: Callable[[], object],
        end: Callable[[], object] = lambda: None,
        *,
        to_first: bool = False,
    ) -> Outcomes:
        """Runs tests in a fork of this process.

        Args:
            items: The tests.
            usual: Their usual durations.
            prepare: Called in the fork before them.
            end: Called in the fork after them.
            to_first: Whether to end at the first that fails.
        """
        outcomes = Outcomes()
        if not items:
            return outcomes
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            code = 1
            try:
                _limit_memory()
                prepare()
                self._run(items, lambda **what: os.write(writing, f"{json.dumps(what)}\n".encode()), to_first=to_first)
                end()
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        longest = max(usual.get(item.nodeid, STALL_SECONDS) for item in items)
        running = ""
        for line in _lines(reading, STALL_SECONDS + STALL_FACTOR * longest):
            told = json.loads(line)
            if "seconds" in told:
                outcomes.seconds[running] = told["seconds"]
                if told["failed"]:
                    outcomes.failed.add(running)
            else:
                running = told["test"]
        os.close(reading)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        if len(outcomes.seconds) < len(items) and not (to_first and outcomes.failed):
            outcomes.stopped = running or items[0].nodeid
        return outcomes

    def _run(self, items: list[pytest.Item], tell: Callable[..., object], *, to_first: bool) -> None:
        for item, following in zip(items, [*items[1:], None], strict=True):
            tell(test=item.nodeid)
            self._failed = False
            began = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            tell(seconds=time.process_time() - began, failed=self._failed)
            if self._failed and to_first:
                return


def _functions(module: Path) -> Functions:
    """Returns the functions of a module that exist, by their qualified name and position among those of this name."""
    own = [each for each in gc.get_objects() if type(each) is FunctionType and each.__code__.co_filename == str(module)]
    names = {(code.co_qualname, code.co_firstlineno): key for key, code in _codes(module.read_text(), module).items()}
    found: Functions = defaultdict(list)
    for function in own:
        key = names.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if key is not None:
            found[key].append(function)
    return found


def _codes(source: str, module: Path) -> dict[tuple[str, int], CodeType]:
    """Returns the code of every function of a source, by qualified name and position among those of this name."""
    found: dict[tuple[str, int], CodeType] = {}
    counts: dict[str, int] = defaultdict(int)

    def walk(code: CodeType) -> None:
        for part in code.co_consts:
            if isinstance(part, CodeType):
                found[part.co_qualname, counts[part.co_qualname]] = part
                counts[part.co_qualname] += 1
                walk(part)

    walk(compile(source, str(module), "exec", dont_inherit=True))
    return found


def _exchangeable(functions: Functions, codes: dict[tuple[str, int], CodeType]) -> bool:
    """Returns whether functions can have other code: it must use the same variables of functions around it."""
    return all(
        key in codes and function.__code__.co_freevars == codes[key].co_freevars
        for key, same in functions.items()
        for function in same
    )


def _exchange(functions: Functions, module: Path, mutant: Mutant) -> None:
    """Gives every function of the module the mutant's code."""
    for key, code in _codes(mutant.code, module).items():
        for function in functions.get(key, ()):
            function.__code__ = code


def _limit_memory() -> None:
    """Lets a mutant that fills memory fail."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (MEMORY_GIB << 30),) * 2)


def _lines(reading: int, limit: float) -> Iterator[bytes]:
    """Yields the lines of a pipe until it closes, or until none comes for a limit."""
    rest = b""
    while select.select([reading], [], [], limit)[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            return
        *whole, rest = (rest + part).split(b"\n")
        yield from whole


def _write(stream: Any, **result: object) -> None:
    stream.write(json.dumps(result) + "\n")
    stream.flush()


def main() -> int:
    """Runs the tests; the arguments are a module, a sample, a seed, the file of the results, and files of tests, its own ones twice."""
    module, sample, seed, results, *files = sys.argv[1:]
    # Searched examples are the same in each fork, none is kept for the next, and failing ones are not made smaller.
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    hypothesis.settings.load_profile("mutants")  # the profile of tests/conftest.py builds on it
    own = {file for file in files if files.count(file) > 1}
    runs = Runs(Path(module), int(sample), int(seed), Path(results), own)
    rewritten = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # hypothesis is
    options = [
        "-q",
        "--tb=no",
        "-p",
        "no:logging",
        "-W",
        rewritten,
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not nightly",
    ]
    return int(pytest.main([*options, *dict.fromkeys(files)], plugins=[runs]))


if __name__ == "__main__":
    sys.exit(main())
