"""Runs a command of the learner in a process of its own: when it listens, how it ends, and why."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rollcast.exits import RollcastError

from learner.shared.exits import ExitCode, UserError
from learner.start.actors import Failure, end_actor, start_actor

END_SECONDS: Final = 600.0
"""Longest end of a run that is asked to end: it saves, and its actors finish what they do."""
_KEPT_LINES: Final = 200
_PROGRAM: Final = (sys.executable, "-m", "rollcast.watched", "rollcast")
_LOG: Final = ("--log-format", "json", "--log-level", "info")
"""Flags with which a learner writes the lines that are read here."""
_REST: Final = "--actor-args"
"""The flag that takes all words after it."""


class CommandProcess:
    """A command of the learner in a process of its own, which ends with this one, as after a signal: everything is saved.

    Args:
        arguments: The command and its arguments.
        held: What it needs until its end, as a file of settings.

    Attributes:
        folder: The run folder, once the learner listens.
        address: Address for actors, ``host:port``.
        page: Address of the status page; empty if there is none.
    """

    def __init__(self, arguments: Sequence[str], held: contextlib.ExitStack) -> None:
        self._held = held
        self._failure = Failure()
        self._details: deque[str] = deque(maxlen=_KEPT_LINES)
        self._has_started = threading.Event()
        self._code: int | None = None
        self.folder, self.address, self.page = Path(), "", ""
        place = arguments.index(_REST) if _REST in arguments else len(arguments)
        words = [*_PROGRAM, *arguments[:place], *_LOG, *arguments[place:]]
        self._process = start_actor(words, subprocess.PIPE, {"PYTHONPATH": _search_path()})
        self._reader = threading.Thread(target=self._read, name="rollcast-run", daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._reader.is_alive()

    @property
    def error(self) -> RollcastError | None:
        """The error that ended the command, with its message and exit code; None if it runs, or ended as it should."""
        if not self._code:
            return None
        found = self._failure.error("the learner", self._code)
        known = {code.value: code for code in ExitCode}  # others are those of an actor, or a signal
        code = known.get(self._code, found.exit_code)
        return UserError(code, found.message, [*self._details, *found.details], code=found.code)

    def wait_for_start(self) -> None:
        """Waits until the learner listens.

        Raises:
            UserError: It cannot start.
        """
        self._has_started.wait()
        if (error := self.error) is not None:
            raise error

    def ask_to_stop(self) -> None:
        """Asks the run to end as Ctrl-C does, and returns at once."""
        if self.is_running:
            self._process.terminate()

    def stop(self) -> None:
        """Ends the run as Ctrl-C ends the command: it saves, and its actors end. Does nothing after the end."""
        if self.is_running:
            self.ask_to_stop()
            self._reader.join(END_SECONDS)
        end_actor(self._process, 0.0)

    def _read(self) -> None:
        """Reads the lines of the process until its end."""
        with self._process.stdout or contextlib.nullcontext(()) as output:
            for raw in output:
                line = raw.decode(errors="replace").rstrip()
                if line.startswith('{"') and '"learner_start' in line:
                    self._take_start(json.loads(line))
                elif not self._failure.take(line) and line.startswith("  "):
                    self._details.append(line.strip())
        self._code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._held.close()
        self._has_started.set()

    def _take_start(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "learner_starts":  # a resumed run that is finished comes no further
            self.folder = Path(event["folder"]).absolute()
        elif event["event"] == "learner_started":
            self.address, self.page = event["address"], "" if event["page"] == "off" else event["page"]
            self._has_started.set()


def _search_path() -> str:
    """Returns the folders in which this program finds modules, for the process of a command."""
    return os.pathsep.join(dict.fromkeys(each or str(Path.cwd()) for each in sys.path))
