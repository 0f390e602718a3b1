"""The environments of a loop: what they show, and how they are remade after a failure."""

from collections.abc import Callable
from typing import Final

import structlog
from rollcast.specs import mismatches

from actor_client.counts import RolloutCounts
from actor_client.envs.base import EnvBatch, MaskArray, Observations, StepResult
from actor_client.envs.errors import EnvironmentFailed, EnvironmentFailedTooOften, UnknownEnvironment, UnsupportedSpace
from actor_client.logs import Notices
from actor_client.policy.actions import Actions
from actor_client.rollout.link import Link

REMAKE_PAUSE_SECONDS: Final = 0.25
"""Pause before environments are remade, doubled with each failure in a row: a simulator may need a moment to end."""
LONGEST_REMAKE_PAUSE_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)


class RecoverableBatch:
    """One batch of environments, remade whenever it fails.

    Args:
        make_batch: Makes the environments again.
        batch: The first ones; closed by this object.
        link: The session, which may stop and is waited with.
        seeds: Returns the seed of each environment, at each reset.
        clock: Monotonic seconds.
        counts: Where failures are counted.
        max_failures: So many without a good step between are too many.
        pause_seconds: See `REMAKE_PAUSE_SECONDS`.

    Attributes:
        spec: Of the first environments, as it was declared.
        num_envs: How many environments there are, E.
        observations: What they show; empty before the first reset.
        masks: The choices that are allowed; None = all are.
        failures: How often they failed.
        failures_in_row: How often without a good step between.
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
        self._max_failures = max_failures
        self._pause_seconds = pause_seconds
        self._notices = Notices()
        self.spec = batch.spec
        self.num_envs = batch.num_envs
        self._is_masked: bool | None = None
        self.observations: Observations = []
        self.masks: MaskArray | None = None
        self.failures = 0
        self.failures_in_row = 0

    def reset(self) -> None:
        """Begins an episode in all environments.

        Raises:
            EnvironmentFailed: They cannot be reset.
        """
        self.observations = self._batch.reset(self._seeds())
        self.masks = self._batch.action_masks

    def keep_masks(self) -> bool:
        """Notes after the first reset whether there are masks, which must not change; returns it."""
        self._is_masked = self.masks is not None
        return self._is_masked

    def step(self, actions: Actions) -> StepResult:
        """Takes a step of all environments.

        Raises:
            EnvironmentFailed: They did.
        """
        result = self._batch.step(actions.environment_continuous, actions.discrete)
        self.observations, self.masks = result.observations, self._batch.action_masks
        self.failures_in_row = 0
        return result

    def close(self) -> None:
        """Ends the environments."""
        self._batch.close()

    def recover(self, failure: EnvironmentFailed, flush: Callable[[], None]) -> bool:
        """Remakes the environments until they can be reset, or the link stops; returns whether they could.

        A link that stops is no failure: what ends an actor often ends its simulators, too.

        Args:
            failure: What happened.
            flush: Sends what is recorded, before a pause.

        Raises:
            EnvironmentFailedTooOften: That did not help either.
        """
        while True:
            self._count(failure)
            self._batch.close()
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
        self.failures += 1
        self.failures_in_row += 1
        self._counts.env_failures += 1
        if (left_out := self._notices.due("environment_failed")) is not None:
            _log.warning("environment_failed", error=failure.message, in_row=self.failures_in_row, left_out=left_out)
        if self.failures_in_row >= self._max_failures and not self._link.stopping:
            raise EnvironmentFailedTooOften(self.failures_in_row, failure)

    def _pause(self) -> None:
        """Waits longer after each failure in a row, unless the link stops."""
        seconds = self._pause_seconds * 2.0 ** min(self.failures_in_row - 1, 30)
        until = self._clock() + min(seconds, LONGEST_REMAKE_PAUSE_SECONDS)
        while not self._link.stopping and (left_seconds := until - self._clock()) > 0:
            self._link.wait(left_seconds)

    def _remake(self) -> None:
        """Remakes and resets the environments.

        Raises:
            EnvironmentFailed: They cannot be made or reset, or are not what the first ones were.
        """
        try:
            self._batch = self._make_batch()
        except (UnknownEnvironment, UnsupportedSpace) as error:  # they could be made before, and so may be again
            raise EnvironmentFailed(None, error.message) from error
        # Rows of other spaces would not fit the declared ones.
        differences = mismatches(self.spec, self._batch.spec)
        if self._batch.num_envs != self.num_envs:
            differences.append(f"num_envs: run {self.num_envs}, actor {self._batch.num_envs}")
        if differences:
            raise EnvironmentFailed(None, f"made anew, it differs from the first one: {'; '.join(differences)}")
        self.reset()
        # Rows whose masks came or went would be learned from with the wrong probabilities.
        if self._is_masked is not None and self._is_masked != (self.masks is not None):
            now, before = ("lacks", "had") if self._is_masked else ("has", "had not")
            raise EnvironmentFailed(None, f"made anew, it {now} action masks, which the first one {before}")
