"""Runs the trainers' side of a run in a process, and notices its end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import structlog
from rollcast.signals import take

from learner.link.channel import Link
from learner.link.codec import OF_TRAINERS
from learner.link.control import Closed, Failed, Stopped
from learner.link.local import LocalConnection
from learner.link.opening import Check, Checked, Hello, Logged, NotOpened, Opened
from learner.link.ring import RingWriter
from learner.link.stream import StreamConnection
from learner.link.turns import Over
from learner.link.wire import Wire
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.logs import LOG_FILE
from learner.shared.runfolder.runfolder import FoundFolder, RunFolder
from learner.shared.settings.load import LoadedRun
from learner.start.trainer_hosts import AwaitedTrainers
from learner.start.trainer_start import END_SECONDS, StartedTrainers

log = structlog.get_logger(__name__)

Connections: TypeAlias = "Sequence[tuple[LocalConnection | StreamConnection, RingWriter | None]]"
"""Connection to each process of trainers, and this side of its ring; None where messages need no ring."""


class TrainerProcess:
    """Runs the trainers' side in a process.

    Args:
        started: The process, to which it connects.
        link: Link whose messages are exchanged with the process.

    Raises:
        UserError: The process ended.

    Attributes:
        started, link: As given.
        opened: What the service continues from, after `open`.
    """

    opened: Opened

    def __init__(self, started: StartedTrainers | AwaitedTrainers, link: Link) -> None:
        self.started = started
        self.link = link
        self._folder: Path | None = None
        self._is_closing = False
        self._answers: queue.SimpleQueue[Checked | Opened | NotOpened] = queue.SimpleQueue()
        link.to_front.divert(Checked, self._answers.put)
        link.to_front.divert(Opened, self._answers.put)
        link.to_front.divert(NotOpened, self._answers.put)
        link.to_front.divert(Logged, log_again)
        self._lock = threading.Lock()
        wires = self._open_wires(link, self._note_end)
        if wires is None:
            raise self._error()
        self._wires = wires
        for wire in wires:
            wire.start()

    def check(self, loaded: LoadedRun, found: FoundFolder) -> None:
        """Checks what needs torch, before the run folder is opened.

        Raises:
            UserError: The run cannot start, or the process ended.
        """
        self._ask(Check(loaded, *found))

    def open(self, loaded: LoadedRun, folder: RunFolder, *, is_again: bool = False) -> bool:
        """Starts the run, and returns True; False if nothing is left to train, and nothing was changed.

        Args:
            loaded: The settings and their sources.
            folder: The run folder, open.
            is_again: Whether the trainers of an earlier start in this process have died.

        Raises:
            UserError: The process cannot start the run, or ended.
        """
        self._folder = folder.path
        directory = Path.cwd() if isinstance(self.started, AwaitedTrainers) else None
        hello = Hello(loaded, folder.path, folder.resuming, folder.initialize_from, directory, is_again)
        answer = self._ask(hello)
        if not isinstance(answer, Opened):
            return False
        self.opened = answer
        folder.note_generation(answer.generation)
        return True

    def _ask(self, question: Hello) -> Checked | Opened | NotOpened:
        """Returns the answer to a question.

        Raises:
            UserError: The process refuses to start, or ended.
        """
        self.link.to_trainers.send(question)
        answer = take(self._answers)
        if isinstance(answer, NotOpened):
            self.close()
            if answer.exit_code is not ExitCode.OK:
                raise UserError(answer.exit_code, answer.message, answer.details)
        return answer

    def close(self, *, is_over: bool = False) -> None:
        """Sends what waits, and closes the connection, at which the process ends. Calling it again does nothing.

        Args:
            is_over: Whether the run has ended as it should. Otherwise the trainers may be started again.
        """
        if is_over:
            self._tell_all(Over())
        self._is_closing = True
        wires, self._wires = self._wires, []
        for wire in wires:
            wire.close(END_SECONDS)

    def _tell_all(self, message: Over) -> None:
        self.link.to_trainers.send(message)

    def _open_wires(self, link: Link, on_end: Callable[[str], None]) -> list[Wire] | None:
        """Waits for the process, and returns the connection to it; None if it has ended."""
        found: Connections | None = self.started.connect()
        if found is None:
            return None
        return [Wire(each, link.to_trainers, link.to_front, on_end, ring, kinds=OF_TRAINERS) for each, ring in found]

    def _note_end(self, fault: str) -> None:
        """Ends the run if the process ended by itself; called once for each connection, in the thread that reads."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        if fault:
            log.error("trainer_process_damaged", error=fault)
            self.started.kill()
        error = self._error()
        self._answers.put(NotOpened(error.exit_code, error.message))  # read only while the process starts
        for message in (Failed(error.exit_code, error.message), Stopped(), Closed(is_complete=False)):
            self.link.to_front.send(message)

    def _error(self) -> UserError:
        """Waits for the process's end, and returns the error that it means."""
        how, folder = self.started.how_it_ended(), self._folder
        known = f"; the last checkpoint is kept, and what is known is in {folder / LOG_FILE}" if folder else ""
        return UserError(ExitCode.TRAINER_DIED, how + known)


def log_again(line: Logged) -> None:
    """Writes a line of the process to this process's log."""
    number = logging.getLevelNamesMapping().get(line.level.upper(), logging.INFO)
    structlog.get_logger().log(number, line.event, **line.fields)
