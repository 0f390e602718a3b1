"""Steps PettingZoo environments; those that fail are made again."""

from collections.abc import Sequence
from typing import Any, Final

from rollcast.v1 import policy_pb2

from actor_client.connection.link import LearnerLink
from actor_client.envs.errors import EnvironmentFailed, EnvironmentFailedTooOften
from actor_client.pettingzoo.environment import AgentEnvironment
from actor_client.rollout.agents.stepping import SteppingLoop
from actor_client.rollout.failures import FailureLog, FailureRate

LOST: Final = "env_error"
"""Reason in the books for open rows of an environment that failed."""


class EnvironmentLoop(SteppingLoop[AgentEnvironment]):
    """Steps environments until the link stops.

    An environment that fails is closed and made again after a pause; the others continue in the meantime.

    Args:
        link: The connection; opened already.
        assignment: The learner's assignment at the opening.
        environments: The environments; the number of each is its index.
        max_env_failures: Failures in a row of one environment that end the actor; see `FailureRate`.
        **options: See `SteppingLoop`.
    """

    def __init__(
        self,
        link: LearnerLink,
        assignment: policy_pb2.Assignment,
        environments: Sequence[AgentEnvironment],
        *,
        max_env_failures: int,
        **options: Any,
    ) -> None:
        super().__init__(link, assignment, environments, **options)
        self._books = link.books
        self._rates = [FailureRate(max_env_failures) for _ in self._simulators]
        self._failures = FailureLog(link.counts)

    def _fail(self, simulator: AgentEnvironment, failure: EnvironmentFailed) -> None:
        """Closes an environment that failed, discards its open rows, and schedules the next attempt.

        Raises:
            EnvironmentFailedTooOften: It failed too often.
        """
        worker = simulator.worker
        simulator.fail(failure)
        before = self._discarded_steps()
        self._loop.drop(worker, LOST)
        discarded = self._discarded_steps() - before
        self._rollout.env_discarded_steps += discarded
        traceback = self._failures.add(failure, simulator.failures_in_row, discarded_steps=discarded)
        rate = self._rates[worker]
        if rate.failed(simulator.steps) and not self._link.stopping:
            raise EnvironmentFailedTooOften(rate.failures, simulator.steps - rate.since_steps, failure, traceback)
        self._resumes_at[worker] = self._clock() + simulator.pause_seconds

    def _discarded_steps(self) -> int:
        return sum(books.discarded.get(LOST, 0) for books in self._books().values())
