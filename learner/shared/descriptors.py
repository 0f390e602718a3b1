"""Waits for file descriptors: a shortage passes when actors leave, and must not end a run."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import structlog
from rollcast.text import in_one_line

Made = TypeVar("Made")

_SHORTAGE_SECONDS: Final = 1.0
"""Seconds between two attempts."""

log = structlog.get_logger(__name__)


def with_descriptors(make: Callable[[], Made], until: Callable[[], bool]) -> Made:
    """Calls a function again and again while it fails because no file descriptor is free, which passes.

    Args:
        make: The function; may be called several times.
        until: Returns whether nobody needs the result any more.

    Returns:
        Its result.

    Raises:
        Exception: Its error, if that has another cause or nobody needs the result.
    """
    while True:
        try:
            return make()
        except Exception as error:
            if not lacks_descriptors(error) or until():
                raise
            action = "tries again; raise the limit of open files (ulimit -n) or connect fewer actors"
            log.warning("descriptors_missing", error=in_one_line(error), action=action)
        # Not time.sleep, which fails while a library gives the process another clock (libfaketime).
        threading.Event().wait(_SHORTAGE_SECONDS)


def lacks_descriptors(error: BaseException) -> bool:
    """Returns whether the process or the system had no file descriptor left."""
    return any(isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE} for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and what led to it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
