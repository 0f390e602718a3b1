"""Copies indices and flags of an update from the host to the training device without making the host wait."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copies an array to a device without waiting for work queued there.

    A copy to a GPU uses pinned memory: a copy from other memory makes the host wait until the device has done all
    earlier work. torch keeps the pinned memory until the copy is complete. On a CPU nothing is copied.

    Args:
        array: Contiguous array of any shape; must not be changed afterwards.
        device: Target device.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
