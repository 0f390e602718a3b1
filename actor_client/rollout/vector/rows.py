"""The rows of the last steps, time-major, in arrays that are allocated once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec

from actor_client.envs.base import Observations
from actor_client.policy.actions import NO_MEMORY, Actions, FloatArray, MaskArray, MemoryForm
from actor_client.rollout.chunks import Rows, remembered_rows
from actor_client.rollout.vector.segments import Segments

Index = NDArray[np.int64]


class RowLog:
    """A ring of C steps of E environments: one array [C, E, ...] per STEP column.

    Step t is kept until step t + C is appended; the recorder ensures that no older step is needed. A log that moves
    open rows to the front at each flush would copy tens of megabytes per chunk of pictures.

    Args:
        spec: The behavior's spec.
        agents: E.
        capacity: C.
        masked: Whether there are action masks.
        memory: Form of an agent's memory.

    Attributes:
        capacity: C.
        row_bytes: Bytes of one row of all STEP columns, `version_offset` included.
    """

    def __init__(
        self, spec: BehaviorSpec, agents: int, capacity: int, *, masked: bool, memory: MemoryForm = NO_MEMORY
    ) -> None:
        def column(trailing: tuple[int, ...], dtype: Any) -> NDArray[Any]:
            return np.zeros((capacity, agents, *trailing), dtype)

        action = spec.action
        self.capacity = capacity
        self._agents = agents
        self._observations = [column(part.shape, part.dtype) for part in spec.observations]
        self._columns = {
            f"obs/{part.name}": values for part, values in zip(spec.observations, self._observations, strict=True)
        }
        if action.continuous_size:
            self._columns["continuous_action"] = column((action.continuous_size,), np.float32)
        if action.discrete_branches:
            self._columns["discrete_action"] = column((len(action.discrete_branches),), np.int32)
        self._columns["log_prob"] = column((action.factors,), np.float32)
        self._columns["reward"] = column((), np.float32)
        if masked:
            self._columns["action_mask"] = column((action.mask_size,), np.uint8)
        # Kept for every step, because the start of a segment is only known when the previous one is cut.
        self._memory = column((memory.size,), np.float32) if memory.size else None
        self._memory_form = memory
        self._versions = np.zeros(capacity, np.uint64)
        self._taken_at = np.zeros(capacity, np.float64)
        version_bytes = np.dtype(np.uint32).itemsize
        self.row_bytes = version_bytes + sum(values.nbytes // (capacity * agents) for values in self._columns.values())

    def append(
        self,
        step: int,
        *,
        observations: Observations,
        masks: MaskArray | None,
        actions: Actions,
        rewards: FloatArray,
        version: int,
        taken_at: float,
    ) -> None:
        """Writes step t of all environments.

        Args:
            step: t, counted from 0.
            observations: Observations on which the actions were chosen, [E, *shape] each.
            masks: uint8 [E, sum of branches], or None.
            actions: The chosen actions.
            rewards: float32 [E].
            version: Version of the policy that acted.
            taken_at: Time of the step, in monotonic seconds.
        """
        slot = step % self.capacity
        columns = self._columns
        for values, observation in zip(self._observations, observations, strict=True):
            values[slot] = observation
        if actions.continuous is not None:
            columns["continuous_action"][slot] = actions.continuous
        if actions.discrete is not None:
            columns["discrete_action"][slot] = actions.discrete
        columns["log_prob"][slot] = actions.log_prob
        columns["reward"][slot] = rewards
        if "action_mask" in columns:
            columns["action_mask"][slot] = 1 if masks is None else masks
        if self._memory is not None:
            self._memory[slot] = actions.memory_in
        self._versions[slot] = version
        self._taken_at[slot] = taken_at

    def rows(self, segments: Segments) -> Rows:
        """Returns the rows of the segments, at least one."""
        steps, envs = segments.row_indices()
        rows = (steps % self.capacity) * self._agents + envs
        columns = {
            name: values.reshape(self.capacity * self._agents, *values.shape[2:]).take(rows, axis=0)
            for name, values in self._columns.items()
        }
        memory = None
        if self._memory is not None:
            chosen = rows[remembered_rows(segments.lengths, self._memory_form.stride)]
            memory = self._memory.reshape(self.capacity * self._agents, -1).take(chosen, axis=0)
        return Rows(columns, self.versions(steps), float(self._taken_at[int(steps.min()) % self.capacity]), memory)

    def are_finite(self, segments: Segments) -> NDArray[np.bool_]:
        """Returns which segments, at least one, have no NaN or infinity, bool [S]."""
        steps, envs = segments.row_indices()
        rows = (steps % self.capacity) * self._agents + envs
        found = np.ones(len(rows), np.bool_)
        columns = [values for values in (*self._columns.values(), self._memory) if values is not None]
        for values in columns:
            if values.dtype.kind == "f":
                flat = values.reshape(self.capacity * self._agents, -1).take(rows, axis=0)
                found &= np.isfinite(flat).all(axis=1)
        good = np.logical_and.reduceat(found, np.cumsum(segments.lengths) - segments.lengths)
        for values in segments.finals:
            if values.dtype.kind == "f":
                good &= np.isfinite(values).reshape(len(values), -1).all(axis=1)
        return good

    def versions(self, steps: Index) -> NDArray[np.uint64]:
        """Returns the versions that acted at the given steps, uint64 [N]."""
        return self._versions.take(steps % self.capacity)
