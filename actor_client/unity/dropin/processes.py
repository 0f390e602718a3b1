"""Runs the gateway and the learner; starts the gateway first, since its ports must be open, and stops both in order.

The first signal stops the players and then the learner, which saves a checkpoint and the models. The second cuts
this short: players are killed, and the learner waits for no actor. The third kills both. Before there is anything to
save, one signal is enough.
"""

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from rollcast.addresses import split_address
from rollcast.signals import handling

from actor_client.platform import (
    ask_to_end,
    describe_exit,
    end_process,
    start_process,
    was_asked_to_end,
)
from actor_client.unity.dropin.exits import STOPPED_EARLY, DropInError, ExitCode, of_gateway

_LOOK_SECONDS: Final = 0.05
_ASK_SECONDS: Final = 1.1
"""Time between two requests to the learner, which takes two within a second for one."""
_LISTEN_SECONDS: Final = 5.0
"""Seconds to wait for the gateway's first port before the learner is started, which takes much CPU time."""
_FAREWELL_SECONDS: Final = 30.0
"""Seconds between the successful end of one child and the end of the other, which has been notified."""
_GATEWAY_STOP_SECONDS: Final = 20.0
"""Seconds to stop the players. After that the learner no longer waits for their data."""

_HURRY_SECONDS: Final = 3.0
"""Seconds for a stop that should be immediate."""


class StopSignals:
    """Counts the signals that ask the process to end.

    Attributes:
        count: Number of signals so far.
    """

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts signals within the block. Several hangups of a closing terminal count as one."""
        with handling(self._note):
            yield

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if not (self.count and signal.Signals(number).name == "SIGHUP"):
            self.count += 1


class Child:
    """A process that Ctrl+C in this terminal does not reach, and that is asked to end if this process is killed.

    Args:
        command: The command line.

    Raises:
        DropInError: It cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process: subprocess.Popen[bytes] = start_process(command, output=None, ends_with_parent=True)
        except OSError as error:
            raise DropInError(ExitCode.MISSING_EXTRA, f"{command[0]} cannot be started: {error.strerror}") from None

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    def ask(self) -> None:
        """Asks the process to end; it must end the processes that it started."""
        if self.code is None:
            ask_to_end(self._process)

    def end(self) -> None:
        """Kills the process."""
        end_process(self._process, at_once=True)
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks to the command that runs the two processes.

    Attributes:
        is_serving: Returns whether the learner is listening.
        say_serving: Called once, when the learner listens.
        say_stopping: Called once, when the user asks to stop a run that has begun.
        say_failed: Called once, when the gateway has failed with an error of its own and the learner is asked to end.
        gateway_error: Returns the error that the gateway has written; empty if there is none.
    """

    is_serving: Callable[[], bool]
    say_serving: Callable[[], None]
    say_stopping: Callable[[], None]
    say_failed: Callable[[], None]
    gateway_error: Callable[[], str]


class RunProcesses:
    """Starts both processes, waits, and stops both.

    Args:
        gateway: The gateway's command.
        learner: The learner's command.
        port: The gateway's first port.
        signals: Counts the requests to end this process.
        hooks: Callbacks to the command.
    """

    def __init__(
        self, gateway: Sequence[str], learner: Sequence[str], port: int, signals: StopSignals, hooks: Hooks
    ) -> None:
        self._commands = gateway, learner
        self._local = f"127.0.0.1:{port}"
        self._signals = signals
        self._hooks = hooks

    def run(self) -> int:
        """Runs both until the run is over or was stopped, and returns the learner's exit code.

        Raises:
            DropInError: One of them failed, and the code is the learner's or describes the failure of the players; or
                the run was stopped before there was anything to save (INTERRUPTED).
        """
        taken = answers(self._local)  # by another process: the gateway reports it and exits
        gateway = Child(self._commands[0])
        try:
            self._wait(lambda: gateway.code is not None or (not taken and answers(self._local)), _LISTEN_SECONDS)
            if gateway.code is not None:
                raise DropInError(of_gateway(gateway.code), self._hooks.gateway_error() or _last_words(gateway.code))
            if self._signals.count:
                self._stop(gateway)
                raise DropInError(ExitCode.INTERRUPTED, STOPPED_EARLY)
            learner = Child(self._commands[1])
            try:
                return self._watch(gateway, learner)
            finally:
                learner.end()
        finally:
            gateway.end()

    def _watch(self, gateway: Child, learner: Child) -> int:
        def is_over() -> bool:
            return gateway.code is not None or learner.code is not None

        self._wait(lambda: is_over() or self._hooks.is_serving())
        if not is_over() and not self._signals.count:
            self._hooks.say_serving()
        self._wait(is_over)
        if not self._signals.count and 0 in {gateway.code, learner.code}:
            self._wait(lambda: gateway.code is not None and learner.code is not None, _FAREWELL_SECONDS)
        by_itself = (None, None) if self._signals.count else (gateway.code, learner.code)
        if self._signals.count:
            self._hooks.say_stopping()
        elif gateway.code and learner.code is None and self._hooks.gateway_error():
            self._hooks.say_failed()
        self._stop(gateway)
        if not self._stop_learner(learner):
            return ExitCode.INTERRUPTED
        return _conclusion(*by_itself, learner.code or 0, self._hooks.gateway_error())

    def _stop(self, gateway: Child) -> None:
        """Asks the gateway to send its data and stop; kills it if that takes long or another signal arrives."""
        heard = self._signals.count
        gateway.ask()
        self._wait(lambda: gateway.code is not None, _GATEWAY_STOP_SECONDS, signals=max(heard, 1))
        if gateway.code is None:
            gateway.ask()  # the second request kills its players
            self._wait(lambda: gateway.code is not None, _HURRY_SECONDS, signals=max(heard, 1) + 1)
        gateway.end()

    def _stop_learner(self, learner: Child) -> bool:
        """Asks the learner to end, and again for each signal after the user's first; False if it was killed."""
        asked, asked_at = 0, -_ASK_SECONDS
        while learner.code is None:
            insisted = max(self._signals.count - 1, 0)
            if insisted >= 2:
                learner.end()
                return False
            if asked < 1 + insisted and time.monotonic() - asked_at >= _ASK_SECONDS:
                learner.ask()
                asked, asked_at = asked + 1, time.monotonic()
            time.sleep(_LOOK_SECONDS)
        return True

    def _wait(self, condition: Callable[[], bool], seconds: float = float("inf"), *, signals: int = 0) -> None:
        """Waits until a condition holds, the time is over, or more than the given number of signals have arrived."""
        deadline = time.monotonic() + seconds
        while not condition() and self._signals.count <= signals and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)


