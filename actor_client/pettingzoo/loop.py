"""Steps all environments: reports their agents, acts in one batch per policy, and takes the next steps."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import structlog
from rollcast.enums import SegmentEnd
from rollcast.v1 import policy_pb2

from actor_client.connection.link import LearnerLink
from actor_client.counts import AgentCounts
from actor_client.demos.players import PlayerDemos
from actor_client.envs.errors import EnvironmentFailed, EnvironmentFailedTooOften
from actor_client.heartbeat import Heartbeat
from actor_client.logs import Notices, indented
from actor_client.pettingzoo.batches import Part
from actor_client.pettingzoo.cast import Form
from actor_client.pettingzoo.environment import AgentEnvironment
from actor_client.pettingzoo.exchange import Exchange
from actor_client.rollout.agents.interface import AgentRequest
from actor_client.rollout.agents.loop import AgentLoop
from actor_client.rollout.agents.runner import BehaviorRunner
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.vector.environments import FailureRate

LOST: Final = "env_error"
"""Reason in the books for open rows of an environment that failed."""
WAIT_SECONDS: Final = 0.05
"""Longest single wait, and the age at which closed segments are sent."""

_log = structlog.get_logger(__name__)


class EnvironmentLoop:
    """Steps environments until the link stops. One thread calls it.

    An environment that fails is closed and made again after a pause; the others continue in the meantime.

    Args:
        link: The connection; opened already.
        assignment: The learner's assignment at the opening.
        environments: The environments; the number of each is its index.
        max_env_failures: Failures in a row of one environment that end the actor; see `FailureRate`.
        script: Plays opponents; None if their policies do.
        demos: Records demonstrations; None records none.
        heartbeat: Updated in each round.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        link: LearnerLink,
        assignment: policy_pb2.Assignment,
        environments: Sequence[AgentEnvironment],
        *,
        max_env_failures: int,
        script: ScriptedOpponent | None = None,
        demos: PlayerDemos | None = None,
        heartbeat: Heartbeat | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._environments = list(environments)
        self._heartbeat = heartbeat or Heartbeat()
        self._clock = clock
        self._counts = AgentCounts()
        self._rollout = link.counts
        self._loop = AgentLoop(
            link,
            assignment,
            self._environments,
            self._counts,
            script=script,
            observe=None if demos is None else demos.of,
            clock=clock,
        )
        for environment in self._environments:
            environment.assign(self._loop.assignment)
        self._rates = [FailureRate(max_env_failures) for _ in self._environments]
        self._resumes_at = [clock()] * len(self._environments)
        self._failures = 0
        self._shown = ""
        self._notices = Notices()
        self._poll_due = clock()

    def run(self) -> None:
        """Steps until the link stops; then sends the recorded data. Called once.

        Raises:
            EnvironmentFailedTooOften: An environment failed too often.
            ActorError: An agent that appeared cannot have a seat.
            PolicyUnusable: A policy failed on the agents' observations, and no other policy is available.
        """
        # Before the first action: a match needs both teams, and in turns the second one appears after the first has acted.
        for form, agents in sum((each.forms for each in self._environments), Counter[Form]()).items():
            self._declare(form, agents)
        try:
            while not self._link.stopping:
                self._heartbeat.beat()
                self._loop.follow()
                self._loop.act()
                if not self._advance():
                    self._rest()
                self._poll()
        finally:
            self._loop.end()

    def _advance(self) -> bool:
        """Steps the environments that can continue; returns whether there were any."""
        now = self._clock()
        ready = [each for each in self._environments if each.is_ready and now >= self._resumes_at[each.worker]]
        messages = []
        for environment in ready:
            try:
                messages.append((environment, environment.advance()))
            except EnvironmentFailed as failure:
                self._fail(environment, failure)
        if ready:
            self._rollout.env_step_seconds.add(self._clock() - now)
        self._loop.record()
        for environment, parts in messages:
            self._report(environment, parts)
        return bool(ready)

    def _report(self, environment: AgentEnvironment, parts: list[Part]) -> None:
        """Adds the agents of a message to the rollout."""
        exchange = Exchange(environment, parts)
        for part in parts:
            runner = self._runner(part)
            runner.add(
                AgentRequest(
                    exchange,
                    part.form.behavior_id,
                    part.asking,
                    part.ended,
                    settings_revision=environment.revision,
                    results=part.results,
                )
            )
            if part.stats:
                runner.add_stats(environment.worker, part.stats)
            if len(part.ended.ids):
                ends = np.where(part.ended.interrupted, SegmentEnd.TRUNCATED, SegmentEnd.TERMINATED)
                self._rollout.ended(ends.tolist())
            for faulty in (part.asking.faulty, part.ended.faulty):
                if faulty is not None:
                    self._say_faulty(part, int(faulty.sum()))

    def _say_faulty(self, part: Part, agents: int) -> None:
        """Counts agents with NaN or infinity, and warns of them."""
        self._counts.faulty_agents += agents
        if (left_out := self._notices.due("not_finite")) is not None:
            _log.warning(
                "not_finite",
                behavior=part.form.behavior_id,
                agents=self._counts.faulty_agents,
                consequence="rows with NaN or infinity in the observation or reward are not trained",
                left_out=left_out,
            )

    def _runner(self, part: Part) -> BehaviorRunner:
        """Returns the runner for some agents; declares a new behavior id."""
        form = part.form
        runner = self._loop.find(form.spec.name, form.team)
        return self._declare(form, max(1, len(part.names)) * len(self._environments)) if runner is None else runner

    def _declare(self, form: Form, agents: int) -> BehaviorRunner:
        """Declares a new behavior id."""
        _log.info("acting", behavior=form.behavior_id, agents=agents)
        return self._loop.add(form.spec, form.team, agents)

    def _fail(self, environment: AgentEnvironment, failure: EnvironmentFailed) -> None:
        """Closes an environment that failed, discards its open rows, and schedules the next attempt.

        Raises:
            EnvironmentFailedTooOften: It failed too often.
        """
        worker = environment.worker
        environment.fail(failure)
        before = self._discarded_steps()
        self._loop.drop(worker, LOST)
        discarded = self._discarded_steps() - before
        self._rollout.env_discarded_steps += discarded
        self._rollout.env_failed(failure.message)
        self._failures += 1
        traceback = failure.traceback if failure.traceback != self._shown else ""
        if (left_out := self._notices.due("environment_failed")) is not None:
            self._shown = failure.traceback
            _log.warning(
                "environment_failed",
                error=failure.message,
                in_row=environment.failures_in_row,
                failures=self._failures,
                discarded_steps=discarded,
                left_out=left_out,
                **({"exception": indented(traceback)} if traceback else {}),
            )
            traceback = ""
        rate = self._rates[worker]
        if rate.failed(environment.steps) and not self._link.stopping:
            raise EnvironmentFailedTooOften(rate.failures, environment.steps - rate.since_steps, failure, traceback)
        self._resumes_at[worker] = self._clock() + environment.pause_seconds

    def _discarded_steps(self) -> int:
        return sum(books.discarded.get(LOST, 0) for books in self._link.books().values())

    def _rest(self) -> None:
        """Waits until the learner changes something, because no environment can continue."""
        self._loop.note_waits()
        self._link.wait(WAIT_SECONDS)

    def _poll(self) -> None:
        """Sends data that has waited long enough."""
        now = self._clock()
        if now >= self._poll_due:
            self._poll_due = now + WAIT_SECONDS
            self._loop.poll()
