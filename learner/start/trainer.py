"""The process of the trainers.

The service starts it as ``python -m learner.start.trainer``, and users on other machines as ``-m learner trainer``.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from rollcast.signals import die_with_parent, ignored, stop_signal_numbers, take, until
from rollcast.streams import prepare_streams
from rollcast.text import in_one_line

from learner.link.channel import Link
from learner.link.control import Failed
from learner.link.local import (
    ADDRESS_VARIABLE,
    KEY_VARIABLE,
    RING_VARIABLE,
    LocalConnection,
    dial,
    inherited_ring,
    receive_peers,
    receive_ring,
)
from learner.link.mesh import Mesh
from learner.link.opening import Check, Checked, Hello, Logged, NotOpened
from learner.link.ring import RingReader
from learner.link.split import Splitter
from learner.link.stream import StreamConnection
from learner.link.to_trainers import Declared, Experience, ToTrainers
from learner.link.turns import Follow, Over
from learner.link.wire import Wire
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe import logs
from learner.shared.platform import block_stop_signals, operator_signal_numbers
from learner.shared.runfolder.runfolder import FoundFolder, RunFolder

if TYPE_CHECKING:
    from learner.shared.settings.options import RunOptions
    from learner.training.optimizers.ranks import RankGroup
    from learner.training.run.training import TrainingSide

_SEND_SECONDS = 10.0
"""Seconds that the service has to take the last messages."""


class TrainerProgram:
    """Runs the trainers' side for a service that has started this process, or that waits for it.

    The process ends with its connection: after the end of the run in good order, before it at once, so that nothing is
    written for a service that is gone.

    Args:
        connection: The connection to the service.
        ring: This side of the ring for large messages; None without one.
        place: Number of this process among the ranks, and how many there are.
        meet: Waits so many seconds for the other ranks, and returns the connections to them.
        is_awaited: Whether the service waits for a process that it has not started.
        say: Called with a line when this process ends before the run.
    """

    def __init__(
        self,
        connection: LocalConnection | StreamConnection,
        ring: RingReader | None,
        place: tuple[int, int] = (0, 1),
        meet: Callable[[float], Mesh] = lambda _: Mesh(0, {}),
        *,
        is_awaited: bool = False,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._rank, self._ranks = place
        self._meet = meet
        self._is_awaited = is_awaited
        self._say = say
        self._is_refusing = False
        self._is_over = False
        self._splitter = Splitter(self._ranks)
        self._link = link = Link() if self._ranks == 1 else Link(self._made_whole)
        self._hellos: queue.SimpleQueue[Hello] = queue.SimpleQueue()
        self._follows: queue.SimpleQueue[Follow] = queue.SimpleQueue()
        self._over = threading.Event()
        self._side: TrainingSide | None = None
        link.to_trainers.divert(Check, self._hellos.put)
        link.to_trainers.divert(Hello, self._hellos.put)
        link.to_trainers.divert(Follow, self._follows.put)
        link.to_trainers.divert(Over, self._note_over)
        self._wire = Wire(connection, link.to_front, link.to_trainers, self._note_end, ring)

    def run(self) -> int:
        """Runs the side until the service closes the connection, and returns the exit code; one of several ranks ends its process."""
        code = self._run()
        if self._ranks > 1:
            from learner.training.optimizers.ranks import end_rank  # noqa: PLC0415 - as in `_run`

            end_rank(code)
        gc.freeze()  # at its end the interpreter would search all objects of torch for cycles, for half a second
        return code

    def _run(self) -> int:
        # This takes seconds, in which the service may be killed.
        import learner.training.run.training  # noqa: PLC0415, F401 - used below
        from learner.training.run.requirements import check_requirements  # noqa: PLC0415

        self._wire.start()
        hello = take(self._hellos)
        if not self._is_awaited:
            signal.signal(signal.SIGTERM, ignored)  # a signal to all; if a rank dies, the service ends the others
        send = self._link.to_front.send
        logs.forward(
            lambda level, event, fields: send(Logged(level, event, fields)),
            "debug" if hello.loaded.options.log_level == "debug" else "info",
        )
        if hello.directory is not None:
            enter(hello.directory)
        try:
            if isinstance(hello, Check):
                check_requirements(hello.loaded, FoundFolder(hello.folder, hello.resuming, hello.initialize_from))
                send(Checked())
                hello = take(self._hellos)
            return self._train(hello)
        except UserError as error:
            return self._refuse(NotOpened(error.exit_code, error.message, error.details))
        except Exception as error:  # noqa: BLE001 - of a package that the run file names
            structlog.get_logger(__name__).error("trainers_not_started", error=in_one_line(error), exc_info=error)
            said = f"the trainers cannot start: {in_one_line(error)}"
            return self._refuse(NotOpened(ExitCode.TRAINER_FAILED, said))

    def _train(self, hello: Hello) -> int:
        """Trains in the open run folder until the service closes the connection.

        Raises:
            UserError: The run cannot start.
        """
        from learner.training.lockstep.resuming import is_over  # noqa: PLC0415 - as in `_run`
        from learner.training.run.training import TrainingSide  # noqa: PLC0415 - as in `_run`

        options = hello.loaded.options
        run_id = options.checkpoint_settings.run_id
        folder = RunFolder(
            hello.folder, None, run_id=run_id, resuming=hello.resuming, initialize_from=hello.initialize_from
        )
        if not self._rank and not hello.is_again and is_over(options, folder):
            return self._refuse(NotOpened(ExitCode.OK, "nothing is left to train"))
        reduce = None if self._ranks == 1 else self._join(options)
        if self._rank:
            return self._follow(hello, reduce)
        self._side = TrainingSide(hello.loaded, folder, self._link, reduce)
        self._link.to_front.send(self._side.opened)
        until(self._over.wait)
        return self._code()

    def _made_whole(self, message: ToTrainers) -> ToTrainers:
        """Gives this rank's part of a chunk the form of a whole one; the trainers know which segments are their own."""
        if isinstance(message, Declared):
            self._splitter.note(message)
        return self._splitter.whole(message, self._rank) if isinstance(message, Experience) else message

    def _join(self, options: RunOptions) -> RankGroup:
        """Joins the other ranks.

        Raises:
            UserError: The device cannot be used, or the others did not come in time.
        """
        from learner.training.optimizers.ranks import LostRankError, join_ranks  # noqa: PLC0415 - as above
        from learner.training.run.setup import usable_device  # noqa: PLC0415 - as above

        seconds = options.rollcast.collective_seconds
        device = usable_device(options)
        try:
            mesh = self._meet(seconds)
        except (OSError, ValueError) as error:
            raise LostRankError(error) from error
        os.environ.pop("WORLD_SIZE", None)  # packages must not take this process for a rank of theirs
        return join_ranks(device, seconds, mesh)

    def _follow(self, hello: Hello, reduce: RankGroup | None) -> int:
        """Follows rank 0 until the service closes the connection, which ends the process."""
        from learner.training.optimizers.reduce import SingleLearner  # noqa: PLC0415 - as above
        from learner.training.run.following import FollowingSide  # noqa: PLC0415 - as above
        from learner.training.run.run import failure_of  # noqa: PLC0415 - as above

        try:
            told = take(self._follows)
            options = hello.loaded.options
            FollowingSide(
                options, self._link, told, options.checkpoint_settings.run_id, reduce or SingleLearner()
            ).run()
        except BaseException as error:  # noqa: BLE001 - the run ends with an exit code
            failed = failure_of(error, hello.folder)
            if not isinstance(error, UserError):
                structlog.get_logger(__name__).error("trainer_failed", error=in_one_line(error), exc_info=error)
            self._link.to_front.send(Failed(failed.exit_code, failed.message))
            if reduce is not None:
                reduce.leave()  # so that rank 0 does not wait
        until(self._over.wait)
        return ExitCode.OK

    def _refuse(self, reason: NotOpened) -> int:
        self._say(reason.message)
        self._is_refusing = True
        self._link.to_front.send(reason)
        self._wire.close(_SEND_SECONDS)
        return reason.exit_code

    def _note_end(self, fault: str) -> None:
        """Ends the process; called in the thread that reads."""
        if fault:  # such as code that the run file names, and that is not here
            self._say(fault)
        if self._is_refusing:
            return
        if self._rank or self._side is None or not self._side.run.has_finished:
            os._exit(self._code())
        self._over.set()

    def _code(self) -> ExitCode:
        if self._is_over:
            return ExitCode.OK
        self._say(
            "the learner was lost, or stopped before the end of its run; a trainer that is started again waits for it"
        )
        return ExitCode.TRAINER_FAILED

    def _note_over(self, message: Over) -> None:
        del message
        self._is_over = True


