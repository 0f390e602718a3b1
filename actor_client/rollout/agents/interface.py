"""The interface between a simulator and the loop that acts for its agents. `actor_client.unity` implements it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.actions import Actions


class AgentBatch(Protocol):
    """n agents of one behavior id in one environment, in one message.

    Rewards are sums since the agent's action before; the first ones of an agent belong to no action.
    """

    @property
    def ids(self) -> NDArray[np.int64]:
        """Of the agents in their environment, [n]."""

    @property
    def observations(self) -> Sequence[NDArray[Any]]:
        """One array an observation, [n, *shape] each, in the order and dtype of the spec."""

    @property
    def rewards(self) -> NDArray[np.float32]:
        """[n]."""

    @property
    def group_ids(self) -> NDArray[np.int64]:
        """Of the groups in their environment, [n]; 0 = none."""

    @property
    def group_rewards(self) -> NDArray[np.float32]:
        """[n]."""

    @property
    def faulty(self) -> NDArray[np.bool_] | None:
        """Agents with numbers that were not finite and are replaced by 0, [n]; None = none."""


class AskingAgents(AgentBatch, Protocol):
    """Agents that ask for actions."""

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        """Allowed choices, 1 = allowed, [n, sum of branches]; None = all."""


class EndedAgents(AgentBatch, Protocol):
    """Agents whose episodes ended."""

    @property
    def interrupted(self) -> NDArray[np.bool_]:
        """True if the episode was ended from outside, [n]; else its last state is terminal."""


class Simulator(Protocol):
    """One simulator of this process: an environment of its own, with agents that come and go.

    Attributes:
        reset_due: Its next exchange is answered with a reset.
    """

    reset_due: bool

    @property
    def worker(self) -> int:
        """Number of the environment."""

    @property
    def is_running(self) -> bool:
        """True if its agents may report."""


class Exchange(Protocol):
    """One message of a simulator, answered once all agents that ask in it have actions."""

    @property
    def simulator(self) -> Simulator:
        """Sender of the message."""

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior; returns whether all are there now."""

    def answer(self) -> None:
        """Lets the simulator step on with these actions."""

    def answer_reset(self) -> None:
        """Makes the simulator begin again; actions chosen meanwhile are of no use."""


class Observer(Protocol):
    """Follows the agents of one behavior id in the order of what happens, as a recording of demonstrations does."""

    def ended(self, worker: int, ended: EndedAgents) -> None:
        """Takes agents whose episodes ended."""

    def observed(self, worker: int, asking: AskingAgents) -> None:
        """Takes agents that ask, with what came of their last actions."""

    def acted(self, asked: Sequence[tuple[int, AskingAgents]], actions: Actions) -> None:
        """Takes actions, one row an agent, in the order of those who asked."""

    def dropped(self, worker: int) -> None:
        """Forgets the agents of an environment that was lost or reset."""


@dataclass(slots=True, eq=False)
class AgentRequest:
    """The agents of one behavior id in one exchange.

    Attributes:
        exchange: The message.
        behavior_id: The name under which the simulator takes the actions.
        asking: Agents that ask.
        ended: Agents whose episodes ended.
        settings_revision: Of the environment's settings, for episodes that begin here.
        slots: What the recorder calls the agents that ask, int64 [n]; None before it knows of them.
    """

    exchange: Exchange
    behavior_id: str
    asking: AskingAgents
    ended: EndedAgents
    settings_revision: int = 0
    slots: NDArray[np.int64] | None = None

    @property
    def worker(self) -> int:
        """Number of the environment."""
        return self.exchange.simulator.worker

    @property
    def agents(self) -> int:
        """Number of agents that ask, n."""
        return len(self.asking.ids)
