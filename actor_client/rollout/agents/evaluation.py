"""An evaluation of agents that step independently; it has the interface of a recorder and records no step."""

import time
from collections.abc import Callable, Collection, Iterable

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents
from actor_client.rollout.agents.players import Player, Players
from actor_client.rollout.assignment import Task
from actor_client.rollout.evaluation import EvaluationRound
from actor_client.rollout.link import BehaviorLink

Index = NDArray[np.int64]


class AgentEvaluationRound(EvaluationRound):
    """Plays one evaluation with the agents of one behavior id, in any number of environments.

    Args:
        task: The task.
        spec: The behavior's spec.
        link: The link that takes records.
        stale: Environments that are not reset yet; the episodes of their agents began before the evaluation.
        clock: Monotonic seconds.

    Attributes:
        in_flight: Always 0: no step needs credit.
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
        self.in_flight = 0
        self._stale = set(stale)
        self._players = Players()

    @property
    def most_agents(self) -> int:
        """The largest number of agents at one time."""
        return self._players.most

    @property
    def agents(self) -> int:
        """Number of agents whose episodes run."""
        return len(self._players)

    def _restart(self) -> None:
        for player in self._players.all():
            player.counts = False

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

    def finish(self, env: int, batch: EndedAgents, results: NDArray[np.int8] | None = None) -> None:
        """Ends episodes; unknown agents are ignored."""
        self._players.finish(env, batch, results, self._end)
        self.poll()

    def drop_env(self, env: int, reason: str) -> None:
        """Forgets the agents of an environment that was lost or reset; other episodes replace theirs."""
        del reason
        self._stale.discard(env)
        self._quota.lose(sum(player.counts for player in self._players.drop_env(env)))

    def add_stats(self, env: int, records: Iterable[object]) -> None:
        """Ignores statistics of simulators, which would count as statistics of training."""
        del env, records

    def cut(self) -> None:
        """Sends all records: the evaluation or the actor is about to end."""
        self.flush()

    def _begin(self, env: int, identity: int, episode: int, settings_revision: int) -> Player:
        version = 0 if self.policy is None else self.policy.version
        counts = env not in self._stale and self._quota.begin()
        return Player(env, identity, episode, settings_revision, version, counts=counts)

    def _end(self, player: Player, end: SegmentEnd, result: int) -> None:
        policy = self.policy
        if not player.counts or policy is None:
            return
        if not player.steps:
            self._quota.lose()
            return
        self._finish(player.record(end, policy.version, result), is_known=player.is_usable)
