"""What may be in the columns of a replay memory that is read from a file: what actors may send, and nothing else.

The bounds are those of `rollcast.faults`, which every chunk passes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.enums import ObservationKind

from learner.buffers.columns import ACTION_MASK, DISCRETE_ACTION, TERMINATED, RingColumn, observation_column
from learner.buffers.replay import ReplayMemory

_STEPS_AT_ONCE: Final = 2**16


def check_values(memory: ReplayMemory, column: RingColumn, values: NDArray[Any]) -> None:
    """Checks rows ``[N, *shape]`` of a column, each value by itself.

    Raises:
        ValueError: one is NaN or infinite, or there is no such flag or category.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"column {column.name} holds values that are NaN or infinite")
    if column.name in {TERMINATED, ACTION_MASK} and bool((values > 1).any()):
        raise ValueError(f"column {column.name} holds {values.max()}; it can be 0 or 1")
    for observation in memory.spec.observations:
        if observation.kind is not ObservationKind.CATEGORICAL or observation_column(observation.name) != column.name:
            continue
        if bool(((values < 0) | (values >= np.asarray(observation.categories))).any()):
            raise ValueError(f"column {column.name} holds categories that this behavior does not have")


def check_actions(memory: ReplayMemory, rows: NDArray[np.int64], used_rows: int) -> None:
    """Checks discrete actions, which are indices later on, and the masks that they were drawn under.

    Args:
        memory: its storage holds what was read, in the first rows.
        rows: ``[N]``, the row of each step.
        used_rows: how many rows were read.

    Raises:
        ValueError: there is no such action, a mask forbids it, or a mask forbids everything before another action.
    """
    discrete = memory.storage.get(DISCRETE_ACTION)
    if discrete is None:
        return
    branches = torch.tensor(memory.branches, device=discrete.device)
    chosen = discrete[:used_rows]
    if bool(((chosen < 0) | (chosen >= branches)).any()):
        raise ValueError("it holds actions that this behavior does not have")
    offsets = branches.cumsum(0) - branches
    masks, terminated = memory.storage[ACTION_MASK], memory.storage[TERMINATED]
    for steps in torch.split(torch.from_numpy(rows).to(discrete.device), _STEPS_AT_ONCE):
        allowed = masks[steps].gather(1, discrete[steps].long() + offsets)
        # After a terminal state nothing needs to be allowed.
        following = [part.any(dim=1) for part in torch.split(masks[steps + 1], list(memory.branches), dim=1)]
        is_open = torch.stack(following, dim=1).all(dim=1) | (terminated[steps] == 1)
        if not bool(allowed.all()) or not bool(is_open.all()):
            raise ValueError("it holds action masks that forbid what was done, or everything")
