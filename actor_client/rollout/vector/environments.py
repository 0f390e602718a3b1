"""The environments of a loop: their observations, and their recovery after a failure."""

import gc
import os
import sys
import traceback
from collections.abc import Callable
from typing import Final

import structlog
from rollcast.specs import mismatches
from rollcast.v1 import policy_pb2

from actor_client.counts import RolloutCounts
from actor_client.envs.base import EnvBatch, MaskArray, Observations, StepResult
from actor_client.envs.errors import EnvironmentFailed, UnknownEnvironment, UnsupportedSpace
from actor_client.policy.actions import Actions
from actor_client.rollout.failures import FailureLog, FailureRate
from actor_client.rollout.link import Link

STEP: Final = "step()"
RESET: Final = "reset()"
CLOSE: Final = "close()"
CONSTRUCTION: Final = "construction"
PAUSE: Final = "on_paused()"
RESUMPTION: Final = "on_resumed()"

DONE: Final = "it has stepped to the end"
_NO_WAY_IN: Final = "the environment has no method set_parameters, and its reset() takes no options at each episode"

_log = structlog.get_logger(__name__)


class RecoverableBatch:
    """A batch of environments that is remade after each failure.

    Args:
        make_batch: Remakes the environments.
        batch: The first environments; closed by this object.
        link: The session's link, which may stop the recovery.
        seeds: Returns the seed of each environment, at each reset.
        clock: Monotonic seconds.
        counts: Counts failures.
        max_failures: See `FailureRate`.
        pause_seconds: See `REMAKE_PAUSE_SECONDS`.

    Attributes:
        spec: The declared spec, of the first environments.
        num_envs: Number of environments, E.
        observations: Present observations; empty before the first reset.
        masks: Allowed choices; None = all.
        steps: Steps taken by every environment.
        calls: Number of calls begun.
        revision: Revision of the environment parameters of episodes that begin now; 0 = none reach the environments.
        call: The present call, one of STEP, RESET, CLOSE, CONSTRUCTION, PAUSE and RESUMPTION; empty between two calls.
        ending: Why the environments are closed for the last time; empty before.
    """

    def __init__(
        self,
        make_batch: Callable[[], EnvBatch],
        batch: EnvBatch,
        link: Link,
        seeds: Callable[[], list[int]],
        *,
        clock: Callable[[], float],
        counts: RolloutCounts,
        max_failures: int,
        pause_seconds: float,
    ) -> None:
        self._make_batch = make_batch
        self._batch = batch
        self._link = link
        self._seeds = seeds
        self._clock = clock
        self._counts = counts
        self._rate = FailureRate(max_failures, pause_seconds)
        self._log = FailureLog(counts)
        self.spec = batch.spec
        self.num_envs = batch.num_envs
        self._is_masked: bool | None = None
        self.observations: Observations = []
        self.masks: MaskArray | None = None
        self.steps = 0
        self.calls = 0
        self.call = ""
        self.ending = ""
        self.revision = 0
        self._process = os.getpid()
        self._is_paused = False
        self._assignment: policy_pb2.Assignment | None = None

    @property
    def failures(self) -> int:
        """Number of failures."""
        return self._log.failures

    @property
    def failures_in_row(self) -> int:
        """Number of failures since the last successful step."""
        return self._rate.in_row(self.steps)

    @property
    def active(self) -> int | None:
        """The environment that the present call has reached; None if all are called at once."""
        return self._batch.active

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Sets the environment parameters of the episodes that begin from now on.

        Raises:
            EnvironmentFailed: The environments refused them.
        """
        if self._assignment is not None and self._assignment.settings_revision == assignment.settings_revision:
            return
        is_first, self._assignment = self._assignment is None, assignment
        names = sorted(assignment.environment_parameters)
        if not names:
            return
        if self._batch.takes_parameters:
            self.revision = assignment.settings_revision
            self._batch.assign(assignment)
        elif is_first:
            _log.warning("environment_parameters_not_applied", parameters=", ".join(names), reason=_NO_WAY_IN)

    def follow_pause(self, *, is_paused: bool) -> None:
        """Tells the environments of the begin and of the end of a pause, each once.

        Raises:
            EnvironmentFailed: They failed.
        """
        if is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        self._calls(PAUSE if is_paused else RESUMPTION)
        try:
            self._batch.set_paused(is_paused=is_paused)
        finally:
            self.call = ""

    def reset(self) -> None:
        """Begins an episode in all environments.

        Raises:
            EnvironmentFailed: The environments cannot be reset.
        """
        self.follow_pause(is_paused=False)  # the pause may end between two looks
        self._calls(RESET)
        try:
            self.observations = self._batch.reset(self._seeds())
        finally:
            self.call = ""
        self.masks = self._batch.action_masks

    def keep_masks(self) -> bool:
        """Notes and returns, after the first reset, whether there are masks; this must not change later."""
        self._is_masked = self.masks is not None
        return self._is_masked

    def step(self, actions: Actions) -> StepResult:
        """Steps all environments.

        Raises:
            EnvironmentFailed: The environments failed.
        """
        if self._is_paused:
            self.follow_pause(is_paused=False)
        self._calls(STEP)
        try:
            result = self._batch.step(actions.environment_continuous, actions.discrete)
        finally:
            self.call = ""
        self.observations, self.masks = result.observations, self._batch.action_masks
        self.steps += 1
        return result

    def close(self, *, is_last: bool = True) -> None:
        """Closes the environments.

        Args:
            is_last: Others are not made; an error that ends the actor passes through.
        """
        self._end_fork()
        if is_last:
            self.ending = str(sys.exception() or DONE)
        self._calls(CLOSE)
        self._batch.close()
        gc.collect()  # now, while the watch follows the call, and not at some time: an environment may have a `__del__`
        self.call = ""

    def _end_fork(self) -> None:
        """Ends a process that the environment's code forked, and that came back with an error: it is no second actor."""
        if os.getpid() != self._process:
            traceback.print_exc()
            os._exit(1)

    def _calls(self, call: str) -> None:
        """Notes the start of a call, for the watch."""
        self.calls += 1
        self.call = call

    def recover(self, failure: EnvironmentFailed, flush: Callable[[], None]) -> bool:
        """Remakes the environments until they can be reset, or the link stops; returns whether they were reset.

        A stopped link ends the recovery without an error: the cause that ends an actor often ends its simulators too.

        Args:
            failure: The failure.
            flush: Sends the recorded data before a pause.

        Raises:
            EnvironmentFailedTooOften: The environments still fail.
        """
        self._end_fork()
        while True:
            self._count(failure)
            failure.forget()
            self.close(is_last=False)
            flush()
            self._pause()
            if self._link.stopping:
                return False
            try:
                self._remake()
            except EnvironmentFailed as next_failure:
                failure = next_failure
                continue
            return True

    def _count(self, failure: EnvironmentFailed) -> None:
        """Counts and logs a failure, with its traceback unless the same one was logged last.

        Raises:
            EnvironmentFailedTooOften: They fail too often.
        """
        self._rate.failed(self.steps)
        discarded = self._counts.env_discarded_steps
        steps = self.steps * self.num_envs
        traceback = self._log.add(failure, self.failures_in_row, discarded_steps=discarded, steps=steps)
        if not self._link.stopping:
            self._rate.check(failure, traceback)

    def _pause(self) -> None:
        """Waits, longer after each consecutive failure; returns early if the link stops."""
        until = self._clock() + self._rate.pause_seconds
        while not self._link.stopping and (left_seconds := until - self._clock()) > 0:
            self._link.wait(left_seconds)

    def _remake(self) -> None:
        """Remakes and resets the environments.

        Raises:
            EnvironmentFailed: They cannot be made or reset, or differ from the first ones.
        """
        self._calls(CONSTRUCTION)
        try:
            self._batch, self._is_paused = self._make_batch(), False
            if self.revision and self._assignment is not None:
                self._batch.assign(self._assignment)
        except (UnknownEnvironment, UnsupportedSpace) as error:  # making them worked before and may work again
            raise EnvironmentFailed(None, error.message, traceback=error.traceback) from error
        finally:
            self.call = ""
        # Rows of other spaces would not match the declared ones.
        differences = mismatches(self.spec, self._batch.spec)
        if self._batch.num_envs != self.num_envs:
            differences.append(f"num_envs: run {self.num_envs}, actor {self._batch.num_envs}")
        if differences:
            raise EnvironmentFailed(None, f"remade with other spaces than before: {'; '.join(differences)}")
        self.reset()
        # If masks appeared or disappeared, rows would be trained with wrong probabilities.
        if self._is_masked is not None and self._is_masked != (self.masks is not None):
            change = "without" if self._is_masked else "with"
            raise EnvironmentFailed(None, f"remade {change} action masks, unlike the first one")
