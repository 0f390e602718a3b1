"""The interface of a policy for the rollout: actions, memory, and checks for finite values."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.noise import Noise

FloatArray = NDArray[np.float32]


class MemoryForm(NamedTuple):
    """The form of a policy's memory, from its header.

    Attributes:
        size: Numbers of one agent's memory; 0 = none.
        stride: Rows between two recorded memories of a segment, starting at its first row; 0 = never recorded.
    """

    size: int = 0
    stride: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of memory per row of a segment, rounded up, in addition to `segment_bytes`."""
        return -(-self.segment_bytes // self.stride) if self.stride else 0

    @property
    def segment_bytes(self) -> int:
        """Bytes of one memory: a segment has at most one memory more than it has whole strides."""
        return self.size * np.dtype(np.float32).itemsize


NO_MEMORY: Final = MemoryForm()


def began(memory: FloatArray, ended: Sequence[int], ignored: NDArray[np.bool_] | None) -> FloatArray:
    """Clears, in place, the memory of episodes that have ended.

    Args:
        memory: After a step, [E, size].
        ended: Environments whose episodes ended with the step.
        ignored: Environments that the step only reset, bool [E]; None = none.
    """
    if ended:
        memory[list(ended)] = 0.0
    if ignored is not None:
        memory[ignored] = 0.0
    return memory


IntArray = NDArray[np.int32]
MaskArray = NDArray[np.uint8]


class PolicyUnusable(Exception):  # noqa: N818 - says what the policy is, like the classes of rollcast.errors
    """The actor cannot act with a policy and keeps its present one; the message gives the reason."""


class Actions(NamedTuple):
    """Actions of a policy for B agents (a tuple, because one is made at each step).

    Attributes:
        continuous: Raw draws, float32 [B, n]; None for a policy without continuous axes. Recorded.
        discrete: Branch choices, int32 [B, b]; None for a policy without branches. Recorded.
        log_prob: One column per factor, continuous axes first, float32 [B, n + b]. Recorded.
        environment_continuous: `continuous` after the policy's action transform, float32 [B, n]. Not recorded.
        memory_in: Memory before the step, float32 [B, m]; None for a policy without memory. Recorded.
        memory_out: Memory after the step, float32 [B, m]. Not recorded.
    """

    continuous: FloatArray | None
    discrete: IntArray | None
    log_prob: FloatArray
    environment_continuous: FloatArray | None
    memory_in: FloatArray | None = None
    memory_out: FloatArray | None = None

    def part(self, rows: slice | Sequence[int]) -> "Actions":
        """Returns the actions of some agents."""
        continuous, discrete, log_prob, environment_continuous, memory_in, memory_out = self
        return Actions(
            None if continuous is None else continuous[rows],
            None if discrete is None else discrete[rows],
            log_prob[rows],
            None if environment_continuous is None else environment_continuous[rows],
            None if memory_in is None else memory_in[rows],
            None if memory_out is None else memory_out[rows],
        )


def merged(parts: Sequence[tuple[Sequence[int], Actions]]) -> Actions:
    """Returns the actions of all agents from those of several policies, which must have equal columns.

    Args:
        parts: Rows of agents and their actions; the rows of all parts are 0 to B - 1.
    """
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([np.asarray(rows, np.int64) for rows, _ in parts]))
    everyone = [actions for _, actions in parts]
    columns: list[Any] = [
        None if column[0] is None else np.concatenate(column)[order] for column in zip(*everyone, strict=True)
    ]
    return Actions(*columns)


class ActingPolicy(Protocol):
    """A policy as the rollout sees it; implemented by `actor_client.policy.runner.Policy`."""

    @property
    def generation(self) -> int:
        """Number of the learner's start that made the policy."""

    @property
    def version(self) -> int:
        """The policy version; grows by one with each completed update of one generation."""

    @property
    def memory(self) -> MemoryForm:
        """Form of an agent's memory."""

    def greedy(self) -> "ActingPolicy":
        """Returns this policy acting with the mode of its distribution; always the same object."""

    def uniform(self) -> "ActingPolicy":
        """Returns this policy drawing its actions uniformly; always the same object."""

    def act(
        self,
        observations: Sequence[NDArray[Any]],
        masks: MaskArray | None,
        noise: Noise,
        memory: FloatArray | None = None,
    ) -> Actions:
        """Returns actions for B agents.

        Args:
            observations: One array per observation, [B, *shape] each, in the order and dtype of the spec.
            masks: uint8 [B, sum of branches], 1 = allowed; None = all allowed.
            noise: Source of random numbers; it outlives policies, so that a swap does not repeat draws.
            memory: Memory before the step, float32 [B, m]; None = zeros. Ignored by a policy without memory.

        Raises:
            PolicyUnusable: The policy fails on the observations, or its outputs are not finite.
        """


LARGEST_OBSERVATION: Final = 1e15
"""Largest usable observation. A learner refuses rows with larger values, because networks square them in float32."""


def are_numbers(actions: Actions) -> bool:
    """Returns whether all draws and memories are finite.

    Log-probabilities need no check: they follow from the same outputs as the draws. One sum costs a third of an
    elementwise comparison; if the sum is not finite, the elements are compared.
    """
    return _is_finite(actions.log_prob) and (actions.memory_out is None or _is_finite(actions.memory_out))


def without_numbers(actions: Actions) -> NDArray[np.bool_]:
    """Returns which agents have a draw or a memory that is not finite, bool [B]."""
    faulty = np.zeros(len(actions.log_prob), np.bool_)
    faulty |= ~np.isfinite(actions.log_prob).all(axis=1)
    if actions.memory_out is not None:
        faulty |= ~np.isfinite(actions.memory_out).all(axis=1)
    return faulty


def unusable(
    observations: Sequence[NDArray[Any]], masks: MaskArray | None, branches: Sequence[int]
) -> NDArray[np.bool_]:
    """Returns which agents see NaN, infinity, too large values, or have a branch without an allowed choice, bool [B].

    Args:
        observations: [B, *shape] each.
        masks: Allowed choices, uint8 [B, sum of branches], or None.
        branches: Number of choices of each branch.
    """
    faulty = np.zeros(len(observations[0]), np.bool_)
    for values in observations:
        if values.dtype.kind == "f":  # comparisons are false for NaN
            faulty |= ~(np.abs(values) <= LARGEST_OBSERVATION).all(axis=tuple(range(1, values.ndim)))
    if masks is not None:
        for begin, end in itertools.pairwise(itertools.accumulate(branches, initial=0)):
            faulty |= ~masks[:, begin:end].any(axis=1)
    return faulty


def culprit(outputs: Mapping[str, FloatArray], rows: NDArray[np.bool_]) -> str:
    """Returns a text that names the graph outputs that are not finite, or the values derived from them.

    Args:
        outputs: [B, k] each, by name.
        rows: Rows to check, bool [B].
    """
    names = [name for name, values in outputs.items() if not np.isfinite(values[rows]).all()]
    if names:
        return f"output {names[0]} is not finite"
    return f"the action drawn from {' and '.join(outputs)} is not finite"


def _is_finite(values: FloatArray) -> bool:
    return math.isfinite(np.add.reduce(values, axis=None)) or bool(np.isfinite(values).all())
