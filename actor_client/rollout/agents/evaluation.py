"""An evaluation where agents step when they like; to its caller, a recorder that records no step."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import Actions
from actor_client.rollout.agents.agent import unique_number
from actor_client.rollout.agents.interface import AgentBatch, AskingAgents, EndedAgents
from actor_client.rollout.assignment import Task
from actor_client.rollout.episodes import EpisodeRecord
from actor_client.rollout.evaluation import EvaluationRound
from actor_client.rollout.link import BehaviorLink

Index = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _Player:
    """One agent in its episode."""

    episode: int
    revision: int
    first_version: int
    counts: bool
    is_answered: bool = False
    is_usable: bool = True
    steps: int = 0
    total: float = 0.0
    group_total: float = 0.0
    last_reward: float = 0.0
    last_group_reward: float = 0.0

    def complete(self, reward: float, group_reward: float) -> None:
        """The agent shows up again after an action; rewards before the first one belong to none."""
        if not self.is_answered:
            return
        self.is_answered = False
        self.steps += 1
        self.total += reward
        self.group_total += group_reward
        self.last_reward, self.last_group_reward = reward, group_reward


class AgentEvaluationRound(EvaluationRound):
    """Plays one evaluation with the agents of one behavior id, in any number of environments.

    Args:
        task: What is asked for.
        spec: Of the behavior.
        link: Where records go.
        stale: Environments that are not reset yet: their agents are in episodes that began before.
        clock: Monotonic seconds.

    Attributes:
        most_agents: As many agents as there ever were at once.
        in_flight: None: no step needs credit.
    """

    def __init__(
        self,
        task: Task,
        spec: BehaviorSpec,
        link: BehaviorLink,
        *,
        stale: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(task, spec, link, clock)
        self.most_agents = 0
        self.in_flight = 0
        self._stale = set(stale)
        self._players: dict[int, dict[int, _Player]] = {}
        self._waiting: dict[int, _Player] = {}
        self._next_ticket = 0
        self._episodes = 0

    @property
    def agents(self) -> int:
        """Agents whose episodes run."""
        return sum(map(len, self._players.values()))

    def _restart(self) -> None:
        for player in chain.from_iterable(known.values() for known in self._players.values()):
            player.counts = False

    def observe(self, env: int, batch: AskingAgents, *, settings_revision: int = 0) -> Index:
        """Takes what agents report into account; unknown ones begin an episode.

        Returns:
            What `act` must be called with, int64 [n].
        """
        known = self._players.setdefault(env, {})
        first_ticket = self._next_ticket
        for identity in batch.ids.tolist():
            player = known.get(identity)
            if player is None:
                player = known[identity] = self._begin(env, settings_revision)
            self._waiting[self._next_ticket] = player
            self._next_ticket += 1
        self._complete(known, batch)
        self.most_agents = max(self.most_agents, self.agents)
        self.poll()
        return np.arange(first_ticket, self._next_ticket)

    def act(self, slots: Index, actions: Actions) -> None:
        """The agents were answered.

        Args:
            slots: From `observe`.
            actions: One row an agent; not looked at.
        """
        del actions
        for ticket in slots.tolist():
            if (player := self._waiting.pop(ticket, None)) is not None:
                player.is_answered = True

    def finish(self, env: int, batch: EndedAgents) -> None:
        """Ends episodes; agents that are not known are left out."""
        known = self._players.get(env, {})
        self._complete(known, batch)
        for identity, interrupted in zip(batch.ids.tolist(), batch.interrupted.tolist(), strict=True):
            player = known.pop(identity, None)
            if player is not None:
                self._end(env, identity, player, SegmentEnd.TRUNCATED if interrupted else SegmentEnd.TERMINATED)
        self.poll()

    def drop_env(self, env: int, reason: str) -> None:
        """Forgets the agents of an environment that was lost or reset; their episodes are played again."""
        del reason
        self._stale.discard(env)
        gone = set(self._players.pop(env, {}).values())
        self._quota.lose(sum(player.counts for player in gone))
        self._waiting = {ticket: player for ticket, player in self._waiting.items() if player not in gone}

    def add_stats(self, env: int, records: Iterable[object]) -> None:
        """Leaves out what simulators report beside episodes: it would be taken for training."""
        del env, records

    def cut(self) -> None:
        """Sends all records: the evaluation or the actor is about to end."""
        self.flush()

    def _begin(self, env: int, settings_revision: int) -> _Player:
        self._episodes += 1
        version = 0 if self.policy is None else self.policy.version
        counts = env not in self._stale and self._quota.begin()
        return _Player(self._episodes, settings_revision, version, counts=counts)

    def _complete(self, known: dict[int, _Player], batch: AgentBatch) -> None:
        faulty: Sequence[bool] = [False] * len(batch.ids) if batch.faulty is None else batch.faulty.tolist()
        rewards, shared = batch.rewards.tolist(), batch.group_rewards.tolist()
        for identity, reward, group_reward, bad in zip(batch.ids.tolist(), rewards, shared, faulty, strict=True):
            player = known.get(identity)
            if player is not None:
                player.complete(reward, group_reward)
                player.is_usable &= not bad

    def _end(self, env: int, identity: int, player: _Player, end: SegmentEnd) -> None:
        policy = self.policy
        if not player.counts or policy is None:
            return
        if not player.steps:
            self._quota.lose()
            return
        episode = EpisodeRecord(
            agent=unique_number(env, identity),
            env=env,
            episode=player.episode,
            total=player.total,
            group_total=player.group_total,
            length=player.steps,
            end=end,
            last_reward=player.last_reward,
            last_group_reward=player.last_group_reward,
            first_version=player.first_version or policy.version,
            last_version=policy.version,
            settings_revision=player.revision,
        )
        self._finish(episode, is_known=player.is_usable)
