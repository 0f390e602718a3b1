"""The loop of agents that come and go: all behavior ids of all simulators, one run of a policy for all who ask."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.counts import AgentCounts
from actor_client.policy.actions import ActingPolicy, MaskArray, PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.rollout.agents.interface import AgentRequest, AskingAgents, Exchange, Observer, Simulator
from actor_client.rollout.agents.runner import BehaviorRunner
from actor_client.rollout.assignment import TaskReader
from actor_client.rollout.evaluation import evaluation_noise
from actor_client.rollout.link import AgentLink

RESET: Final = "reset"
"""The word of the books for open rows of a simulator that is reset (`discarded{reason}`)."""

_log = structlog.get_logger(__name__)


class AgentLoop:
    """Acts for the behavior ids of all simulators of a process. One thread at a time calls it.

    An evaluation begins and ends with simulators that are reset, all of them: a simulator resets all of its behaviors
    at once. Episodes that run until then count in nothing.

    Args:
        link: The connection; opened already.
        assignment: What the learner asked for at opening.
        simulators: All there are; the number of each is its place.
        counts: Where batches and resets are counted.
        observe: Makes the observer of a behavior id; None for none.
        clock: Monotonic seconds.

    Attributes:
        assignment: What the learner asks for.
    """

    def __init__(
        self,
        link: AgentLink,
        assignment: policy_pb2.Assignment,
        simulators: Sequence[Simulator],
        counts: AgentCounts,
        *,
        observe: Callable[[BehaviorSpec, int], Observer] | None,
        clock: Callable[[], float],
    ) -> None:
        self.assignment = link.assignment or assignment
        self._link = link
        self._simulators = simulators
        self._counts = counts
        self._rollout = link.counts
        self._observe = observe
        self._clock = clock
        self._runners: dict[tuple[str, int], BehaviorRunner] = {}
        self._noises: dict[tuple[str, bool], Noise] = {}
        self._tasks = TaskReader()

    def __iter__(self) -> Iterator[BehaviorRunner]:
        return iter(self._runners.values())

    @property
    def unrecorded(self) -> bool:
        """True if there is something to record; from any thread."""
        return any(runner.unrecorded for runner in list(self._runners.values()))

    def find(self, name: str, team: int) -> BehaviorRunner | None:
        """Returns the runner of a behavior id; None if it is new."""
        return self._runners.get((name, team))

    def add(self, spec: BehaviorSpec, team: int, agents: int) -> BehaviorRunner:
        """Declares a new behavior id and returns its runner.

        Args:
            spec: What agents see and do.
            team: Their team.
            agents: How many there are by now.
        """
        runner = self._runners[spec.name, team] = BehaviorRunner(
            self._link,
            spec,
            team,
            agents,
            task=self._tasks.of(self.assignment, spec.name, team),
            stale=[simulator.worker for simulator in self._simulators if simulator.reset_due],
            observer=None if self._observe is None else self._observe(spec, team),
            clock=self._clock,
        )
        return runner

    def drop(self, worker: int, reason: str) -> None:
        """Gives up the open rows of a simulator.

        Args:
            worker: Number of the environment.
            reason: The word of the books (`discarded{reason}`).
        """
        for runner in self:
            runner.drop(worker, reason)

    def record(self) -> None:
        """Records what agents did since they were answered."""
        for runner in self:
            runner.record()

    def poll(self) -> None:
        """Sends what has waited long enough."""
        for runner in self:
            runner.poll()

    def end(self) -> None:
        """Sends everything: the actor is about to stop."""
        for runner in self:
            runner.end()

    def note_waits(self) -> None:
        """Sends what is closed of those who wait for the learner, and counts the time."""
        stuck = [runner for runner in self if runner.waiting]
        counts, now = self._rollout, self._clock()
        if not stuck:
            counts.waited(now)
            return
        for runner in stuck:
            runner.flush()
        if counts.waiting is None:
            counts.waiting = stuck[0].missing, now

    def follow(self) -> None:
        """Does between two steps what the connection asks for."""
        for runner in self:
            runner.follow()
        evaluating = [runner for runner in self if runner.task.evaluates]
        is_done = bool(evaluating) and all(runner.is_done for runner in evaluating)
        for runner in evaluating:  # until all of them are done each acts, for the sake of the others
            runner.rests = is_done

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Begins what another assignment asks for, with a reset where an evaluation begins or ends."""
        self.assignment = assignment
        self._noises = {key: noise for key, noise in self._noises.items() if not key[1]}
        changed = [
            (runner, task)
            for (name, team), runner in self._runners.items()
            if (task := self._tasks.of(assignment, name, team)) != runner.task
        ]
        is_reset = any(runner.task.evaluates or task.evaluates for runner, task in changed)
        running = [simulator for simulator in self._simulators if simulator.is_running]
        for simulator in running:
            simulator.reset_due |= is_reset
        for runner, task in changed:
            _log.info("assignment", behavior=runner.spec.name, team=runner.team, **task.words())
            runner.assign(task, stale=[simulator.worker for simulator in running])
        if is_reset:
            self._finish_all(request.exchange for runner in self for request in runner.waiting)

    def act(self) -> None:
        """Chooses actions for all who may act, in one run a policy, and answers exchanges that are complete by it.

        Raises:
            PolicyUnusable: A policy failed in an evaluation.
        """
        complete: list[Exchange] = []
        for runners in self._ready().values():
            policy = runners[0].policy
            if policy is None:
                continue
            try:
                complete += self._act(policy, runners)
            except PolicyUnusable as why:
                for runner in runners:
                    runner.refuse(why)
        self._finish_all(complete)

    def finish(self, exchange: Exchange) -> None:
        """Answers an exchange, with a reset if one is due."""
        simulator = exchange.simulator
        if simulator.reset_due:
            self.drop(simulator.worker, RESET)
            self._counts.resets += 1
            exchange.answer_reset()
        else:
            exchange.answer()

    def _finish_all(self, exchanges: Iterable[Exchange]) -> None:
        for exchange in dict.fromkeys(exchanges):
            self.finish(exchange)

    def _ready(self) -> dict[int, list[BehaviorRunner]]:
        """Returns who may act, by their policy."""
        ready: dict[int, list[BehaviorRunner]] = {}
        in_flight: Counter[str] = Counter()
        for runner in self:
            in_flight[runner.spec.name] += runner.in_flight
        for runner in self:
            name = runner.spec.name
            if runner.waiting and runner.may_act(in_flight[name]):
                in_flight[name] += runner.agents_waiting
                ready.setdefault(id(runner.policy), []).append(runner)
        return ready

    def _act(self, policy: ActingPolicy, runners: Sequence[BehaviorRunner]) -> list[Exchange]:
        """Runs a policy once for all who wait for it; returns the exchanges that are complete by it.

        Raises:
            PolicyUnusable: The policy failed.
        """
        everyone: list[AgentRequest] = [request for runner in runners for request in runner.waiting]
        if self._rollout.waiting is not None:
            self._rollout.waited(self._clock())
        memories = [memory for runner in runners if (memory := runner.remembered(policy)) is not None]
        memory = np.concatenate(memories) if memories else None
        actions = policy.act(*joined([request.asking for request in everyone]), self._noise(runners[0]), memory)
        complete: list[Exchange] = []
        begin = 0
        for request in everyone:
            end = begin + request.agents
            if request.exchange.act(request.behavior_id, actions.part(slice(begin, end))):
                complete.append(request.exchange)
            begin = end
        begin = 0
        for runner in runners:
            end = begin + runner.agents_waiting
            runner.acted(actions.part(slice(begin, end)))
            begin = end
        self._counts.batch_agents.add(begin)
        self._rollout.env_steps += begin
        return complete

    def _noise(self, runner: BehaviorRunner) -> Noise:
        """Returns the random numbers of a behavior, all its teams together."""
        key = runner.spec.name, runner.task.evaluates
        noise = self._noises.get(key)
        if noise is None:
            link, action, agents = self._link, runner.spec.action, runner.agents_waiting
            noise = self._noises[key] = (
                evaluation_noise(link.run_seed, link.actor_index, runner.spec, agents)
                if runner.task.evaluates
                else Noise(
                    link.run_seed,
                    link.actor_index,
                    agents=agents,
                    continuous_size=action.continuous_size,
                    logits_size=action.mask_size,
                )
            )
        return noise


def joined(batches: Sequence[AskingAgents]) -> tuple[Sequence[NDArray[Any]], MaskArray | None]:
    """Returns what all agents see, [sum of n, *shape] each, and their masks; None = all choices are allowed."""
    if len(batches) == 1:
        return batches[0].observations, batches[0].masks
    columns = zip(*(batch.observations for batch in batches), strict=True)
    observations = [np.concatenate(column) for column in columns]
    given = [batch.masks for batch in batches if batch.masks is not None]
    if not given:
        return observations, None
    width = given[0].shape[1]
    masks = [np.ones((len(batch.ids), width), np.uint8) if batch.masks is None else batch.masks for batch in batches]
    return observations, np.concatenate(masks)
