"""The process of the trainers, which the service starts: ``python -m learner.commands.trainer``."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING

import structlog
from rollcast.parents import die_with_parent

from learner.checkpoints.runfolder import RunFolder
from learner.common.exits import ExitCode, UserError
from learner.common.platform import operator_signal_numbers, prepare_streams, stop_signal_numbers
from learner.common.plugins import in_one_line
from learner.link.channel import Link
from learner.link.door import ADDRESS_VARIABLE, KEY_VARIABLE, RING_VARIABLE, dial, inherited_ring
from learner.link.opening import Hello, Logged, NotOpened
from learner.link.wire import Wire
from learner.observe import logs

if TYPE_CHECKING:
    from learner.run.training import TrainingSide

_SEND_SECONDS = 10.0
"""Seconds that the service has to take the last messages."""


class TrainerProgram:
    """Runs the trainers' side for a service that has started this process.

    The process ends with its connection: after the end of the run in good order, before it at once, so that nothing is
    written for a service that is gone.
    """

    def __init__(self) -> None:
        self._link = link = Link()
        self._hellos: queue.SimpleQueue[Hello] = queue.SimpleQueue()
        self._over = threading.Event()
        self._side: TrainingSide | None = None
        link.to_trainers.divert(Hello, self._hellos.put)
        self._wire = Wire(dial(), link.to_front, link.to_trainers, self._note_end, inherited_ring())
        for name in (ADDRESS_VARIABLE, KEY_VARIABLE, RING_VARIABLE):
            os.environ.pop(name, None)  # not for processes that packages start

    def run(self) -> int:
        """Runs the side until the service closes the connection, and returns the exit code."""
        from learner.run.training import TrainingSide  # noqa: PLC0415 - takes seconds, in which the service may be killed

        self._wire.start()
        hello = self._hellos.get()
        send = self._link.to_front.send
        logs.forward(
            lambda level, event, fields: send(Logged(level, event, fields)),
            "debug" if hello.loaded.options.debug else "info",
        )
        folder = RunFolder(hello.folder, None, resuming=hello.resuming, initialize_from=hello.initialize_from)
        try:
            self._side = TrainingSide(hello.loaded, folder, self._link)
        except UserError as error:
            return self._refuse(error.exit_code, error.message)
        except Exception as error:  # noqa: BLE001 - of a package that the run file names
            structlog.get_logger(__name__).error("trainers_not_started", error=in_one_line(error), exc_info=error)
            return self._refuse(ExitCode.TRAINER_FAILED, f"the trainers cannot start: {in_one_line(error)}")
        send(self._side.opened)
        self._over.wait()
        return ExitCode.OK

    def _refuse(self, code: ExitCode, message: str) -> int:
        self._link.to_front.send(NotOpened(code, message))
        self._wire.close(_SEND_SECONDS)
        return code

    def _note_end(self, fault: str) -> None:
        """Ends the process; called in the thread that reads."""
        del fault
        if self._side is None or not self._side.run.has_finished:
            os._exit(ExitCode.TRAINER_FAILED)
        self._over.set()


def main() -> int:
    """Runs the trainers' side and returns the exit code."""
    die_with_parent()
    prepare_streams()
    for number in (*stop_signal_numbers(), *operator_signal_numbers()):
        signal.signal(number, signal.SIG_IGN)  # the service decides when the run ends
    return TrainerProgram().run()


if __name__ == "__main__":
    sys.exit(main())
