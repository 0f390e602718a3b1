"""Runs the gateway and the learner: the gateway first, since its ports must be open; both end in order.

The first signal stops the players and then the learner, which saves a checkpoint and the models. The second cuts short
what takes long: players are ended, and the learner waits for no actor. The third ends both at once. One that comes before
there is anything to save is enough.
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

from actor_client.platform import describe_exit, end_process, start_process, stop_signal_numbers
from actor_client.settings.addresses import split_address
from actor_client.unity.dropin.exits import STOPPED_EARLY, DropInError, ExitCode, of_gateway

_LOOK_SECONDS: Final = 0.05
_LISTEN_SECONDS: Final = 5.0
"""The learner, whose start takes the processor for seconds, waits so long for the first port to be open."""
_FAREWELL_SECONDS: Final = 30.0
"""Between the end of one child that ended well and that of the other, which has heard of it."""
_GATEWAY_STOP_SECONDS: Final = 20.0
"""Players are asked to leave, waited for and ended within this; then the learner no longer waits for what they sent."""

_HURRY_SECONDS: Final = 3.0
"""For what happens at once."""


class StopSignals:
    """Counts the signals that ask the process to end.

    Attributes:
        count: How often it was asked.
    """

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts them within the block. A terminal that closes says so more than once, and is in no hurry."""
        before = {number: signal.signal(number, self._note) for number in stop_signal_numbers()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if not (self.count and signal.Signals(number).name == "SIGHUP"):
            self.count += 1


class Child:
    """A process that a Ctrl+C in this terminal does not reach, and that is asked to end if this one is killed.

    Args:
        command: What it runs.

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
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def ask(self) -> None:
        """Asks it to end; what it started is its own affair."""
        if self.code is None:
            self._process.terminate()

    def end(self) -> None:
        """Ends it at once."""
        end_process(self._process, at_once=True)
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks to the command that runs the two processes.

    Attributes:
        is_serving: Whether the learner listens by now.
        say_serving: Called once, when it does.
        say_stopping: Called once, when the user asks for the end of what has begun.
        gateway_error: What the gateway has left as the reason of its end; empty if nothing.
    """

    is_serving: Callable[[], bool]
    say_serving: Callable[[], None]
    say_stopping: Callable[[], None]
    gateway_error: Callable[[], str]


class RunProcesses:
    """Starts both, waits, and stops both.

    Args:
        gateway: Its command.
        learner: Its command.
        port: The gateway's first port.
        signals: How often this process was asked to end.
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
            DropInError: One of both failed; the code is the learner's, or says what became of the players. Or it was
                stopped before there was anything to save (INTERRUPTED).
        """
        taken = answers(self._local)  # by another process: the gateway is about to say so, and ends
        gateway = Child(self._commands[0])
        try:
            self._wait(lambda: gateway.code is not None or (not taken and answers(self._local)), _LISTEN_SECONDS)
            if gateway.code is not None:
                raise DropInError(of_gateway(gateway.code), _last_words(gateway.code))
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
        asked_by_user = min(self._signals.count, 1)
        by_itself = (None, None) if asked_by_user else (gateway.code, learner.code)
        if asked_by_user:
            self._hooks.say_stopping()
        self._stop(gateway)
        if not self._stop_learner(learner, asked_by_user):
            return ExitCode.INTERRUPTED
        return _conclusion(*by_itself, learner.code or 0, self._hooks.gateway_error())

    def _stop(self, gateway: Child) -> None:
        """Asks the gateway to end, which sends what players have done; ends it if it takes long or a further signal comes."""
        heard = self._signals.count
        gateway.ask()
        self._wait(lambda: gateway.code is not None, _GATEWAY_STOP_SECONDS, signals=max(heard, 1))
        if gateway.code is None:
            gateway.ask()  # the second time it ends its players at once
            self._wait(lambda: gateway.code is not None, _HURRY_SECONDS, signals=max(heard, 1) + 1)
        gateway.end()

    def _stop_learner(self, learner: Child, asked_by_user: int) -> bool:
        """Asks the learner to end, and again for each further signal; False if it was ended at once."""
        asked = 0
        while learner.code is None:
            insisted = self._signals.count - asked_by_user
            if insisted >= 2:
                learner.end()
                return False
            if asked < 1 + insisted:  # one at a time: two at once would count as one
                learner.ask()
                asked += 1
            time.sleep(_LOOK_SECONDS)
        return True

    def _wait(self, condition: Callable[[], bool], seconds: float = float("inf"), *, signals: int = 0) -> None:
        """Waits until a condition holds, the time is over, or there were more than so many signals."""
        deadline = time.monotonic() + seconds
        while not condition() and self._signals.count <= signals and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)


def _conclusion(gateway: int | None, learner: int | None, end: int, gateway_error: str) -> int:
    """Returns the code of the whole.

    Args:
        gateway: What the gateway ended with by itself, None if it was asked to.
        learner: What the learner ended with by itself, None if it was asked to.
        end: What the learner ended with in any case.
        gateway_error: What the gateway has left as the reason of its end.

    Raises:
        DropInError: One of both failed, or there was nothing to save yet.
    """
    if learner is not None and learner < 0:
        raise _killed(learner)
    if learner:
        raise DropInError(learner)
    if learner == 0:
        return ExitCode.OK
    if gateway:  # what the learner said since is not what the user must know
        raise DropInError(of_gateway(gateway), gateway_error or _last_words(gateway, "; its lines above say why"))
    if end == -signal.SIGTERM:  # asked while it still started
        raise DropInError(ExitCode.INTERRUPTED, STOPPED_EARLY)
    if end < 0:
        raise _killed(end)
    return end


def _killed(code: int) -> DropInError:
    """Returns the end of a learner that could not say a word; perhaps it had no checkpoint yet, so `auto`."""
    return DropInError(
        ExitCode.LEARNER_KILLED, f"the learner {describe_exit(code)}; go on with --resume=auto in the same command"
    )


def _last_words(code: int, hint: str = "") -> str:
    """Returns what to say of a gateway that failed; nothing where its own last line is that of the whole."""
    return f"what serves the players {describe_exit(code)}{hint}" if code < 0 or hint else ""


def answers(address: str) -> bool:
    """Returns whether something listens at HOST:PORT."""
    try:
        socket.create_connection(split_address(address), timeout=1.0).close()
    except OSError:
        return False
    return True
