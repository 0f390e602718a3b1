"""Tells errors of the training device and of memory from errors of a trainer, so that each has an exit code of its own.

A trainer's error comes back when the learner is started again; the others may not.
"""

from __future__ import annotations

from typing import Final

import torch

from learner.shared.descriptors import causes
from learner.shared.exits import ExitCode

_MEMORY: Final = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
"""Texts of errors for which torch has no class: of its allocator of host memory, and of CUDA's libraries."""
_DEVICE: Final = ("CUDA error", "CUDA driver error", "cuDNN error", "HIP error", "MPS backend")


def exit_code_of(error: BaseException) -> ExitCode:
    """Returns the exit code for an error that ended the trainers; that of a trainer's error for all others."""
    for cause in causes(error):
        if isinstance(cause, MemoryError | torch.OutOfMemoryError):
            return ExitCode.OUT_OF_MEMORY
        if isinstance(cause, RuntimeError):
            text = str(cause)
            if any(part in text for part in _MEMORY):
                return ExitCode.OUT_OF_MEMORY
            if isinstance(cause, torch.AcceleratorError) or text.startswith(_DEVICE):
                return ExitCode.DEVICE_FAILED
    return ExitCode.TRAINER_FAILED
