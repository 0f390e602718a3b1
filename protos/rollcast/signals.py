"""Signals that ask a process to end, and what forked processes and those whose parent ends do with them.

Environments fork: `multiprocessing` and its pools, Gymnasium's AsyncVectorEnv, wrappers of simulators. They end such
processes by SIGTERM and wait for them. A handler that counts signals would keep a forked process alive for ever, and a
descriptor for signals would report those of the forked process to its parent.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TypeVar

_OURS: Final = frozenset({"rollcast", "learner", "actor_client"})
_STOP: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
_HELD_BACK: Final = tuple(
    signal.Signals[name] for name in (*_STOP, "SIGUSR1", "SIGUSR2") if name in signal.Signals.__members__
)
_signals: Any = signal
_mask: Any = getattr(_signals, "pthread_sigmask", None)  # Windows has none
_before_fork: Final = threading.local()
_LOOK_SECONDS: Final = 1.0
"""Seconds after which a signal that has woken nobody is noticed."""
Item = TypeVar("Item")
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def stop_signal_numbers() -> tuple[signal.Signals, ...]:
    """Returns the signals that ask a process to end: Ctrl+C, SIGTERM, a closed terminal, Windows' Ctrl+Break.

    Under nohup the terminal's signal is ignored, and stays ignored.
    """
    there = [signal.Signals[name] for name in _STOP if name in signal.Signals.__members__]
    return tuple(each for each in there if each.name != "SIGHUP" or signal.getsignal(each) is not signal.SIG_IGN)


def python_handler(number: signal.Signals) -> Any:
    """Returns what a new interpreter does with a signal."""
    return signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL


def until(wait: Callable[[float], bool]) -> None:
    """Waits in the main thread, and handles signals meanwhile.

    A signal that comes just as a thread begins to wait for a lock does not wake it, and Python runs handlers in the main
    thread alone: without an end of that wait, it would be lost.

    Args:
        wait: Waits so many seconds at most, and returns whether the wait is over.
    """
    while not wait(_LOOK_SECONDS):
        pass


def take(source: queue.SimpleQueue[Item]) -> Item:
    """Waits for the next item of a queue as `until` does."""
    while True:
        with suppress(queue.Empty):
            return source.get(timeout=_LOOK_SECONDS)


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handles the signals that ask the process to end within the block, which the main thread runs."""
    before = {number: signal.signal(number, handler) for number in stop_signal_numbers()}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def ignored(_number: int, _frame: FrameType | None) -> None:
    """Ignores a signal in this process only: `SIG_IGN` also reaches the processes that it starts."""


def _hold_back() -> None:
    """Blocks the signals until a forked process has its own handlers: one to the child would count as its parent's."""
    _before_fork.mask = _mask(_signals.SIG_BLOCK, _HELD_BACK)


def _let_through() -> None:
    _mask(_signals.SIG_SETMASK, _before_fork.mask)


def _handle_as_python_does() -> None:
    """Removes Rollcast's handlers from a forked process; those of users stay."""
    signal.set_wakeup_fd(-1)
    for number in _HELD_BACK:
        if str(getattr(signal.getsignal(number), "__module__", "")).partition(".")[0] in _OURS:
            signal.signal(number, python_handler(number))
    _let_through()


if hasattr(os, "register_at_fork") and _mask is not None:
    os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_handle_as_python_does)


def end_with_parent(number: int = signal.SIGTERM) -> Callable[[], object] | None:
    """Returns the ``preexec_fn`` of a process that gets a signal when its parent is killed; None without system support.

    The system sends the signal when the thread that started the process ends, so start it in the main thread.

    Args:
        number: The signal.
    """
    try:
        control = ctypes.CDLL(None).prctl  # before the fork: afterwards a lock may be held for ever
    except (AttributeError, TypeError):  # macOS; Windows
        return None
    return lambda: control(_PR_SET_PDEATHSIG, int(number))


def die_with_parent() -> None:
    """Lets the system kill this process when the thread that started it ends; has no effect without system support."""
    if sys.platform != "win32" and (set_signal := end_with_parent(signal.SIGKILL)) is not None:
        set_signal()
