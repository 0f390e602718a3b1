"""Runs command lines as a page prints them, in the order in which a reader types them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.processes import Child, LearnerProcess, Processes

DURING = ("init", "check-config", "status", "page")
"""Commands of the learner that do not wait for a run to end."""
LOOPBACK = ("--address", "127.0.0.1:0")


class Reader:
    """Types commands; learners get a free port, and actors connect to the newest learner.

    Args:
        processes: Starts the commands, in the reader's folder.
        environment: Added to the environment of each command.
    """

    def __init__(self, processes: Processes, environment: Mapping[str, str] | None = None) -> None:
        self._processes = processes
        self._environment = environment
        self._running: list[Child] = []
        self._started = 0
        self.learners: list[LearnerProcess] = []

    def types(self, commands: Iterable[list[str]], *changes: tuple[str, ...]) -> list[Child]:
        """Types commands and returns their processes.

        A command that needs the result of a run waits until learner and actors have ended with 0.

        Args:
            commands: Words of each.
            changes: Arguments appended to the first `serve`, `train` or `unity`, to the second, and so on.
        """
        left = list(changes)
        return [self._type(words, left) for words in commands]

    def wait(self) -> None:
        """Waits until learner and actors have ended with 0."""
        for child in self._running:
            assert child.wait() == 0, "\n".join(each.said() for each in self._running)
        self._running.clear()

    def interrupt(self) -> None:
        """Presses Ctrl-C at the actors and then at the learner, and waits until they have ended with 0."""
        for child in reversed(self._running):
            child.signal(signal.SIGINT)
            assert child.wait() == 0, child.said()
        self._running.clear()

    def summary(self, run: int = -1) -> dict[str, Any]:
        """Returns the summary of a run, by default of the newest."""
        found: dict[str, Any] = json.loads((self.learners[run].folder / "summary.json").read_text())
        return found

    def _type(self, words: list[str], changes: list[tuple[str, ...]]) -> Child:
        verb, *rest = words[1:]
        if verb == "serve":
            self.wait()
            return self._serve(Path(rest[0]), rest[1:], changes.pop(0) if changes else ())
        if verb == "act" and "--policy" not in rest:
            actor = self._start([*words, "--learner", self.learners[-1].address])
            self._running.append(actor)
            return actor
        if verb not in DURING:
            self.wait()
        if verb in {"train", "unity"}:
            words = [*words, *LOOPBACK, *(changes.pop(0) if changes else ())]
        child = self._start(words)
        assert child.wait() == 0, child.said()
        return child

    def _serve(self, run_file: Path, rest: list[str], more: tuple[str, ...]) -> LearnerProcess:
        run = rest[rest.index("--run-id") + 1] if "--run-id" in rest else run_file.stem
        learner = self._processes.learner(run_file, *rest, *LOOPBACK, *more, run=run, environment=self._environment)
        self.learners.append(learner)
        self._running.append(learner)
        return learner

    def _start(self, words: list[str]) -> Child:
        self._started += 1
        program = str(Path(sys.executable).with_name(words[0]))
        return self._processes.python(f"{words[0]}-{self._started}", program, *words[1:], environment=self._environment)
