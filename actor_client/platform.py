"""What differs between operating systems: signals, and ending a process at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from actor_client.exits import ExitCode


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Lets Ctrl+C end the process as the operating system does, until `stop_signals` takes over.

    Python's own handler raises KeyboardInterrupt wherever the program is. Amid the imports of a start, some libraries
    swallow it, and others turn it into errors of their own. A process that was told to ignore Ctrl+C goes on to.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Calls `stop` with the name of the first signal that asks the process to end; the second ends it at once.

    Args:
        stop: Runs inside a signal handler: it must take no lock.
    """
    seen: list[str] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if seen and name == "SIGHUP":
            return  # a terminal that closes says so more than once: nobody is in a hurry
        if seen:
            os.write(2, f"{name} again: ended at once\n".encode())
            os._exit(ExitCode.INTERRUPTED)
        seen.append(name)
        stop(name)

    previous = {number: signal.signal(number, handle) for number in _stopping()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _stopping() -> tuple[signal.Signals, ...]:
    """Returns the signals that ask a process to end: Ctrl+C, a supervisor's, a closed terminal's, Windows' Ctrl+Break.

    Behind nohup the terminal's is ignored, and stays so.
    """
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    there = [signal.Signals[name] for name in names if name in signal.Signals.__members__]
    return tuple(each for each in there if each.name != "SIGHUP" or signal.getsignal(each) is not signal.SIG_IGN)
