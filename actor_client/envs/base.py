"""The interface of a batch of environments for the rollout."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
MaskArray = NDArray[np.uint8]
Observations = list[NDArray[Any]]
"""One array per observation of the spec, in its order and dtype."""
NEXT_STEP: Final = "NextStep"
SAME_STEP: Final = "SameStep"
"""Kinds of automatic reset of a vector environment; see `actor_client.envs.vector.VectorBatch`."""
NO_ENDS: Final = np.zeros(0, np.uint8)
"""The ends of a step with which no episode ended."""
NO_ENDS.setflags(write=False)
Infos = Mapping[str, float]


class StepResult(NamedTuple):
    """The result of one step of E environments, of which m ended an episode.

    All arrays are new: neither the environment nor a later step modifies them.

    Attributes:
        observations: Observations for the next action, [E, *shape] each; those of the new episode where one ended.
        rewards: float32 [E].
        ended: Environments whose episodes ended, ascending, m entries.
        ends: uint8 [m], TERMINATED or TRUNCATED of `SegmentEnd`; an episode that is both is TERMINATED.
        final_observations: [m, *shape] each, of the ended episodes; None if m = 0.
        final_masks: uint8 [m, sum of branches], with a choice in each branch; None if m = 0 or the batch has no masks.
        infos: Numbers reported with the last step of each ended episode, m entries.
        ignored: bool [E], where the environment ignored the action (it began a new episode instead); None = nowhere.
    """

    observations: Observations
    rewards: FloatArray
    ended: Sequence[int]
    ends: NDArray[np.uint8]
    final_observations: Observations | None
    final_masks: MaskArray | None
    infos: Sequence[Infos]
    ignored: NDArray[np.bool_] | None


class EnvBatch(Protocol):
    """E environments that are stepped together.

    Every method except `close` raises EnvironmentFailed when an environment raises an error or returns a value that its
    spaces do not allow; the batch cannot be used afterwards.
    """

    @property
    def spec(self) -> BehaviorSpec:
        """The spec of the observations and actions."""

    @property
    def num_envs(self) -> int:
        """Number of environments, E."""

    @property
    def active(self) -> int | None:
        """The environment that the last call reached; None if all are called at once."""

    @property
    def action_masks(self) -> MaskArray | None:
        """Allowed choices for the last observations, uint8 [E, sum of branches].

        None = the environments have no masks; this does not change after the first `reset`.
        """

    @property
    def takes_parameters(self) -> bool:
        """True if environment parameters reach the environments."""

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Sets the environment parameters of the episodes that begin from now on."""

    def set_paused(self, *, is_paused: bool) -> None:
        """Tells the environments that an operator has paused the run, or that it continues."""

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins new episodes in all environments and returns the first observations, [E, *shape] each.

        Args:
            seeds: One seed per environment, E entries.
        """

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Takes one action in each environment.

        Args:
            continuous: Environment actions, float32 [E, n]; None without continuous axes.
            discrete: Choices counted from 0 in each branch, int32 [E, b]; None without branches.
        """

    def close(self) -> None:
        """Closes the environments. Never raises; a second call does nothing."""


class WrappedBatch:
    """Passes what a wrapper does not change on to a batch of environments (see `EnvBatch`).

    Args:
        batch: The environments.
    """

    def __init__(self, batch: EnvBatch) -> None:
        self._batch = batch
        self.spec = batch.spec
        self.num_envs = batch.num_envs

    @property
    def active(self) -> int | None:
        """The environment that the last call reached; see `EnvBatch.active`."""
        return self._batch.active

    @property
    def action_masks(self) -> MaskArray | None:
        """Allowed choices for the last observations; see `EnvBatch.action_masks`."""
        return self._batch.action_masks

    @property
    def takes_parameters(self) -> bool:
        """True if parameters reach the environments; see `EnvBatch.takes_parameters`."""
        return self._batch.takes_parameters

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Sets the parameters of later episodes; see `EnvBatch.assign`."""
        self._batch.assign(assignment)

    def set_paused(self, *, is_paused: bool) -> None:
        """Tells the environments of a pause; see `EnvBatch.set_paused`."""
        self._batch.set_paused(is_paused=is_paused)

    def close(self) -> None:
        """Closes the environments; see `EnvBatch.close`."""
        self._batch.close()
