"""What a policy is to the rollout, and what it answers."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.memory import MemoryForm
from actor_client.policy.noise import Noise

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
MaskArray = NDArray[np.uint8]


class PolicyUnusable(Exception):  # noqa: N818 - says what the policy is, like the classes of rollcast.errors
    """A policy that this actor cannot act with; it keeps the one it has. The message says why."""


class Actions(NamedTuple):
    """What a policy chose for B agents (a tuple, because one is made at each step).

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
        ...

    @property
    def version(self) -> int:
        """Grows by one with each completed update of one generation."""
        ...

    @property
    def memory(self) -> MemoryForm:
        """What it remembers of an agent."""
        ...

    def greedy(self) -> "ActingPolicy":
        """Returns the same policy acting with the mode of its distribution; always the same object."""
        ...

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
        ...
