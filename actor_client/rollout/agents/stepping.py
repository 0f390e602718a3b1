"""Steps simulators of this process: reports their agents, acts in one batch per policy, and takes the next steps."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import structlog
from rollcast.enums import SegmentEnd, StatAggregation
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle
from rollcast.v1 import policy_pb2

from actor_client.counts import AgentCounts
from actor_client.envs.errors import EnvironmentFailed, EnvironmentFailedTooOften
from actor_client.heartbeat import Heartbeat
from actor_client.rollout.agents.interface import AgentRequest, Observer, Simulator
from actor_client.rollout.agents.loop import AgentLoop
from actor_client.rollout.agents.runner import BehaviorRunner
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.failures import FailureLog, FailureRate
from actor_client.rollout.link import AgentLink, Link

WAIT_SECONDS: Final = 0.05
"""Longest single wait, and the age at which closed segments are sent."""
LOST: Final = "env_error"
"""Reason in the books for open rows of a simulator that failed."""

_log = structlog.get_logger(__name__)


class AgentReport(NamedTuple):
    """The agents of one behavior id in a message of a simulator.

    Attributes:
        spec: Their observations and actions.
        team: Their team.
        request: The agents.
        stats: Statistics of ended episodes.
    """

    spec: BehaviorSpec
    team: int
    request: AgentRequest
    stats: Sequence[tuple[str, float, StatAggregation]] = ()


class SteppingLink(AgentLink, Link, Protocol):
    """One session of an actor that steps simulators itself."""


class SteppedSimulator(Simulator, Protocol):
    """A simulator that the loop steps."""

    @property
    def behaviors(self) -> Iterable[tuple[BehaviorSpec, int, int]]:
        """Spec, team and number of agents of each behavior id that is known before the first message."""

    @property
    def is_ready(self) -> bool:
        """True if it can continue: all asking agents have actions, or it is about to be reset."""

    def advance(self) -> list[AgentReport]:
        """Takes one step or begins episodes; returns the agents of the message.

        Raises:
            EnvironmentFailed: The simulator failed.
        """


Stepped = TypeVar("Stepped", bound=SteppedSimulator)


class SteppingLoop(Generic[Stepped]):
    """Steps simulators until the link stops. One thread calls it.

    Args:
        link: The connection; opened already.
        assignment: The learner's assignment at the opening.
        simulators: The simulators; the number of each is its index.
        script: Plays opponents; None if their policies do.
        observe: Creates the observer of a behavior id; None observes none.
        heartbeat: Updated in each round.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        link: SteppingLink,
        assignment: policy_pb2.Assignment,
        simulators: Sequence[Stepped],
        *,
        script: ScriptedOpponent | None = None,
        observe: Callable[[BehaviorSpec, int], Observer] | None = None,
        heartbeat: Heartbeat | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._simulators = list(simulators)
        self._heartbeat = heartbeat or Heartbeat()
        self._clock = clock
        self._counts = AgentCounts()
        self._rollout = link.counts
        self._loop = AgentLoop(
            link, assignment, self._simulators, self._counts, script=script, observe=observe, clock=clock
        )
        for simulator in self._simulators:
            simulator.assign(self._loop.assignment)
        self._resumes_at = [clock()] * len(self._simulators)
        self._notices = Throttle()
        self._poll_due = clock()

    def run(self) -> None:
        """Steps until the link stops; then sends the recorded data. Called once.

        Raises:
            EnvironmentFailedTooOften: A simulator failed too often.
            ActorError: An agent that appeared cannot have a seat.
            PolicyUnusable: A policy failed on the agents' observations, and no other policy is available.
        """
        # Before the first action: a match needs both teams, and in turns the second one appears after the first has acted.
        specs: dict[tuple[str, int], BehaviorSpec] = {}
        known = Counter[tuple[str, int]]()
        for simulator in self._simulators:
            for spec, team, agents in simulator.behaviors:
                specs.setdefault((spec.name, team), spec)
                known[spec.name, team] += agents
        for (name, team), agents in known.items():
            self._declare(specs[name, team], team, agents)
        try:
            while not self._link.stopping:
                self._heartbeat.beat()
                self._loop.follow()
                self._loop.act()
                if not self._advance():
                    self._loop.note_waits()
                    self._wait()
                now = self._clock()
                if now >= self._poll_due:
                    self._poll_due = now + WAIT_SECONDS
                    self._loop.poll()
        finally:
            self._loop.end()

    def _advance(self) -> bool:
        """Steps the simulators that can continue; returns whether there were any."""
        now = self._clock()
        ready = [each for each in self._simulators if each.is_ready and now >= self._resumes_at[each.worker]]
        messages = []
        for simulator in ready:
            try:
                messages.append((simulator.worker, simulator.advance()))
            except EnvironmentFailed as failure:
                self._fail(simulator, failure)
        if ready:
            self._count_seconds(ready, self._clock() - now)
        self._loop.record()
        for worker, reports in messages:
            for report in reports:
                self._report(worker, report)
        return bool(ready)

    def _wait(self) -> None:
        """Waits for what lets simulators continue, for `WAIT_SECONDS` at most."""
        self._link.wait(WAIT_SECONDS)

    def _count_seconds(self, ready: Sequence[Stepped], seconds: float) -> None:  # noqa: ARG002 - for those that step elsewhere
        """Counts the time of a round of steps.

        Args:
            ready: The simulators that continued.
            seconds: Duration of the round.
        """
        self._rollout.env_step_seconds.add(seconds)

    def _fail(self, simulator: Stepped, failure: EnvironmentFailed) -> None:  # noqa: ARG002 - for those that recover
        """Handles a failure: `_resumes_at` says when the simulator continues.

        Raises:
            EnvironmentFailedTooOften: It failed too often.
        """
        raise EnvironmentFailedTooOften(1, 0, failure, failure.traceback)

    def _report(self, worker: int, report: AgentReport) -> None:
        """Adds agents to the rollout."""
        request = report.request
        runner = self._loop.find(report.spec.name, report.team)
        if runner is None:
            agents = max(1, len(request.asking.ids)) * len(self._simulators)
            runner = self._declare(report.spec, report.team, agents)
        runner.add(request)
        if report.stats:
            runner.add_stats(worker, report.stats)
        if len(request.ended.ids):
            ends = np.where(request.ended.interrupted, SegmentEnd.TRUNCATED, SegmentEnd.TERMINATED)
            self._rollout.ended(ends.tolist())
        for faulty in (request.asking.faulty, request.ended.faulty):
            if faulty is not None:
                self._say_faulty(request.behavior_id, int(faulty.sum()))

    def _declare(self, spec: BehaviorSpec, team: int, agents: int) -> BehaviorRunner:
        """Declares a new behavior id."""
        _log.info("acting", behavior=f"{spec.name}?team={team}", agents=agents)
        return self._loop.add(spec, team, agents)

    def _say_faulty(self, behavior_id: str, agents: int) -> None:
        """Counts agents with NaN or infinity, and warns of them."""
        self._counts.faulty_agents += agents
        if (left_out := self._notices.admit("not_finite")) is not None:
            _log.warning(
                "not_finite",
                behavior=behavior_id,
                agents=self._counts.faulty_agents,
                consequence="rows with NaN or infinity in the observation or reward are not trained",
                left_out=left_out,
            )


