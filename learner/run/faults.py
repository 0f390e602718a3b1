"""Tells errors of the machine from errors of a trainer: of device and memory, which have exit codes, and of descriptors.

A trainer's error comes back when the learner is started again; the others may not.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import structlog
import torch

from learner.common.exits import ExitCode
from learner.common.plugins import in_one_line

Made = TypeVar("Made")

log = structlog.get_logger(__name__)

_MEMORY: Final = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
"""Texts of errors for which torch has no class: of its allocator of host memory, and of CUDA's libraries."""
_DEVICE: Final = ("CUDA error", "CUDA driver error", "cuDNN error", "HIP error", "MPS backend")
_SHORTAGE_SECONDS = 1.0
"""Seconds between two attempts while no file descriptor is free."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Returns the exit code for an error that ended the trainers; that of a trainer's error for all others."""
    for cause in _causes(error):
        if isinstance(cause, MemoryError | torch.OutOfMemoryError):
            return ExitCode.OUT_OF_MEMORY
        if isinstance(cause, RuntimeError):
            text = str(cause)
            if any(part in text for part in _MEMORY):
                return ExitCode.OUT_OF_MEMORY
            if isinstance(cause, torch.AcceleratorError) or text.startswith(_DEVICE):
                return ExitCode.DEVICE_FAILED
    return ExitCode.TRAINER_FAILED


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
    return any(isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE} for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and what led to it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
