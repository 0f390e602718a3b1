"""What the recorder reads of a message of a simulator. `actor_client.unity.steps` has the real ones."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class AgentBatch(Protocol):
    """n agents of one behavior id in one environment, in one message.

    Rewards are sums since the agent's action before; the first ones of an agent belong to no action.
    """

    @property
    def ids(self) -> NDArray[np.int64]:
        """Of the agents in their environment, [n]."""
        ...

    @property
    def observations(self) -> Sequence[NDArray[Any]]:
        """One array an observation, [n, *shape] each, in the order and dtype of the spec."""
        ...

    @property
    def rewards(self) -> NDArray[np.float32]:
        """[n]."""
        ...

    @property
    def group_ids(self) -> NDArray[np.int64]:
        """Of the groups in their environment, [n]; 0 = none."""
        ...

    @property
    def group_rewards(self) -> NDArray[np.float32]:
        """[n]."""
        ...

    @property
    def faulty(self) -> NDArray[np.bool_] | None:
        """Agents with numbers that were not finite and are replaced by 0, [n]; None = none."""
        ...


class AskingAgents(AgentBatch, Protocol):
    """Agents that ask for actions."""

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        """Allowed choices, 1 = allowed, [n, sum of branches]; None = all."""
        ...


class EndedAgents(AgentBatch, Protocol):
    """Agents whose episodes ended."""

    @property
    def interrupted(self) -> NDArray[np.bool_]:
        """Whether the episode was ended from outside, [n]; else its last state is terminal."""
        ...
