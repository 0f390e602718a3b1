"""Agents whose steps are not recorded: what each has done in its episode."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd

from actor_client.policy.actions import ActingPolicy, Actions, FloatArray
from actor_client.rollout.agents.agent import unique_number
from actor_client.rollout.agents.interface import AgentBatch, AskingAgents, EndedAgents
from actor_client.rollout.assignment import Seat
from actor_client.rollout.episodes import UNKNOWN, EpisodeRecord

Index = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class AgentEpisode:
    """One agent in its episode.

    Attributes:
        env: Number of the environment.
        identity: Id of the agent in its environment.
        episode: Number of the episode.
        revision: Revision of the environment's settings.
        first_version: Version that chose the first action.
        counts: Whether the episode counts.
        seat: The part in a match; None outside of matches.
        is_usable: Whether the return is known.
        steps: Steps of the episode.
        policy: The policy with which it plays; None before its first action.
        memory: Memory after the last step, float32 [m]; None before the first, or without memory.
        memory_of: Generation of the policy whose memory it is.
    """

    env: int
    identity: int
    episode: int
    revision: int
    first_version: int = 0
    counts: bool = True
    seat: Seat | None = None
    is_answered: bool = False
    is_usable: bool = True
    steps: int = 0
    total: float = 0.0
    group_total: float = 0.0
    last_reward: float = 0.0
    last_group_reward: float = 0.0
    policy: ActingPolicy | None = None
    memory: FloatArray | None = None
    memory_of: int = 0

    @property
    def has_acted(self) -> bool:
        """True if it was answered in this episode."""
        return self.is_answered or self.steps > 0

    def complete(self, reward: float, group_reward: float) -> bool:
        """Completes a step when the agent reports again; rewards before its first action are ignored.

        Returns:
            Whether a step was completed.
        """
        if not self.is_answered:
            return False
        self.is_answered = False
        self.steps += 1
        self.total += reward
        self.group_total += group_reward
        self.last_reward, self.last_group_reward = reward, group_reward
        return True

    def record(self, end: SegmentEnd, last_version: int, result: int = UNKNOWN) -> EpisodeRecord:
        """Returns the record of the episode, which has ended."""
        return EpisodeRecord(
            agent=unique_number(self.env, self.identity),
            env=self.env,
            episode=self.episode,
            total=self.total,
            group_total=self.group_total,
            length=self.steps,
            end=end,
            last_reward=self.last_reward,
            last_group_reward=self.last_group_reward,
            first_version=self.first_version or last_version,
            last_version=last_version,
            settings_revision=self.revision,
            seat=self.seat,
            result=result,
        )


Begin: TypeAlias = Callable[[int, int, int, int], AgentEpisode]
"""Returns the player of a new agent: environment, id, number of the episode, revision of the settings."""
End: TypeAlias = Callable[[AgentEpisode, SegmentEnd, int], None]
"""Takes a player whose episode ended, the kind of end, and the result that its environment says."""


class Players:
    """All agents of one behavior id that play without being recorded, in any number of environments.

    Attributes:
        most: The largest number of agents at one time.
        in_flight: Agents that were answered and have not reported again.
        steps: Completed steps of all agents.
    """

    def __init__(self) -> None:
        self._known: dict[int, dict[int, AgentEpisode]] = {}
        self._waiting: dict[int, AgentEpisode] = {}
        self._next_ticket = 0
        self._episodes = 0
        self.most = 0
        self.in_flight = 0
        self.steps = 0

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def all(self) -> list[AgentEpisode]:
        """Returns all agents with running episodes."""
        return list(chain.from_iterable(known.values() for known in self._known.values()))

    def get(self, env: int, identity: int) -> AgentEpisode:
        """Returns an agent with a running episode."""
        return self._known[env][identity]

    def observe(self, env: int, batch: AskingAgents, settings_revision: int, begin: Begin) -> Index:
        """Processes agents' reports; an unknown agent begins an episode.

        Args:
            env: Their environment.
            batch: The reports.
            settings_revision: Revision of its settings.
            begin: Makes the player of a new agent.

        Returns:
            Slots for `act`, int64 [n].
        """
        known = self._known.setdefault(env, {})
        first_ticket = self._next_ticket
        for identity in batch.ids.tolist():
            player = known.get(identity)
            if player is None:
                self._episodes += 1
                player = known[identity] = begin(env, identity, self._episodes, settings_revision)
            self._waiting[self._next_ticket] = player
            self._next_ticket += 1
        self._complete(known, batch)
        self.most = max(self.most, len(self))
        return np.arange(first_ticket, self._next_ticket)

    def act(self, slots: Index) -> None:
        """Notes that agents were answered.

        Args:
            slots: Result of `observe`.
        """
        for ticket in slots.tolist():
            if (player := self._waiting.pop(ticket, None)) is not None and not player.is_answered:
                player.is_answered = True
                self.in_flight += 1

    def finish(self, env: int, batch: EndedAgents, results: NDArray[np.int8] | None, end: End) -> None:
        """Ends episodes; unknown agents are ignored.

        Args:
            env: Their environment.
            batch: Their last reports.
            results: What the environment says of them, [n]; None if it says nothing.
            end: Called with each player.
        """
        known = self._known.get(env, {})
        self._complete(known, batch)
        said = [UNKNOWN] * len(batch.ids) if results is None else results.tolist()
        for identity, interrupted, result in zip(batch.ids.tolist(), batch.interrupted.tolist(), said, strict=True):
            player = known.pop(identity, None)
            if player is not None:
                end(player, SegmentEnd.TRUNCATED if interrupted else SegmentEnd.TERMINATED, result)

    def drop_env(self, env: int) -> list[AgentEpisode]:
        """Forgets the agents of an environment that was lost or reset, and returns them."""
        gone = list(self._known.pop(env, {}).values())
        self.in_flight -= sum(player.is_answered for player in gone)
        lost = set(gone)
        self._waiting = {ticket: player for ticket, player in self._waiting.items() if player not in lost}
        return gone

    def _complete(self, known: dict[int, AgentEpisode], batch: AgentBatch) -> None:
        faulty: Sequence[bool] = [False] * len(batch.ids) if batch.faulty is None else batch.faulty.tolist()
        rewards, shared = batch.rewards.tolist(), batch.group_rewards.tolist()
        for identity, reward, group_reward, bad in zip(batch.ids.tolist(), rewards, shared, faulty, strict=True):
            player = known.get(identity)
            if player is not None:
                completed = player.complete(reward, group_reward)
                self.in_flight -= completed
                self.steps += completed
                player.is_usable &= not bad


class PlayedRound(ABC):
    """Plays episodes with the agents of one behavior id; has a recorder's interface and records no step.

    Attributes:
        in_flight: Always 0: no step needs credit.
    """

    in_flight = 0

    def __init__(self) -> None:
        self._players = Players()

    @property
    def most_agents(self) -> int:
        """The largest number of agents at one time."""
        return self._players.most

    def observe(self, env: int, batch: AskingAgents, *, settings_revision: int = 0) -> Index:
        """Processes agents' reports; an unknown agent begins an episode.

        Returns:
            Slots for `act`, int64 [n].
        """
        slots = self._players.observe(env, batch, settings_revision, self._begin)
        self.poll()
        return slots

    def act(self, slots: Index, actions: Actions) -> None:
        """Notes that the agents were answered.

        Args:
            slots: Result of `observe`.
            actions: One row per agent; ignored.
        """
        del actions
        self._players.act(slots)

    def add_stats(self, env: int, records: Iterable[object]) -> None:
        """Ignores statistics of simulators: learning agents report them, and none counts as one of training."""
        del env, records

    def cut(self) -> None:
        """Sends everything: the round or the actor is about to end."""
        self.flush()

    @abstractmethod
    def poll(self) -> None:
        """Sends what is due."""

    @abstractmethod
    def flush(self) -> None:
        """Sends everything."""

    @abstractmethod
    def _begin(self, env: int, identity: int, episode: int, settings_revision: int) -> AgentEpisode:
        """Returns the player of a new agent."""
