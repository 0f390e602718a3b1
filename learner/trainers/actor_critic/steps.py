"""Steps of an update in portions that a network can take: any of them, or whole sequences for one with a memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from learner.buffers.sequences import Pack, SequenceTable, pack, sequences_of, split_by_steps
from learner.networks.memory import Unrolled


class Portion(NamedTuple):
    """B chosen steps.

    Attributes:
        steps: ``[B]`` int64.
        firsts: ``[B]`` int64, the first step of each one's sequence; the step itself without memory.
        sequences: how they are sequences of the policy; None without memory.
    """

    steps: Tensor
    firsts: Tensor
    sequences: Unrolled | None


def all_steps(count: int, table: SequenceTable | None, *, most: int, device: torch.device) -> Iterator[Portion]:
    """Yields all of ``count`` steps in portions of at most ``most``, or of one sequence that has more."""
    if table is None:
        for steps in torch.split(torch.arange(count, device=device), most):
            yield Portion(steps, steps, None)
        return
    for chosen in split_by_steps(table.cut, np.arange(len(table.cut.starts)), most):
        yield _portion(table, pack(table.cut, chosen))


def sampled_steps(count: int, table: SequenceTable | None, *, sample: int, device: torch.device) -> Portion:
    """Returns about ``sample`` of ``count`` steps, evenly spread; whole sequences, at least one, with a memory."""
    if table is None:
        size = min(sample, count)
        steps = torch.arange(size, device=device) * count // size
        return Portion(steps, steps, None)
    total = len(table.cut.starts)
    size = min(total, max(1, sample * total // count))
    return _portion(table, pack(table.cut, np.arange(size) * total // size))


def _portion(table: SequenceTable, item: Pack) -> Portion:
    device = table.policy.device
    firsts = np.concatenate([table.cut.starts[item.order[:size]] for size in item.batch_sizes])
    sequences = sequences_of(table, item, torch.from_numpy(item.order).to(device))
    return Portion(torch.from_numpy(item.steps).to(device), torch.from_numpy(firsts).to(device), sequences.of_policy())
