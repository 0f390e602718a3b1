"""Combines numbers over the ranks of a process group of torch.distributed."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from learner.common.exits import ExitCode, UserError

_IN_SOURCE: Final = re.compile(r"^\[[^]]*:\d+\] ")
"""The place in its source with which gloo begins an error."""


class LostRankError(UserError):
    """Another rank has died or does not answer; the trainers must start again.

    Args:
        error: The error of the collective operation.
        seconds: How long this rank has waited for the others to join; None for an operation after that.
    """

    def __init__(self, error: RuntimeError, seconds: float | None = None) -> None:
        lines = str(error).splitlines() or [type(error).__name__]
        first, _, _ = _IN_SOURCE.sub("", lines[0]).partition(". ")  # general advice follows
        reason = f"a rank of the trainers has ended or does not answer: {first}"
        if seconds is not None and isinstance(error, dist.DistStoreError):  # which names only keys of torch's store
            reason = f"not all ranks of the trainers came within {seconds:g} s: if they are slow, raise rollcast.collective_seconds"
        super().__init__(ExitCode.TRAINER_DIED, reason)


class RankGroup:
    """`Reduce` over the ranks of the process group that `join_ranks` made.

    Args:
        device: The training device.

    Attributes:
        rank, ranks, has_rows: See `learner.optimizers.reduce.Reduce`.
        wait_seconds: Seconds in collective operations so far, most of them waits for other ranks.
    """

    def __init__(self, device: torch.device) -> None:
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()
        self.has_rows = True
        self.wait_seconds = 0.0
        # gloo takes part of its operations on the CPU alone.
        self._carrier = device if dist.get_backend() == "nccl" else torch.device("cpu")

    @torch.no_grad()
    def gradients(self, gradient: Tensor, rows: int = 1, beside: Tensor | None = None) -> Tensor | None:
        """Replaces the gradient by the mean over the rows of all ranks, with one operation."""
        count = rows if self.has_rows else 0
        numbers = gradient.new_zeros(0) if beside is None else beside.to(gradient.dtype)
        if not count:  # not a product with 0, which would keep what is not finite
            gradient.zero_()
            numbers = torch.zeros_like(numbers)
        total = torch.cat((gradient * count, gradient.new_tensor([count]), numbers))
        self._sum(total)
        torch.div(total[: len(gradient)], total[len(gradient)].clamp(min=1.0), out=gradient)
        return None if beside is None else total[len(gradient) + 1 :].to(beside.dtype)

    def sums(self, values: Tensor) -> Tensor:
        """Returns the sum over the ranks."""
        total = values.clone() if self.has_rows else torch.zeros_like(values)
        self._sum(total)
        return total

    def moments(self, batch: Tensor) -> Tensor:
        """Merges batch moments ``[3, size]`` over the ranks, in their order (Chan et al. 1979)."""
        found = self.gather(batch if self.has_rows else torch.zeros_like(batch))
        count, mean, squares = found[0].unbind()
        for other, its_mean, its_squares in found[1:]:
            total = count + other
            share = torch.where(total > 0.0, other / total.clamp(min=1.0), torch.zeros_like(total))
            delta = its_mean - mean
            mean = mean + delta * share
            squares = squares + its_squares + delta.square() * count * share
            count = total
        return torch.stack((count, mean, squares))

    def gather(self, values: Tensor) -> Tensor:
        """Returns the values of each rank, ``[ranks, *shape]``."""
        sent = values.contiguous().to(self._carrier)
        parts = [torch.empty_like(sent) for _ in range(self.ranks)]
        with self._counted():
            dist.all_gather(parts, sent)
        return torch.stack(parts).to(values.device)

    def broadcast(self, content: bytes) -> bytes:
        """Returns the content that rank 0 has."""
        size = torch.tensor(len(content), device=self._carrier)
        with self._counted():
            dist.broadcast(size, 0)
            data = torch.empty(int(size), dtype=torch.uint8, device=self._carrier)
            if not self.rank:
                data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            dist.broadcast(data, 0)
        return bytes(data.cpu().numpy())

    def _sum(self, values: Tensor) -> None:
        sent = values.to(self._carrier)
        with self._counted():
            dist.all_reduce(sent)
        if sent is not values:
            values.copy_(sent)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            raise LostRankError(error) from error
        finally:
            self.wait_seconds += time.perf_counter() - began


def join_ranks(device: torch.device, seconds: float, rank: int, ranks: int, store: Store | None = None) -> RankGroup:
    """Joins the process group and returns the `Reduce` over it; waits for all ranks. The process ends by `end_rank`.

    Args:
        device: The training device.
        seconds: After so long, a collective operation fails.
        rank: Number of this process, from 0.
        ranks: Number of processes.
        store: Store in which the ranks find each other; None for that of torchrun.

    Raises:
        LostRankError: The others did not come in time.
    """
    has_one_each = device.type == "cuda" and torch.cuda.device_count() >= ranks
    try:
        dist.init_process_group(
            "nccl" if has_one_each else "gloo",
            store=store,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=seconds),
        )
    except RuntimeError as error:
        raise LostRankError(error, seconds) from error
    return RankGroup(device)


def store_of(attempt: str, seconds: float, rank: int, ranks: int) -> Store:
    """Returns torchrun's store, in which keys of an earlier attempt, as the addresses of its ranks, are not found.

    Args:
        attempt: Name of this attempt, the same for all ranks.
        seconds: After so long, torchrun counts as unreachable.
        rank: Number of this process, from 0.
        ranks: Number of processes.

    Raises:
        LostRankError: torchrun's store was not reached.
    """
    try:
        store, _, _ = next(iter(rendezvous("env://", rank, ranks, timeout=timedelta(seconds=seconds))))
    except RuntimeError as error:
        raise LostRankError(error, seconds) from error
    return PrefixStore(attempt, store)


def leave_ranks() -> None:
    """Leaves the process group, which ends the operations that the other ranks wait in."""
    if dist.is_initialized():
        dist.destroy_process_group()


def end_rank(code: int) -> NoReturn:
    """Leaves the process group and ends the process at once.

    An interpreter that ends after its process was in a group is now and then aborted, probably by a thread of torch that still runs.
    """
    leave_ranks()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