class DiscardedSteps(Protocol):
    """What the books of a behavior say of steps that are not sent."""

    @property
    def discarded(self) -> Mapping[str, int]:
        """Open steps that will never be sent, by reason."""


class RecoveringLink(SteppingLink, Protocol):
    """One session of an actor whose simulators recover."""

    def books(self) -> Mapping[str, DiscardedSteps]:
        """Returns the books of the present session, by behavior."""


class RecoveringSimulator(SteppedSimulator, Protocol):
    """A simulator that is made again after a failure.

    Attributes:
        steps: Steps taken.
        rate: Judges its failures.
    """

    steps: int
    rate: FailureRate

    def fail(self, failure: EnvironmentFailed) -> None:
        """Closes the simulator and counts the failure; the next `advance` makes it again."""


Recovering = TypeVar("Recovering", bound=RecoveringSimulator)


class RecoveringLoop(SteppingLoop[Recovering]):
    """Steps simulators of which one that fails is made again after a pause; the others continue in the meantime.

    Args:
        link: The connection; opened already.
        assignment: The learner's assignment at the opening.
        simulators: The simulators; the number of each is its index.
        **options: See `SteppingLoop`.
    """

    def __init__(
        self,
        link: RecoveringLink,
        assignment: policy_pb2.Assignment,
        simulators: Sequence[Recovering],
        **options: Any,
    ) -> None:
        super().__init__(link, assignment, simulators, **options)
        self._books = link.books
        self._failures = FailureLog(link.counts)

    def _fail(self, simulator: Recovering, failure: EnvironmentFailed) -> None:
        """Closes a simulator that failed, discards its open rows, and schedules the next attempt.

        Raises:
            EnvironmentFailedTooOften: It failed too often.
        """
        simulator.fail(failure)
        discarded = self._lose(simulator)
        rate = simulator.rate
        traceback = self._failures.add(failure, rate.in_row(simulator.steps), discarded_steps=discarded)
        if not self._link.stopping:
            rate.check(failure, traceback)
        self._resumes_at[simulator.worker] = self._clock() + rate.pause_seconds

    def _lose(self, simulator: Recovering) -> int:
        """Discards the open rows of a simulator that has ended, and returns their number."""
        before = self._discarded_steps()
        self._loop.drop(simulator.worker, LOST)
        discarded = self._discarded_steps() - before
        self._rollout.env_discarded_steps += discarded
        return discarded

    def _discarded_steps(self) -> int:
        return sum(books.discarded.get(LOST, 0) for books in self._books().values())
