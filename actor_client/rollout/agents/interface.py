"""The interface between a simulator and the loop that acts for its agents.

`actor_client.unity`, `actor_client.godot`, `actor_client.pettingzoo` and `actor_client.boards` implement it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rollcast.unity.finite import zero_what_is_not_finite
from rollcast.v1 import policy_pb2

from actor_client.policy.actions import Actions, MaskArray
from actor_client.rollout.episodes import FinishedGame


class AskingAgents(NamedTuple):
    """n agents of one behavior id in one environment that ask for actions, in one message.

    Rewards are sums since the agent's previous action; the first rewards of an agent belong to no action.

    Attributes:
        ids: Ids of the agents in their environment, int64 [n], unique.
        observations: One array per observation, [n, *shape] each, in the order and dtype of the spec.
        masks: uint8 [n, sum of branches], 1 = allowed, at least one choice per branch; None = all are allowed.
        rewards: float32 [n].
        group_ids: Ids of the agents' groups in their environment, int64 [n]; 0 = none.
        group_rewards: float32 [n].
        faulty: Agents with values that were not finite and were replaced by 0, bool [n]; None = none.
    """

    ids: NDArray[np.int64]
    observations: Sequence[NDArray[Any]]
    masks: NDArray[np.uint8] | None
    rewards: NDArray[np.float32]
    group_ids: NDArray[np.int64]
    group_rewards: NDArray[np.float32]
    faulty: NDArray[np.bool_] | None = None


class EndedAgents(NamedTuple):
    """n agents of one behavior id in one environment whose episodes ended; see `AskingAgents`.

    Attributes:
        ids: int64 [n], unique.
        observations: The last observations, [n, *shape] each.
        interrupted: True if the episode was ended from outside, as by a step limit, bool [n]; otherwise its last state is
            terminal.
        rewards: float32 [n].
        group_ids: int64 [n].
        group_rewards: float32 [n].
        faulty: bool [n] or None.
    """

    ids: NDArray[np.int64]
    observations: Sequence[NDArray[Any]]
    interrupted: NDArray[np.bool_]
    rewards: NDArray[np.float32]
    group_ids: NDArray[np.int64]
    group_rewards: NDArray[np.float32]
    faulty: NDArray[np.bool_] | None = None


AgentBatch = AskingAgents | EndedAgents


class Simulator(Protocol):
    """One simulator of this process: an environment whose agents come and go.

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

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Takes another assignment: its parameters and its seed of episodes."""


class Exchange(Protocol):
    """One message of a simulator, answered once all agents that ask in it have actions."""

    @property
    def simulator(self) -> Simulator:
        """Sender of the message."""

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior; returns whether all actions are present."""

    def answer(self) -> None:
        """Lets the simulator continue with these actions."""

    def answer_reset(self) -> None:
        """Resets the simulator; actions chosen in the meantime are dropped."""


class Observer(Protocol):
    """Follows the agents of one behavior id in the order of events, as a recording of demonstrations does."""

    def ended(self, worker: int, ended: EndedAgents) -> None:
        """Takes agents whose episodes ended."""

    def observed(self, worker: int, asking: AskingAgents) -> None:
        """Takes agents that ask for actions, with the outcome of their last actions."""

    def acted(self, asked: Sequence[tuple[int, AskingAgents]], actions: Actions) -> None:
        """Takes actions, one row per agent, in the order of the asking agents."""

    def dropped(self, worker: int) -> None:
        """Forgets the agents of an environment that was lost or reset."""


@dataclass(slots=True, eq=False)
class AgentRequest:
    """The agents of one behavior id in one exchange.

    Attributes:
        exchange: The message.
        behavior_id: The simulator's name for the behavior.
        asking: Agents that ask for actions.
        ended: Agents whose episodes ended.
        settings_revision: Revision of the environment's settings, for episodes that begin here.
        results: Results of games for the ended agents, as the environment says them: a `GameResult` each, int8 [n];
            None = it says none.
        games: Games of the ended agents, n; None if their moves are not known.
        slots: The recorder's slots of the asking agents, int64 [n]; None before it knows them.
    """

    exchange: Exchange
    behavior_id: str
    asking: AskingAgents
    ended: EndedAgents
    settings_revision: int = 0
    results: NDArray[np.int8] | None = None
    games: Sequence[FinishedGame] | None = None
    slots: NDArray[np.int64] | None = None

    @property
    def worker(self) -> int:
        """Number of the environment."""
        return self.exchange.simulator.worker

    @property
    def agents(self) -> int:
        """Number of asking agents, n."""
        return len(self.asking.ids)


def faulty_rows(*values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Replaces NaN and infinity by 0 in place, and returns the rows that had them, bool [n]; None if there are none.

    Args:
        *values: Arrays [n, ...]; those of integers are left alone.
    """
    found = [rows for each in values if each.dtype.kind == "f" and (rows := zero_what_is_not_finite(each)) is not None]
    return np.logical_or.reduce(found) if found else None


def joined(batches: Sequence[AskingAgents]) -> tuple[Sequence[NDArray[Any]], MaskArray | None]:
    """Returns the joined observations of all agents, [sum of n, *shape] each, and their masks; None = all choices."""
    if len(batches) == 1:
        return batches[0].observations, batches[0].masks
    columns = zip(*(batch.observations for batch in batches), strict=True)
    observations = [np.concatenate(column) for column in columns]
    given = [batch.masks for batch in batches if batch.masks is not None]
    if not given:
        return observations, None
    width = given[0].shape[1]
    masks = [np.ones((len(batch.ids), width), np.uint8) if batch.masks is None else batch.masks for batch in batches]
    return observations, np.concatenate(masks)


def together(batches: Sequence[AskingAgents]) -> AskingAgents:
    """Returns the agents of several messages as one batch; its ids are unique only within each environment."""
    if len(batches) == 1:
        return batches[0]
    observations, masks = joined(batches)
    faulty = None
    if any(batch.faulty is not None for batch in batches):
        faulty = np.concatenate(
            [np.zeros(len(batch.ids), np.bool_) if batch.faulty is None else batch.faulty for batch in batches]
        )
    return AskingAgents(
        np.concatenate([batch.ids for batch in batches]),
        observations,
        masks,
        np.concatenate([batch.rewards for batch in batches]),
        np.concatenate([batch.group_ids for batch in batches]),
        np.concatenate([batch.group_rewards for batch in batches]),
        faulty,
    )
