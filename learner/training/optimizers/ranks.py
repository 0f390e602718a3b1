"""Combines numbers over the ranks that train together, through sockets, or through NCCL where each has a GPU of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore

from learner.link.mesh import Mesh
from learner.shared.exits import ExitCode, UserError

_SIZE_BYTES: Final = 8
_OF_NCCL: Final = {
    "NCCL_SOCKET_IFNAME": "=lo",  # all are on this machine
    "NCCL_RAS_ENABLE": "0",  # it would listen for whoever asks how it is
}


class LostRankError(UserError):
    """Another rank has died or does not answer; the trainers must start again.

    Args:
        reason: What shows it.
    """

    def __init__(self, reason: object) -> None:
        first, _, _ = str(reason).partition("\n")  # torch adds its own stack
        super().__init__(ExitCode.TRAINER_DIED, f"a rank of the trainers has ended or does not answer: {first}")


class RankGroup:
    """`Reduce` over the ranks of a mesh, which `join_ranks` returns.

    Args:
        mesh: Connects them.
        has_nccl: Whether `torch.distributed` adds numbers of the training device; otherwise the mesh does.

    Attributes:
        rank, ranks, has_rows: See `learner.training.optimizers.reduce.Reduce`.
        wait_seconds: Seconds in joint operations so far, most of them waits for other ranks.
    """

    def __init__(self, mesh: Mesh, *, has_nccl: bool = False) -> None:
        self.rank = mesh.rank
        self.ranks = mesh.ranks
        self.has_rows = True
        self.wait_seconds = 0.0
        self._mesh = mesh
        self._has_nccl = has_nccl

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
        sent = values.detach().cpu().contiguous()
        found = sent.new_empty(self.ranks, *sent.shape)
        found[self.rank] = sent
        with self._counted():
            self._mesh.exchange([_bytes_of(sent)] * self.ranks, [_bytes_of(each) for each in found])
        return found.to(values.device)

    def broadcast(self, content: bytes) -> bytes:
        """Returns the content that rank 0 has."""
        size = bytearray(len(content).to_bytes(_SIZE_BYTES))
        with self._counted():
            self._from_first(size)
            data = bytearray(content) if not self.rank else bytearray(int.from_bytes(size))
            self._from_first(data)
        return bytes(data)

    def _from_first(self, content: bytearray) -> None:
        """Replaces the content by that of rank 0, which is of the same size."""
        nothing = bytearray()
        incoming = [content if self.rank and not rank else nothing for rank in range(self.ranks)]
        self._mesh.exchange([nothing if self.rank else content] * self.ranks, incoming)

    def _sum(self, values: Tensor) -> None:
        """Replaces values by their sums; each rank adds a part, in the order of the ranks, so that all have the same bits."""
        with self._counted():
            if self._has_nccl:
                dist.all_reduce(values)
                return
            total = values.detach().cpu().contiguous().flatten()
            parts = total.tensor_split(self.ranks)
            found = total.new_empty(self.ranks, len(parts[self.rank]))
            found[self.rank] = parts[self.rank]
            self._mesh.exchange(list(map(_bytes_of, parts)), list(map(_bytes_of, found)))
            parts[self.rank].copy_(found.sum(0))
            self._mesh.exchange([_bytes_of(parts[self.rank])] * self.ranks, list(map(_bytes_of, parts)))
            values.copy_(total.view_as(values))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise LostRankError(error) from error
        finally:
            self.wait_seconds += time.perf_counter() - began

    def leave(self) -> None:
        """Leaves the others, which ends the operations that they wait in."""
        self._mesh.close()
        leave_nccl()


def _bytes_of(tensor: Tensor) -> memoryview:
    """Returns the memory of a contiguous tensor on the CPU."""
    return tensor.flatten().view(torch.uint8).numpy().data


def join_ranks(device: torch.device, seconds: float, mesh: Mesh) -> RankGroup:
    """Waits for all ranks and returns the `Reduce` over them. The process ends by `end_rank`.

    Args:
        device: The training device.
        seconds: After so long, a joint operation fails.
        mesh: Connects the ranks.

    Raises:
        LostRankError: The others did not come in time.
    """
    mesh.seconds = seconds
    has_one_each = mesh.is_local and device.type == "cuda" and torch.cuda.device_count() >= mesh.ranks
    answers = [bytearray([has_one_each]) for _ in range(mesh.ranks)]
    try:
        mesh.exchange([bytes([has_one_each])] * mesh.ranks, answers)
        has_nccl = all(map(any, answers))
        if has_nccl:
            _join_nccl(seconds, mesh)
    except TimeoutError:
        raise LostRankError(
            f"not all came within {seconds:g} s: if they are slow, raise rollcast.collective_seconds"
        ) from None
    except (OSError, RuntimeError) as error:
        raise LostRankError(error) from error
    return RankGroup(mesh, has_nccl=has_nccl)


def _join_nccl(seconds: float, mesh: Mesh) -> None:
    """Joins torch's process group, whose store is memory that only these processes have."""
    os.environ.update(_OF_NCCL)
    store = FileStore(f"/proc/self/fd/{mesh.share_memory()}", mesh.ranks)
    dist.init_process_group(
        "nccl", store=store, rank=mesh.rank, world_size=mesh.ranks, timeout=timedelta(seconds=seconds)
    )


def leave_nccl() -> None:
    """Leaves torch's process group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def end_rank(code: int) -> NoReturn:
    """Leaves torch's process group and ends the process at once.

    An interpreter that ends after its process was in a group is now and then aborted, probably by a thread of torch that still runs.
    """
    leave_nccl()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
