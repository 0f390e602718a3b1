"""An evaluation of agents that step independently; it has the interface of a recorder and records no step."""

import time
from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.rollout.agents.interface import EndedAgents
from actor_client.rollout.agents.players import PlayedRound, Player
from actor_client.rollout.assignment import Task
from actor_client.rollout.evaluation import EvaluationRound
from actor_client.rollout.link import BehaviorLink

Index = NDArray[np.int64]


class AgentEvaluationRound(EvaluationRound, PlayedRound):
    """Plays one evaluation with the agents of one behavior id, in any number of environments.

    Args:
        task: The task.
        spec: The behavior's spec.
        link: The link that takes records.
        stale: Environments that are not reset yet; the episodes of their agents began before the evaluation.
        clock: Monotonic seconds.
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
        PlayedRound.__init__(self)
        EvaluationRound.__init__(self, task, spec, link, clock)
        self._stale = set(stale)

    @property
    def agents(self) -> int:
        """Number of agents whose episodes run."""
        return len(self._players)

    def _restart(self) -> None:
        for player in self._players.all():
            player.counts = False

    def finish(self, env: int, batch: EndedAgents, results: NDArray[np.int8] | None = None) -> None:
        """Ends episodes; unknown agents are ignored."""
        self._players.finish(env, batch, results, self._end)
        self.poll()

    def drop_env(self, env: int, reason: str) -> None:
        """Forgets the agents of an environment that was lost or reset; other episodes replace theirs."""
        del reason
        self._stale.discard(env)
        self._quota.lose(sum(player.counts for player in self._players.drop_env(env)))

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
