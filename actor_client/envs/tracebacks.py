"""The user's part of a traceback: the place in an environment's own code where an error occurred.

Frames of Rollcast, and of the import machinery, above the user's code are left out.
"""

import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rollcast.text import printable

MOST_LINES: Final = 60
"""Most lines of a traceback; a longer one loses its first lines."""
_LONGEST_LINE: Final = 400
_LONGEST_PLACE: Final = 160
_PRODUCT: Final = frozenset({"actor_client", "rollcast"})
_OURS: Final = _PRODUCT | {"importlib"}
_NOT_THE_USERS: Final = _OURS | sys.stdlib_module_names | {"grpc", "gymnasium", "numpy", "torch"}
"""Modules whose frames are skipped: libraries that environments call, and their wrappers, say little about a fault."""


def traceback_of(error: BaseException) -> str:
    """Returns the traceback of an exception below Rollcast's own frames, without control characters.

    Empty if no frame is the user's code; errors of Rollcast or a library are reported in one line.
    """
    if not place_of(error):
        return ""
    first = error.__traceback__
    while first is not None and _module(first.tb_frame) in _OURS:
        first = first.tb_next
    text = "".join(traceback.TracebackException(type(error), error, first).format())
    lines = [printable(line, _LONGEST_LINE) for line in text.rstrip().splitlines()]
    return "\n".join(lines if len(lines) <= MOST_LINES else ["...", *lines[-MOST_LINES:]])


def place_of(error: BaseException) -> str:
    """Returns `FILE:LINE` of the innermost frame of an exception that is the user's code; empty if none is."""
    if isinstance(error, SyntaxError) and error.filename:
        return _place(error.filename, error.lineno or 0)
    return _innermost(traceback.walk_tb(error.__traceback__))


def place_of_thread(thread_id: int) -> str:
    """Returns `FILE:LINE` of the innermost frame of the user's code in a running thread; empty if there is none."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - the documented way to another thread's stack
    return "" if frame is None else _innermost(reversed(list(traceback.walk_stack(frame))))


def place_of_code(function: Callable[..., Any]) -> str:
    """Returns `FILE:LINE` of a method of an environment; empty for a library's method, or one not in Python."""
    owner = getattr(function, "__self__", None)
    inner = getattr(owner, "unwrapped", owner)
    found = getattr(inner, getattr(function, "__name__", ""), function)
    code = getattr(found, "__code__", None)
    is_library = str(getattr(found, "__module__", "")).partition(".")[0] in _NOT_THE_USERS
    return _place(code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) and not is_library else ""


def _innermost(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Returns the place of the innermost frame of the user's code that Rollcast called; frames come outermost first."""
    place: tuple[str, int] | None = None
    for frame, line in frames:
        module = _module(frame)
        if module in _PRODUCT:
            place = None
        elif module not in _NOT_THE_USERS:
            place = frame.f_code.co_filename, line
    return _place(*place) if place is not None else ""


def _module(frame: FrameType) -> str:
    """Returns the top-level module of a frame."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _place(file: str, line: int) -> str:
    """Returns a place by its path from the working directory if the file is in it; shortens a long path."""
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    place = printable(f"{path}:{line}")
    return place if len(place) <= _LONGEST_PLACE else f"...{place[3 - _LONGEST_PLACE :]}"