def place_among_ranks() -> tuple[int, int]:
    """Returns the number of this process among the ranks, and how many there are, as its launcher says; 0 and 1 without one.

    Raises:
        UserError: The launcher's variables are not numbers.
    """
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        raise UserError(
            ExitCode.USAGE, "the variables RANK and WORLD_SIZE, which launchers set, are not numbers; unset them"
        ) from None


def enter(directory: Path) -> None:
    """Makes the folder in which the service works this process's own, so that relative paths mean the same; a missing one is logged."""
    try:
        os.chdir(directory)
    except OSError as error:
        structlog.get_logger(__name__).warning(
            "learner_folder_not_seen", error=str(error), action=f"relative paths of the run file begin in {Path.cwd()}"
        )


def prepare() -> None:
    """Prepares this process: it ends with its parent, and the service alone decides when the run ends."""
    die_with_parent()
    prepare_streams()
    for number in (*stop_signal_numbers(), *operator_signal_numbers()):
        signal.signal(number, ignored)
    if "RANK" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the launcher ends the other ranks if one has died
    block_stop_signals(blocked=False)  # `learner.start.ranks` blocks them


def connect(rank: int, ranks: int) -> tuple[LocalConnection, RingReader | None, Mesh]:
    """Connects to the service that has started this process.

    Args:
        rank: Number of this process.
        ranks: Number of processes.

    Returns:
        The connection, the ring for large messages, and the connections to the other ranks.

    Raises:
        OSError, EOFError, multiprocessing.AuthenticationError: The service has ended.
    """
    connection = dial()
    if ranks == 1:
        return connection, inherited_ring(), Mesh(rank, {})
    connection.send_bytes(f"{rank} {os.getpid()}".encode())
    return connection, receive_ring(connection), Mesh(rank, receive_peers(connection, ranks))


def main() -> int:
    """Runs the trainers' side for the service that has started this process, and returns the exit code."""
    prepare()
    place = place_among_ranks()
    try:
        connection, ring, mesh = connect(*place)
    except (AuthenticationError, EOFError, OSError):
        return ExitCode.TRAINER_FAILED  # the service has ended, and has said why
    for name in (ADDRESS_VARIABLE, KEY_VARIABLE, RING_VARIABLE):
        os.environ.pop(name, None)  # not for processes that packages start
    return TrainerProgram(connection, ring, place, lambda _: mesh).run()


if __name__ == "__main__":
    sys.exit(main())
