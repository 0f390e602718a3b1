"""Tests the transfer from host to training device."""

from __future__ import annotations

import numpy as np
import torch

from learner.training.buffers.transfer import to_device


def test_on_a_cpu_nothing_is_copied() -> None:
    """On a CPU the tensor shares the array's memory, type and shape."""
    array = np.arange(6).reshape(2, 3)
    tensor = to_device(array, torch.device("cpu"))
    array[0, 0] = 7
    assert tensor.tolist() == [[7, 1, 2], [3, 4, 5]]
    assert tensor.dtype == torch.int64
    assert to_device(np.zeros(0, np.float64), torch.device("cpu")).shape == (0,)
