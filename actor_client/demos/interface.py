"""What a policy is that acts without a learner."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from actor_client.envs.base import FloatArray, IntArray, MaskArray, Observations


class Chosen(NamedTuple):
    """What E agents do.

    Attributes:
        continuous: environment actions, float32 [E, n]; None without axes.
        discrete: choices counted from 0, int32 [E, b]; None without branches.
    """

    continuous: FloatArray | None
    discrete: IntArray | None


class LocalPolicy(Protocol):
    """A policy as the loop without a learner sees it."""

    def act(self, observations: Observations, masks: MaskArray | None) -> Chosen:
        """Returns what E agents do.

        Args:
            observations: one array an observation of the spec, [E, *shape] each.
            masks: uint8 [E, sum of branches], 1 = allowed; None = all are.

        Raises:
            ActorError: it cannot.
        """
        ...

    def ended(self, agents: Sequence[int]) -> None:
        """These agents begin a new episode."""
        ...
