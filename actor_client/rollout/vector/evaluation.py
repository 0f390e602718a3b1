"""An evaluation in environments that are stepped together."""

import time
from collections.abc import Sequence

import numpy as np
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.envs.base import MaskArray, Observations, StepResult
from actor_client.policy.actions import ActingPolicy, Actions, FloatArray, began
from actor_client.policy.noise import Noise
from actor_client.rollout.assignment import Task
from actor_client.rollout.episodes import EpisodeRecord
from actor_client.rollout.evaluation import EvaluationRound
from actor_client.rollout.link import BehaviorLink


class VectorEvaluationRound(EvaluationRound):
    """Plays one evaluation in E environments, with one policy from its first episode to its last.

    Args:
        task: The task.
        spec: The behavior's spec.
        link: The link that takes records.
        agents: E.
        noise: Random numbers of this evaluation.
    """

    def __init__(
        self,
        task: Task,
        spec: BehaviorSpec,
        link: BehaviorLink,
        agents: int,
        noise: Noise,
    ) -> None:
        super().__init__(task, spec, link, time.monotonic)
        self._noise = noise
        self._agents = agents
        self._counts = np.zeros(agents, np.bool_)
        self._returns = np.zeros(agents, np.float64)
        self._lengths = np.zeros(agents, np.int64)
        self._first_versions = np.zeros(agents, np.int64)
        self._numbers = np.zeros(agents, np.int64)
        self._seeds: Sequence[int] = [0] * agents
        self._memory: FloatArray | None = None

    @property
    def agents(self) -> int:
        """Number of environments, E."""
        return self._agents

    def begin(self, seeds: Sequence[int]) -> None:
        """Begins new episodes in all environments; unfinished ones are played again.

        Args:
            seeds: Seeds of the environments, E entries.
        """
        self._quota.lose(int(self._counts.sum()))
        self._seeds = list(seeds)
        self._memory = None
        for env in range(self._agents):
            self._begin(env)

    def act(self, newest: ActingPolicy | None, observations: Observations, masks: MaskArray | None) -> Actions | None:
        """Returns actions for all environments; None while the evaluation waits or has nothing to do.

        Args:
            newest: The newest policy; None before the first.
            observations: Present observations, [E, *shape] each.
            masks: Allowed choices, uint8 [E, sum of branches], or None.

        Raises:
            PolicyUnusable: The policy failed.
        """
        if self.choose(newest) and self.policy is not None:
            self._first_versions[self._lengths == 0] = self.policy.version
        policy = self.policy
        if policy is None or self.is_done or not self._link.may_act(policy):
            return None
        actions = policy.act(observations, masks, self._noise, self._memory)
        self._memory = actions.memory_out
        return actions

    def _restart(self) -> None:
        self._counts[:] = False
        self._memory = None

    def record(self, result: StepResult) -> None:
        """Processes one step of all environments, and sends due data."""
        policy = self.policy
        if policy is None:
            return
        taken = True if result.ignored is None else ~result.ignored
        np.add(self._returns, result.rewards, out=self._returns, where=taken)
        self._lengths += taken
        if self._memory is not None:
            began(self._memory, result.ended, result.ignored)
        for place, env in enumerate(result.ended):
            self._end(env, result, place, policy.version)
        self.poll()

    def _begin(self, env: int) -> None:
        self._counts[env] = self._quota.begin()
        self._returns[env] = 0.0
        self._lengths[env] = 0
        self._numbers[env] += 1
        self._first_versions[env] = 0 if self.policy is None else self.policy.version

    def _end(self, env: int, result: StepResult, place: int, version: int) -> None:
        episode = EpisodeRecord(
            agent=env,
            env=env,
            episode=int(self._numbers[env]),
            total=float(self._returns[env]),
            group_total=0.0,
            length=int(self._lengths[env]),
            end=SegmentEnd(int(result.ends[place])),
            last_reward=float(result.rewards[env]),
            last_group_reward=0.0,
            first_version=int(self._first_versions[env]),
            last_version=version,
            settings_revision=0,
            seed=int(self._seeds[env]),
            infos=result.infos[place],
        )
        if self._counts[env]:
            self._finish(episode)
        self._counts[env] = False
        self._begin(env)
