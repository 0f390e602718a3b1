"""From the host to the training device: indices and flags of an update, in copies that the host does not wait for."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Takes an array to a device without a wait for what is queued there.

    A copy to a GPU comes from pinned memory: one from any other lets the host wait until the device has done everything
    before it. torch keeps the pinned memory until the copy is over. On a CPU nothing is copied.

    Args:
        array: of any shape, contiguous; not to be changed afterwards.
        device: where it is needed.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
