"""Describes the device under test: availability, precision, memory and waits."""

import gc
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import torch
from torch import Tensor

CPU = torch.device("cpu")


def missing_cuda() -> str:
    """Returns in one line why there is no CUDA and how to get it, or an empty text."""
    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None:
        return (
            f"no CUDA: torch {torch.__version__} is a CPU build; make the environment without TORCH_INDEX (make distclean "
            "venv) on a machine with an NVIDIA GPU"
        )
    seen = "nvidia-smi is there" if shutil.which("nvidia-smi") else "nvidia-smi is not there either"
    return (
        f"no CUDA: torch {torch.__version__} (built for CUDA {torch.version.cuda}) sees no device, and {seen}; it needs an "
        "NVIDIA GPU with its driver, in a container the NVIDIA Container Toolkit (--gpus all), and CUDA_VISIBLE_DEVICES "
        "must not hide it"
    )


@contextmanager
def float32() -> Iterator[None]:
    """Computes in float32 inside the block, where a GPU would else take TF32, whose numbers have 10 bits of 23."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def finish(device: torch.device) -> None:
    """Waits until a device has done everything that is queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def allocated_bytes(device: torch.device) -> int:
    """Returns the bytes of all tensors on a device, once what no one holds any more is gone."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    storages = {}
    for found in gc.get_objects():
        # By its type: what only stands in for something else would import that for an answer.
        if issubclass(type(found), Tensor) and found.device.type == device.type:
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


@contextmanager
def waits_are_errors() -> Iterator[None]:
    """Makes waits for a CUDA device raise inside the block, as far as torch detects them.

    It does for copies from or to memory that is not pinned, reads of single values, and operations whose result has a
    size that only the device knows.
    """
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def quiet() -> None:
    """Limits the logs of trainers to errors."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
