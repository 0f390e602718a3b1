"""Stop 1 of a step's path: the loop that steps environments with the newest policy."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from rollcast.v1 import policy_pb2

from actor_client.counts import RolloutCounts
from actor_client.envs.base import EnvBatch, StepResult
from actor_client.envs.errors import EnvironmentFailed, EnvironmentFailedTooOften
from actor_client.envs.seeds import checkpoint_seeds, environment_seeds
from actor_client.heartbeat import Heartbeat
from actor_client.policy.actions import ActingPolicy, FloatArray, PolicyUnusable, began
from actor_client.policy.noise import Noise, RoundNoise
from actor_client.rollout.assignment import Task, TaskReader
from actor_client.rollout.evaluation import OTHER_STREAM, evaluation_noise
from actor_client.rollout.failures import REMAKE_PAUSE_SECONDS
from actor_client.rollout.link import BehaviorLink, Link
from actor_client.rollout.vector.environments import RecoverableBatch
from actor_client.rollout.vector.evaluation import VectorEvaluationRound
from actor_client.rollout.vector.recorder import Recorder

SAMPLE_EVERY_STEPS: Final = 16
"""One of this many vector steps is timed. The number need not be prime: environments have no period."""
WAIT_SECONDS: Final = 0.5
"""Longest duration of one wait; `Link.wait` returns earlier when something changes."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutStats:
    """Statistics of a rollout since it began.

    Attributes:
        steps: Environment steps, ignored ones included.
        episodes: Finished episodes.
        env_failures: Number of times that the environments were remade.
        unusable_episodes: Finished episodes that were not reported: their return is NaN or beyond float32.
        seconds: Wall time.
        wait_seconds: Part of the wall time spent waiting for credit, the end of a hold, or the first policy.
    """

    steps: int
    episodes: int
    env_failures: int
    unusable_episodes: int
    seconds: float
    wait_seconds: float

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second of wall time."""
        return self.steps / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """Limits of a rollout.

    Attributes:
        max_steps: Steps after which the rollout ends; 0 = no limit.
        max_episodes: Finished episodes after which the rollout ends; 0 = no limit.
        max_env_failures: See `actor_client.rollout.failures.FailureRate`.
        remake_pause_seconds: See `actor_client.rollout.failures.REMAKE_PAUSE_SECONDS`.
    """

    max_steps: int = 0
    max_episodes: int = 0
    max_env_failures: int = 3
    remake_pause_seconds: float = REMAKE_PAUSE_SECONDS


class RolloutLoop:
    """Steps one batch of environments until the link stops, and records every step.

        loop = RolloutLoop(make_batch, batch, link, lambda: link.declare(batch.spec, 0, batch.num_envs, None))
        stats = loop.run()

    Args:
        make_batch: Remakes the environments after a failure.
        batch: The first environments; the loop closes them.
        link: The session.
        declare: Declares the batch's spec. Called once, after the first successful reset, so that broken environments
            do not define the run's spec.
        limits: Limits of the rollout.
        on_stats: Called every `stats_every_seconds` with the statistics so far.
        stats_every_seconds: Interval of the calls.
        counts: Counts for metrics; must be new.
        heartbeat: Updated with each step; `Link.wait` updates it while waiting.
    """

    def __init__(
        self,
        make_batch: Callable[[], EnvBatch],
        batch: EnvBatch,
        link: Link,
        declare: Callable[[], BehaviorLink],
        *,
        limits: LoopLimits | None = None,
        on_stats: Callable[[RolloutStats], None] | None = None,
        stats_every_seconds: float = 10.0,
        counts: RolloutCounts | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._link = link
        self._declare = declare
        self._behavior: BehaviorLink
        self._limits = limits or LoopLimits()
        self._on_stats = on_stats
        self._stats_every_seconds = stats_every_seconds
        action = batch.spec.action
        sizes = {"continuous_size": action.continuous_size, "logits_size": action.mask_size}
        self._noise = Noise(link.run_seed, link.actor_index, agents=batch.num_envs, **sizes)
        self._round_noise = RoundNoise(link.run_seed, link.actor_index, agents=batch.num_envs, **sizes)
        self._lockstep = LockstepRounds(batch.spec.name, 0)  # no round until the behavior is declared
        self._policy: ActingPolicy | None = None
        self._generation = 0  # of the last acting policy
        self._counts = counts or RolloutCounts()
        self._heartbeat = heartbeat or Heartbeat()
        self._clock = time.monotonic
        self._begun = self._clock()
        self._environments = RecoverableBatch(
            make_batch,
            batch,
            link,
            self._seeds,
            clock=self._clock,
            counts=self._counts,
            max_failures=self._limits.max_env_failures,
            pause_seconds=self._limits.remake_pause_seconds,
        )
        self._stats_due = self._clock() + stats_every_seconds
        self._vector_steps = 0
        self._episodes = 0
        self._memory: FloatArray | None = None
        self._recorder: Recorder | None = None
        self._tasks = TaskReader()
        self._task = Task()
        self._assignment: policy_pb2.Assignment | None = None
        self._evaluation: VectorEvaluationRound | None = None
        self._evaluations = 0

    @property
    def environments(self) -> RecoverableBatch:
        """The environments, so that a watch can follow their calls."""
        return self._environments

    @property
    def stats(self) -> RolloutStats:
        """Statistics so far."""
        return RolloutStats(
            steps=self._vector_steps * self._environments.num_envs,
            episodes=self._episodes,
            env_failures=self._environments.failures,
            unusable_episodes=self._recorder.unusable_episodes if self._recorder is not None else 0,
            seconds=self._clock() - self._begun,
            wait_seconds=self._counts.waited_seconds,
        )

    def run(self) -> RolloutStats:
        """Steps until the link stops or a limit is reached; then sends the recorded data and closes the environments.

        Raises:
            EnvironmentFailedTooOften: The environments failed too often.
            PolicyUnusable: A policy failed on the observations, and no other policy is available.
        """
        try:
            recorder = self._begin()
            if recorder is not None:
                self._play(recorder)
        except EnvironmentFailedTooOften:
            if self._recorder is not None:
                self._recorder.flush()
            raise
        finally:
            self._environments.close()
        return self.stats

    def _play(self, recorder: Recorder) -> None:
        """Steps until the link stops or a limit is reached, and sends the recorded data.

        Raises:
            EnvironmentFailedTooOften: The environments failed too often.
            PolicyUnusable: A policy failed on the observations, and no other policy is available.
        """
        while not self._link.stopping and not self._is_done():
            self._follow_link(recorder)
            try:
                self._follow_assignment(recorder)
                self._advance(recorder)
            except EnvironmentFailed as failure:
                self._counts.env_discarded_steps += recorder.discard_open("env_error")
                self._counts.episodes["env_error"] += self._environments.num_envs
                self._recover(failure, recorder)
        self._end(recorder)

    def _begin(self) -> Recorder | None:
        """Resets the environments for the first time and declares their spec; None if the link stops first.

        Only after a reset is it known whether they have masks.
        """
        try:
            self._assign()
            self._reset()
        except EnvironmentFailed as failure:
            if not self._recover(failure, None):
                return None
        self._behavior = self._declare()
        self._lockstep = LockstepRounds(self._behavior.behavior, self._behavior.team)
        environments = self._environments
        masked = environments.keep_masks()
        self._recorder = Recorder(environments.spec, self._behavior, environments.num_envs, masked=masked)
        self._recorder.assign(environments.revision)
        self._recorder.begin(self._seeds())
        return self._recorder

    def _follow_link(self, recorder: Recorder) -> None:
        """Applies a new session or a new policy between two steps."""
        if self._behavior.session_lost:
            # Counts in the books of the lost session; begin_session opens new ones.
            recorder.discard("session_lost")
            self._behavior.begin_session()
        policy = self._behavior.take_policy()
        if policy is not None:
            self._swap(policy, recorder)

    def _swap(self, policy: ActingPolicy, recorder: Recorder) -> None:
        """Switches to another policy for the next step."""
        recorder.swap(
            policy.generation, policy.version, self._environments.observations, self._environments.masks, policy.memory
        )
        if self._generation != policy.generation:
            self._memory = None
        self._policy, self._generation = policy, policy.generation

    def _refuse(self, why: PolicyUnusable, recorder: Recorder) -> None:
        """Refuses a policy that cannot act on the observations; the environments wait for another.

        Raises:
            PolicyUnusable: In lock-step, where no other version may act.
        """
        if self._lockstep.is_on:
            raise why
        self._policy = None
        policy = self._behavior.refuse(why)
        if policy is not None:
            self._swap(policy, recorder)

    def _follow_assignment(self, recorder: Recorder) -> None:
        """Applies environment parameters and begins the newest task, between two steps.

        An evaluation begins and ends with a reset of the environments, so that no episode is partly in it. Earlier
        recorded data is sent first.

        Raises:
            EnvironmentFailed: The environments could not be reset.
        """
        if (assignment := self._assign()) is not None:
            recorder.assign(self._environments.revision)
            resets = assignment.reset == policy_pb2.RESET_MODE_NOW and not assignment.lockstep_quota_steps
            if resets and self._evaluation is None:  # a round of lock-step and an evaluation reset by themselves
                recorder.discard_open("reset")
                self._reset()
                recorder.begin(self._seeds())
        behavior = self._behavior
        task = self._tasks.of(self._link.assignment, behavior.behavior, behavior.team)
        if task == self._task:
            return
        before, self._task = self._task, task
        _log.info("assignment", behavior=behavior.behavior, **task.words())
        if not before.evaluates:
            recorder.cut(self._environments.observations, self._environments.masks)
        if task.evaluates:
            self._begin_evaluation(task)
        elif before.evaluates:
            self._end_evaluation(recorder)

    def _assign(self) -> policy_pb2.Assignment | None:
        """Applies the environment parameters of a new assignment, and returns it; None if there is none.

        Raises:
            EnvironmentFailed: The environments refused the parameters.
        """
        assignment = self._link.assignment
        if assignment is None or assignment is self._assignment:
            return None
        self._assignment = assignment
        self._environments.assign(assignment)
        return assignment

    def _begin_evaluation(self, task: Task) -> None:
        """Begins an evaluation."""
        link, spec, agents = self._link, self._environments.spec, self._environments.num_envs
        noise = evaluation_noise(link.run_seed, link.actor_index, spec, agents)
        self._evaluation = VectorEvaluationRound(task, spec, self._behavior, agents, noise)
        self._reset()
        self._evaluation.begin(self._seeds())

    def _end_evaluation(self, recorder: Recorder) -> None:
        """Returns to training, with new episodes."""
        if self._evaluation is not None:
            self._evaluation.flush()
        self._evaluation = None
        self._evaluations += 1
        self._reset()
        recorder.begin(self._seeds())

    def _advance(self, recorder: Recorder) -> None:
        """Takes one step, or waits.

        Raises:
            EnvironmentFailed: The environments failed.
            PolicyUnusable: A policy failed in an evaluation, or in lock-step.
        """
        policy = self._policy
        if self._evaluation is not None:
            self._evaluation_step(self._evaluation, recorder)
        elif policy is not None and self._may_step(policy, recorder):
            try:
                self._step(policy.greedy() if self._task.deterministic else policy, recorder)
            except PolicyUnusable as why:
                self._refuse(why, recorder)
                return
            if (number := self._lockstep.stepped()) > 0:
                recorder.end_round(number, self._environments.observations, self._environments.masks)
        else:
            self._wait(recorder)

    def _may_step(self, policy: ActingPolicy, recorder: Recorder) -> bool:
        """Returns whether a step may be taken; begins the round of lock-step that is due.

        Raises:
            EnvironmentFailed: The environments could not be reset for the round.
        """
        if self._task.idles or not self._behavior.may_step(self._environments.num_envs):
            return False
        self._lockstep.follow(self._link.assignment)
        begun = self._lockstep.begin(policy)
        if begun is not None:
            self._round_noise.begin(begun.version)
            self._noise = self._round_noise
            if begun.resets:
                recorder.discard_open("reset")
                self._reset()
                recorder.begin(self._seeds())
        return not self._lockstep.is_waiting

    def _evaluation_step(self, evaluation: VectorEvaluationRound, recorder: Recorder) -> None:
        actions = evaluation.act(self._policy, self._environments.observations, self._environments.masks)
        if actions is None:
            self._wait(recorder)
            return
        result = self._environments.step(actions)
        evaluation.record(result)
        self._took(result)
        if self._vector_steps % SAMPLE_EVERY_STEPS == 0:
            self._report(self._clock())

    def _end(self, recorder: Recorder) -> None:
        """Sends all data, because the actor is about to stop."""
        if self._evaluation is not None:
            self._evaluation.flush()
            recorder.flush()
        else:
            recorder.cut(self._environments.observations, self._environments.masks)

    def _step(self, policy: ActingPolicy, recorder: Recorder) -> None:
        """Steps all environments; occasionally measures the time and reports."""
        is_timed, clock = self._vector_steps % SAMPLE_EVERY_STEPS == 0, self._clock
        begun = clock() if is_timed else 0.0
        environments = self._environments
        observations, masks = environments.observations, environments.masks
        actions = policy.act(observations, masks, self._noise, self._memory)
        acted = clock() if is_timed else 0.0
        result = environments.step(actions)
        stepped = clock() if is_timed else 0.0
        recorder.record(observations, masks, actions, result, environments.masks)
        if actions.memory_out is not None:
            self._memory = began(actions.memory_out, result.ended, result.ignored)
        if is_timed:
            self._counts.act_seconds.add(acted - begun)
            self._counts.env_step_seconds.add(stepped - acted)
            self._counts.record_seconds.add(clock() - stepped)
        self._took(result)
        if is_timed:
            self._report(stepped)

    def _took(self, result: StepResult) -> None:
        """Counts a step of all environments."""
        self._vector_steps += 1
        self._counts.env_steps += self._environments.num_envs
        if result.ended:
            self._episodes += len(result.ended)
            self._counts.ended(result.ends.tolist())
        self._heartbeat.beat()

    def _report(self, now: float) -> None:
        if self._on_stats is not None and now >= self._stats_due:
            self._stats_due = now + self._stats_every_seconds
            self._on_stats(self.stats)

    def _wait(self, recorder: Recorder) -> None:
        """Sends closed segments, since no others will join them soon, and waits for the connection.

        Open segments end too once the learner needs no more steps for its update.

        Raises:
            EnvironmentFailed: The environments failed when they were told of a pause.
        """
        self._environments.follow_pause(is_paused=self._behavior.is_paused)
        if self._behavior.has_used_quota:
            recorder.cut(self._environments.observations, self._environments.masks)
        else:
            recorder.flush()
        reason = "hold" if self._lockstep.is_waiting else self._behavior.missing
        self._counts.waiting = reason, self._clock()
        self._link.wait(WAIT_SECONDS)
        now = self._clock()
        self._counts.waited(now)
        self._report(now)

    def _recover(self, failure: EnvironmentFailed, recorder: Recorder | None) -> bool:
        """Continues with remade environments, unless the link stops; returns whether they work again.

        Raises:
            EnvironmentFailedTooOften: They fail too often.
        """
        is_back = self._environments.recover(failure, _nothing if recorder is None else recorder.flush)
        self._memory = None
        if is_back and self._evaluation is not None:
            self._evaluation.begin(self._seeds())
        elif is_back and recorder is not None:
            recorder.begin(self._seeds())
        return is_back

    def _reset(self) -> None:
        self._memory = None
        self._environments.reset()

    def _seeds(self) -> list[int]:
        """Returns new seeds after each failure and evaluation, so that a fault of one seed does not repeat for ever.

        All evaluations use the same seeds, so that their results differ only by the policy.
        """
        link, envs = self._link, self._environments.num_envs
        if self._lockstep.is_on:
            checkpoint = self._lockstep.checkpoint
            return checkpoint_seeds(link.run_seed, link.actor_index, envs, checkpoint, life=self._environments.failures)
        life = self._environments.failures + self._evaluations
        if self._evaluation is not None:
            life = OTHER_STREAM + self._environments.failures_in_row
        return environment_seeds(link.run_seed, link.actor_index, envs, life=life)

    def _is_done(self) -> bool:
        limits = self._limits
        steps = self._vector_steps * self._environments.num_envs
        return (0 < limits.max_steps <= steps) or (0 < limits.max_episodes <= self._episodes)


def _nothing() -> None:
    """Does nothing, because no data is recorded yet."""


@dataclass(frozen=True, slots=True)
class LockstepRound:
    """One round of lock-step, as the learner requests it.

    Attributes:
        number: Number of the round, from 1; 0 = wait for a round.
        quota_steps: Steps of each agent in the round.
        version: Version of the acting policy.
        checkpoint: The round after which the last checkpoint was saved; seeds derive from it.
        resets: Environments are reset before the round.
    """

    number: int
    quota_steps: int
    version: int
    checkpoint: int
    resets: bool


class LockstepRounds:
    """Tracks the present round and its progress. Lock-step is off until an assignment has a quota, and then stays on.

    Args:
        behavior: The name, without a team.
        team: The team.
    """

    def __init__(self, behavior: str, team: int) -> None:
        self._behavior = behavior
        self._team = team
        self._assignment: policy_pb2.Assignment | None = None
        self._asked: LockstepRound | None = None
        self._is_playing = False
        self._taken_steps = 0

    @property
    def is_on(self) -> bool:
        """True if the run is in lock-step."""
        return self._asked is not None

    @property
    def is_waiting(self) -> bool:
        """True if the next step belongs to a round that has not begun."""
        return self.is_on and not self._is_playing

    @property
    def checkpoint(self) -> int:
        """The checkpoint from which environment seeds derive; 0 before the first round."""
        return 0 if self._asked is None else self._asked.checkpoint

    def follow(self, assignment: policy_pb2.Assignment | None) -> None:
        """Applies an assignment; a newer one ends the present round at any point."""
        if assignment is self._assignment:
            return
        self._assignment = assignment
        self._is_playing = False
        self._asked = None if assignment is None else self._read(assignment)

    def begin(self, policy: ActingPolicy) -> LockstepRound | None:
        """Begins and returns the round that waits for this policy; None if there is none.

        Args:
            policy: The acting policy, of the learner's present start.
        """
        asked = self._asked
        if asked is None or self._is_playing or not asked.number or asked.version != policy.version:
            return None
        self._is_playing = True
        self._taken_steps = 0
        return asked

    def stepped(self) -> int:
        """Counts a step of all agents; returns the round's number after its last step, otherwise 0."""
        if self._asked is None or not self._is_playing:
            return 0
        self._taken_steps += 1
        if self._taken_steps < self._asked.quota_steps:
            return 0
        number = self._asked.number
        self._is_playing = False
        self._asked = LockstepRound(
            0, self._asked.quota_steps, self._asked.version, self._asked.checkpoint, resets=False
        )
        return number

    def _read(self, assignment: policy_pb2.Assignment) -> LockstepRound | None:
        if not assignment.lockstep_quota_steps:
            return None
        versions = [
            part.lockstep_version
            for part in assignment.behaviors
            if (part.behavior, part.team) == (self._behavior, self._team)
        ]
        return LockstepRound(
            number=assignment.lockstep_round if versions else 0,  # a round needs its version
            quota_steps=assignment.lockstep_quota_steps,
            version=versions[0] if versions else 0,
            checkpoint=assignment.lockstep_checkpoint,
            resets=assignment.reset == policy_pb2.RESET_MODE_NOW,
        )
