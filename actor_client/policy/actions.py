"""The policy as the rollout sees it: what it is asked, what it answers and remembers, and whether that is finite."""

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
        stride: It is recorded at every so many rows of a segment, from its first one on; 0 = never.
    """

    size: int = 0
    stride: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of memory for one row of a segment, rounded up, beside those for the segment itself."""
        return -(-self.segment_bytes // self.stride) if self.stride else 0

    @property
    def segment_bytes(self) -> int:
        """Bytes of one memory: a segment has at most one more than it has whole strides."""
        return self.size * np.dtype(np.float32).itemsize


NO_MEMORY: Final = MemoryForm()


def began(memory: FloatArray, ended: Sequence[int], ignored: NDArray[np.bool_] | None) -> FloatArray:
    """Forgets, in place, what is of episodes that are over.

    Args:
        memory: After a step, [E, size].
        ended: Environments whose episodes ended with it.
        ignored: Environments that were only reset by it, bool [E]; None = none.
    """
    if ended:
        memory[list(ended)] = 0.0
    if ignored is not None:
        memory[ignored] = 0.0
    return memory


IntArray = NDArray[np.int32]
MaskArray = NDArray[np.uint8]


class PolicyUnusable(Exception):  # noqa: N818 - says what the policy is, like the classes of rollcast.errors
    """A policy that this actor cannot act with; it keeps the one it has. The message says why."""


class Actions(NamedTuple):
    """Actions of a policy for B agents (a tuple, because one is made at each step).

    Attributes:
        continuous: Raw draws, float32 [B, n]; None for a policy without continuous axes. Recorded.
        discrete: Branch choices, int32 [B, b]; None for a policy without branches. Recorded.
        log_prob: One factor each, continuous axes first, float32 [B, n + b]. Recorded.
        environment_continuous: `continuous` after the policy's action transform, float32 [B, n]. Not recorded.
        memory_in: What was remembered before, float32 [B, m]; None for a policy without memory. Recorded.
        memory_out: What is remembered now, float32 [B, m]. Not recorded.
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


class ActingPolicy(Protocol):
    """A policy as the rollout sees it; `actor_client.policy.runner.Policy` is the real one."""

    @property
    def generation(self) -> int:
        """The start of the learner that made it."""

    @property
    def version(self) -> int:
        """Grows by one with each completed update of one generation."""

    @property
    def memory(self) -> MemoryForm:
        """Form of the memory of an agent."""

    def greedy(self) -> "ActingPolicy":
        """Returns the same policy acting with the mode of its distribution; always the same object."""

    def act(
        self,
        observations: Sequence[NDArray[Any]],
        masks: MaskArray | None,
        noise: Noise,
        memory: FloatArray | None = None,
    ) -> Actions:
        """Returns actions for B agents.

        Args:
            observations: One array an observation, [B, *shape] each, in the order and dtype of the spec.
            masks: uint8 [B, sum of branches], 1 = allowed; None = all allowed.
            noise: Where random numbers come from; it outlives policies, so that a swap does not repeat draws.
            memory: What was remembered, float32 [B, m]; None = nothing, which is zeros. Without memory it is ignored.

        Raises:
            PolicyUnusable: It fails on what is seen, or answers with what is not finite.
        """


LARGEST_OBSERVATION: Final = 1e15
"""A learner refuses rows with larger ones, as it does infinite ones: networks square what they see, in float32."""


def are_numbers(actions: Actions) -> bool:
    """Returns whether all draws and memories are finite.

    Log-probabilities are computed from draws, means and deviations, or from logits; none of these can be NaN or infinite
    without them. A sum costs a third of what a comparison of each does, and a sum that overflows is looked at again.
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
    """Returns which agents see what no policy can act on, bool [B]: NaN, infinity or excess, or no choice allowed.

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
    """Says which of a graph's outputs are not finite, or that what follows from them is not.

    Args:
        outputs: [B, k] each, by name.
        rows: Where to look, bool [B].
    """
    names = [name for name, values in outputs.items() if not np.isfinite(values[rows]).all()]
    if names:
        return f"its output {names[0]} is not finite"
    return f"the draw from its outputs {' and '.join(outputs)} is not finite"


def _is_finite(values: FloatArray) -> bool:
    return math.isfinite(np.add.reduce(values, axis=None)) or bool(np.isfinite(values).all())
