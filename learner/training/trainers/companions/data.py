"""Data that the companions of a behavior share: its newest steps, bounded in steps and bytes."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.shared.exits import ExitCode, UserError
from learner.shared.saved_values import count
from learner.shared.settings.companions import DataBufferSettings
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.columns import TERMINATED
from learner.training.buffers.layout import ChunkSegments
from learner.training.buffers.replay import Places, ReplayMemory, ReplaySize, replay_row_bytes, replay_size
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.transitions import TransitionReader

_KIB: Final = 1024


def data_sizes(spec: BehaviorSpec, settings: TrainerSettings) -> dict[str, ReplaySize]:
    """Returns the sizes of a behavior's data buffers by name.

    Raises:
        UserError: One is too small for a segment, or for a companion.
    """
    sizes = {name: _size(name, each, spec, settings.time_horizon) for name, each in settings.buffers.items()}
    for name, companion in settings.companions.active().items():
        most = sizes[companion.data].capacity_steps
        if companion.min_buffer_size > most:
            raise UserError(
                ExitCode.RUN_FILE,
                f"companions.{name}.min_buffer_size is {companion.min_buffer_size}, but the data buffer {companion.data!r} has room for "
                f"{most} steps: raise its max_steps and max_bytes, or lower min_buffer_size",
            )
    return sizes


def _size(name: str, settings: DataBufferSettings, spec: BehaviorSpec, time_horizon: int) -> ReplaySize:
    """Returns the size of a data buffer, with the most steps that fit.

    Args:
        name: Name of the buffer.
        settings: Its settings.
        spec: Observations and actions of the behavior.
        time_horizon: The longest segment, in steps.

    Raises:
        UserError: Not even one segment fits.
    """
    row_bytes = replay_row_bytes(spec)

    def of(steps: int) -> ReplaySize:
        return replay_size(row_bytes, buffer_size=steps, time_horizon=time_horizon)

    rows = settings.max_bytes // row_bytes
    steps = bisect.bisect_right(range(1, settings.max_steps + 1), rows, key=lambda each: of(each).capacity_rows)
    if not steps:
        raise UserError(
            ExitCode.RUN_FILE,
            f"data_buffers.{name}.max_bytes is {settings.max_bytes // _KIB} KiB, but a segment of time_horizon {time_horizon} steps "
            f"needs {-(-of(1).capacity_rows * row_bytes // _KIB)} KiB: raise max_bytes, or lower time_horizon",
        )
    return of(steps)


class DataUser:
    """A named data buffer: the newest steps of a behavior.

    Companions read it in the trainers' thread, between two turns. Nothing is added while they train.

    Args:
        spec: Observations and actions of the behavior.
        size: Its size.
        device: Device of the data.
        seed: Seed of its draws.

    Attributes:
        added: Steps that have been added so far, in all starts of the run.
    """

    def __init__(self, spec: BehaviorSpec, size: ReplaySize, device: torch.device, seed: int) -> None:
        self.added = 0
        self._spec, self._size, self._device = spec, size, device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._reader = TransitionReader(spec, device, needs_observations=True)
        self.clear()

    def __len__(self) -> int:
        return self._memory.steps

    def get_data(self) -> Transitions:
        """Returns copies of all steps, oldest first."""
        return self._at(self._memory.places())

    def sample(self, count: int) -> Transitions:
        """Draws steps uniformly, with replacement; requires at least one."""
        return self._at(self._memory.draw(count))

    def add(self, chunk: Chunk, parts: ChunkSegments, chosen: NDArray[np.int64]) -> None:
        """Adds segments of a chunk, without those that are longer than a time horizon; the oldest steps make room.

        Args:
            chunk: The chunk.
            parts: Its segments.
            chosen: Indices of the segments, ascending.
        """
        chosen = chosen[parts.lengths[chosen] < self._size.block_rows]
        if len(chosen):
            self._memory.add(chunk, parts, chosen)
            self.added += int(parts.lengths[chosen].sum())

    def clear(self) -> None:
        """Empties the buffer, which is then as at the start of a run, except for its draws and `added`."""
        self._memory = ReplayMemory(self._spec, self._size, self._device, self._generator)

    def release(self) -> None:
        """Frees the memory; nothing can be added after that."""
        self._memory.release()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, without the data."""
        draws = {"device": self._generator.device.type, "state": self._generator.get_state()}
        return {"added": self.added, "draws": draws}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state, without data.

        Raises:
            KeyError, RuntimeError, TypeError, ValueError: The state does not fit.
        """
        self.added = count(state, "added")
        draws = state["draws"]
        if draws["device"] == self._generator.device.type:  # those of another kind of device cannot continue
            self._generator.set_state(draws["state"])

    def _at(self, places: Places) -> Transitions:
        terminated: Tensor = self._memory.storage[TERMINATED].index_select(0, places.rows).double()
        return self._reader.at(self._memory.storage, places.rows, places.next_rows, terminated)
