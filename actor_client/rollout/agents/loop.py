"""The loop of agents that come and go: acts for all behavior ids of all simulators, with one run of each policy."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import structlog
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.counts import AgentCounts
from actor_client.policy.actions import ActingPolicy, Actions, PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.rollout.agents.interface import AgentRequest, Exchange, Observer, Simulator, joined
from actor_client.rollout.agents.runner import RESET, BehaviorRunner
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.assignment import TaskReader
from actor_client.rollout.evaluation import OPPONENT_STREAM, evaluation_noise
from actor_client.rollout.link import AgentLink

_log = structlog.get_logger(__name__)

_TRAINING, _EVALUATION, _OPPONENTS = "training", "evaluation", "opponents"
"""Uses of random numbers: each has its own, so that none affects another."""


class AgentLoop:
    """Acts for the behavior ids of all simulators of a process. One thread at a time calls it.

    An evaluation begins and ends with a reset of all simulators, because a simulator resets all of its behaviors at
    once. Episodes that run until the reset do not count. So does a time in which other behavior ids learn. Opponents
    act only while no behavior id that learns has to wait: those that learn set the pace.

    Args:
        link: The connection; opened already.
        assignment: The learner's assignment at the opening.
        simulators: All simulators, whose numbers differ; they may come and go between two calls.
        counts: Counts batches and resets.
        script: Plays opponents; None if their policies do.
        observe: Creates the observer of a behavior id; None observes none.
        clock: Monotonic seconds.

    Attributes:
        assignment: The present assignment.
    """

    def __init__(
        self,
        link: AgentLink,
        assignment: policy_pb2.Assignment,
        simulators: Collection[Simulator],
        counts: AgentCounts,
        *,
        script: ScriptedOpponent | None,
        observe: Callable[[BehaviorSpec, int], Observer] | None,
        clock: Callable[[], float],
    ) -> None:
        self.assignment = link.assignment or assignment
        self._link = link
        self._simulators = simulators
        self._counts = counts
        self._rollout = link.counts
        self._script = script
        self._observe = observe
        self._clock = clock
        self._runners: dict[tuple[str, int], BehaviorRunner] = {}
        self._noises: dict[tuple[str, str], Noise] = {}
        self._tasks = TaskReader(has_opponents=True)

    def __iter__(self) -> Iterator[BehaviorRunner]:
        return iter(self._runners.values())

    @property
    def unrecorded(self) -> bool:
        """True if there are steps to record; any thread may read it."""
        return any(runner.unrecorded for runner in list(self._runners.values()))

    def find(self, name: str, team: int) -> BehaviorRunner | None:
        """Returns the runner of a behavior id; None if it is new."""
        return self._runners.get((name, team))

    def add(self, spec: BehaviorSpec, team: int, agents: int) -> BehaviorRunner:
        """Declares a new behavior id and returns its runner.

        Args:
            spec: Observations and actions of the agents.
            team: Their team.
            agents: The present number of agents.
        """
        runner = self._runners[spec.name, team] = BehaviorRunner(
            self._link,
            spec,
            team,
            agents,
            task=self._tasks.of(self.assignment, spec.name, team),
            stale=[simulator.worker for simulator in self._simulators if simulator.reset_due],
            script=self._script,
            observer=None if self._observe is None else self._observe(spec, team),
            clock=self._clock,
        )
        return runner

    def remove(self, runner: BehaviorRunner) -> None:
        """Forgets a behavior id that the learner refused."""
        del self._runners[runner.spec.name, runner.team]

    def drop(self, worker: int, reason: str) -> None:
        """Discards the open rows of a simulator.

        Args:
            worker: Number of the environment.
            reason: The reason in the books (`discarded{reason}`).
        """
        for runner in self:
            runner.drop(worker, reason)

    def leave(self, worker: int) -> None:
        """Interrupts the episodes of a simulator that has gone, at the last observations that its agents reported.

        Args:
            worker: Number of the environment.
        """
        for runner in self:
            runner.leave(worker)

    def record(self) -> None:
        """Records the agents' steps since they were answered."""
        for runner in self:
            runner.record()

    def poll(self) -> None:
        """Sends data that has waited long enough."""
        for runner in self:
            runner.poll()

    def end(self) -> None:
        """Sends everything, because the actor is about to stop."""
        for runner in self:
            runner.end()

    def note_waits(self) -> None:
        """Sends the closed segments of behaviors that wait for the learner, and counts the waiting time."""
        stuck = sorted((runner for runner in self if runner.waiting), key=lambda runner: runner.plays_opponents)
        counts, now = self._rollout, self._clock()
        if not stuck:
            counts.waited(now)
            return
        for runner in stuck:
            runner.flush()
        if counts.waiting is None:
            counts.waiting = stuck[0].missing, now

    def follow(self) -> None:
        """Applies the learner's requests and the connection's changes between two steps."""
        assignment = self._link.assignment
        if assignment is not None and assignment is not self.assignment:
            for simulator in self._simulators:
                simulator.assign(assignment)
            self._assign(assignment)
        for runner in self:
            runner.follow()
        evaluating = [runner for runner in self if runner.task.evaluates]
        is_done = bool(evaluating) and all(runner.is_done for runner in evaluating)
        for runner in evaluating:  # each acts until all are done: an exchange needs the actions of all
            runner.rests = is_done

    def _assign(self, assignment: policy_pb2.Assignment) -> None:
        """Starts the tasks of another assignment, with a reset when an evaluation begins or ends, or roles change."""
        self.assignment = assignment
        self._noises = {key: noise for key, noise in self._noises.items() if key[1] != _EVALUATION}
        changed = [
            (runner, task)
            for (name, team), runner in self._runners.items()
            if (task := self._tasks.of(assignment, name, team)) != runner.task
        ]
        is_reset = any(runner.task.evaluates or task.evaluates or runner.changes_role(task) for runner, task in changed)
        running = [simulator for simulator in self._simulators if simulator.is_running]
        for simulator in running:
            simulator.reset_due |= is_reset
        for runner, task in changed:
            is_next_match = task.role is not None and task.role is runner.task.role
            log = _log.debug if is_next_match else _log.info
            log("assignment", behavior=runner.spec.name, team=runner.team, **task.words())
            runner.assign(task, stale=[simulator.worker for simulator in running])
        if is_reset:
            self._finish_all(request.exchange for runner in self for request in runner.waiting)

    def act(self) -> None:
        """Chooses actions for all agents that may act, in one run per policy, and answers the completed exchanges.

        Raises:
            PolicyUnusable: A policy failed in an evaluation.
        """
        complete: list[Exchange] = []
        ready, is_held_back = self._ready()
        for runners in ready.values():
            policy = runners[0].policy
            if policy is None:
                continue
            try:
                complete += self._act(policy, runners)
            except PolicyUnusable as why:
                for runner in runners:
                    runner.refuse(why)
        if not is_held_back:
            for runner in self:
                if runner.plays_opponents and runner.waiting and runner.may_act(0):
                    complete += self._play(runner)
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

    def _ready(self) -> tuple[dict[int, list[BehaviorRunner]], bool]:
        """Returns the runners that may act, by their policy, and whether any that learns in a match may not.

        Opponents are not among them.
        """
        is_held_back = False
        ready: dict[int, list[BehaviorRunner]] = {}
        in_flight: Counter[str] = Counter()
        for runner in self:
            in_flight[runner.spec.name] += runner.in_flight
        for runner in self:
            name = runner.spec.name
            if not runner.waiting or runner.plays_opponents:
                continue
            if runner.may_act(in_flight[name]):
                in_flight[name] += runner.agents_waiting
                ready.setdefault(id(runner.policy), []).append(runner)
            else:
                is_held_back |= runner.learns_in_match
        return ready, is_held_back

    def _act(self, policy: ActingPolicy, runners: Sequence[BehaviorRunner]) -> list[Exchange]:
        """Runs a policy once for all agents that wait for it; returns the completed exchanges.

        Raises:
            PolicyUnusable: The policy failed.
        """
        everyone: list[AgentRequest] = [request for runner in runners for request in runner.waiting]
        memories = [memory for runner in runners if (memory := runner.remembered(policy)) is not None]
        memory = np.concatenate(memories) if memories else None
        actions = policy.act(*joined([request.asking for request in everyone]), self._noise(runners[0]), memory)
        return self._answer(runners, everyone, actions)

    def _play(self, runner: BehaviorRunner) -> list[Exchange]:
        """Lets opponents act, each with the policy of its match; returns the completed exchanges."""
        actions = runner.choose(self._noise(runner))
        return [] if actions is None else self._answer([runner], list(runner.waiting), actions)

    def _answer(
        self, runners: Sequence[BehaviorRunner], everyone: Sequence[AgentRequest], actions: Actions
    ) -> list[Exchange]:
        """Hands out actions, one row per agent in the order of `everyone`; returns the completed exchanges."""
        if self._rollout.waiting is not None:
            self._rollout.waited(self._clock())
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
        """Returns the random numbers of a behavior, shared by its teams."""
        use = _EVALUATION if runner.task.evaluates else _OPPONENTS if runner.plays_opponents else _TRAINING
        key = runner.spec.name, use
        noise = self._noises.get(key)
        if noise is None:
            link, action, agents = self._link, runner.spec.action, runner.agents_waiting
            noise = self._noises[key] = (
                evaluation_noise(link.run_seed, link.actor_index, runner.spec, agents)
                if runner.task.evaluates
                else Noise(
                    link.run_seed,
                    link.actor_index if use == _TRAINING else OPPONENT_STREAM + link.actor_index,
                    agents=agents,
                    continuous_size=action.continuous_size,
                    logits_size=action.mask_size,
                )
            )
        return noise
