"""Single tensors of a checkpoint, checked before they are taken over; numbers and texts: `learner.common.saved_values`."""

from __future__ import annotations

import torch
from torch import Tensor


def require_numbers(name: str, saved: Tensor, dtype: torch.dtype) -> None:
    """Looks whether a saved tensor holds finite numbers of a type.

    Raises:
        ValueError: it does not.
    """
    if saved.dtype != dtype:  # a float64 may be beyond what a float32 holds
        raise ValueError(f"{name} is of type {saved.dtype} in the saved state and {dtype} here")
    if not bool(torch.isfinite(saved).all()):
        raise ValueError(f"{name} holds numbers that are not finite")