def _conclusion(gateway: int | None, learner: int | None, end: int, gateway_error: str) -> int:
    """Returns the exit code of the command.

    Args:
        gateway: The gateway's exit code if it ended by itself; None if it was asked to end.
        learner: The learner's exit code if it ended by itself; None if it was asked to end.
        end: The learner's exit code in either case.
        gateway_error: The error that the gateway has written.

    Raises:
        DropInError: One of them failed, or there was nothing to save yet.
    """
    if learner is not None and learner < 0:
        raise _killed(learner)
    if learner:
        raise DropInError(learner)
    if learner == 0:
        return ExitCode.OK
    if gateway:  # later learner errors are only consequences
        code = of_gateway(gateway)
        why = "" if code is ExitCode.SHADOWED else "; its lines above say why"  # a package is refused in one line
        raise DropInError(code, gateway_error or _last_words(gateway, why))
    if end == ExitCode.INTERRUPTED or was_asked_to_end(end):  # the learner was asked to end during its start
        raise DropInError(ExitCode.INTERRUPTED, STOPPED_EARLY)
    if end < 0:
        raise _killed(end)
    return end


def _killed(code: int) -> DropInError:
    """Returns the error for a killed learner. It may have no checkpoint yet, so the hint uses `auto`."""
    return DropInError(
        ExitCode.LEARNER_KILLED,
        f"the learner {describe_exit(code)}; to continue, add --resume=auto to the same command",
    )


def _last_words(code: int, hint: str = "") -> str:
    """Returns the message for a failed gateway; empty if the gateway has already printed it."""
    return f"the gateway {describe_exit(code)}{hint}" if code < 0 or hint else ""


def answers(address: str) -> bool:
    """Returns whether something listens at HOST:PORT."""
    try:
        socket.create_connection(split_address(address), timeout=1.0).close()
    except OSError:
        return False
    return True
