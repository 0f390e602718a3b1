"""Tests which errors of trainers are those of the device or of memory."""

from __future__ import annotations

import pytest
import torch

from learner.shared.exits import ExitCode
from learner.training.run.run import exit_code_of


def caused(error: Exception, cause: Exception) -> Exception:
    """Returns an error with a cause, as raised by code that adds where it happened."""
    try:
        raise error from cause
    except Exception as raised:  # noqa: BLE001 - returned
        return raised


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), ExitCode.OUT_OF_MEMORY),
        (MemoryError(), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: out of memory"), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), ExitCode.DEVICE_FAILED),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), ExitCode.DEVICE_FAILED),
        (torch.AcceleratorError("device-side assert triggered"), ExitCode.DEVICE_FAILED),
        (caused(ValueError("in the update"), MemoryError()), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ExitCode.TRAINER_FAILED),
        (ValueError("CUDA error"), ExitCode.TRAINER_FAILED),
    ],
)
def test_errors_have_codes_of_their_own(error: Exception, code: ExitCode) -> None:
    """Errors of memory and of the device are told from a trainer's."""
    assert exit_code_of(error) is code


def test_the_allocator_of_host_memory_is_recognized() -> None:
    """The error that torch raises for more memory than there is has the code of memory."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert exit_code_of(caught.value) is ExitCode.OUT_OF_MEMORY
