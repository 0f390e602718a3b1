"""Child processes that end with the process that started them."""

import ctypes
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


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
