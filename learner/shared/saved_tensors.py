"""Checks single tensors of a checkpoint before they are used; numbers and text: `learner.shared.saved_values`."""

from __future__ import annotations

import torch
from torch import Tensor


def require_numbers(name: str, saved: Tensor, dtype: torch.dtype) -> None:
    """Checks that a saved tensor holds finite numbers of a type.

    Raises:
        ValueError: The tensor is of another type, or holds a number that is not finite.
    """
    if saved.dtype != dtype:  # a float64 value may exceed the range of float32
        raise ValueError(f"{name} has type {saved.dtype} in the saved state, but must have type {dtype}")
    if not bool(torch.isfinite(saved).all()):
        raise ValueError(f"{name} holds NaN or infinite values")
