"""One behavior id over all simulators: the asking agents, the acting policy, and the steps still to be recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import AssignmentRole, SegmentEnd, StatAggregation
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import ActingPolicy, Actions, FloatArray, PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.rollout.agents.interface import AgentRequest, EndedAgents, Observer
from actor_client.rollout.agents.opponents import OpponentRound
from actor_client.rollout.agents.players import AgentEpisode, PlayedRound
from actor_client.rollout.agents.recorder import MAX_AGENTS, AgentRecorder
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.assignment import Task
from actor_client.rollout.evaluation import EvaluationRound
from actor_client.rollout.link import AgentLink, BehaviorLink

RESET: Final = "reset"
"""The reason in the books for open rows of a simulator that is reset (`discarded{reason}`)."""
LEFT: Final = "left"
"""Why the agents of a simulator that has gone are forgotten; their rows are kept."""

_log = structlog.get_logger(__name__)

StatRecord = tuple[str, float, StatAggregation]
"""Key, value, and aggregation."""
Index = NDArray[np.int64]


class _Acted(NamedTuple):
    """Agents that were answered; `actions` has their rows in order."""

    requests: list[AgentRequest]
    actions: Actions


class BehaviorRunner:
    """Acts for one behavior id. All methods are for the stepping thread.

    Recording is deferred until simulators have their answers, so that it overlaps with their simulation. `record` must
    be called before rows are read.

    Args:
        link: The connection; the behavior is declared to it.
        spec: Observations and actions of the agents.
        team: Their team.
        agents: The present number of agents.
        task: The task.
        stale: Simulators that are not reset for the task yet.
        script: Plays opponents; None if their policies do.
        observer: Follows the agents; None if nothing does.
        clock: Monotonic seconds.

    Attributes:
        spec: Observations and actions of the agents.
        team: Their team.
        waiting: Requests without actions.
        policy: The acting policy; None before the first.
        unrecorded: Whether there are steps to record.
        task: The present task.
        rests: All evaluations are complete: no agent is answered until the next assignment.
        role: The role in which it last acted in a match; None before the first.
    """

    def __init__(
        self,
        link: AgentLink,
        spec: BehaviorSpec,
        team: int,
        agents: int,
        *,
        task: Task | None = None,
        stale: Collection[int] = (),
        script: ScriptedOpponent | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.task = task or Task()
        self.rests = False
        self.role: AssignmentRole | None = None
        self._stale = tuple(stale)
        self._script = self._untold = script
        self._observer = observer
        self._newest: ActingPolicy | None = None
        self._evaluation: AgentEvaluationRound | None = None
        self._opponents: OpponentRound | None = None
        self.spec = spec
        self.team = team
        self.waiting: list[AgentRequest] = []
        self.policy: ActingPolicy | None = None
        self.unrecorded = False
        self._link = link
        self._clock = clock
        self._declared_agents = agents
        self._declaration = link.declare_soon(spec, team, agents)
        self._port: BehaviorLink | None = None
        self._recorder: AgentRecorder | None = None
        self._arrived: list[AgentRequest] = []
        self._acted: list[_Acted] = []
        self._stats: list[tuple[int, Sequence[StatRecord]]] = []
        self._memories = AgentMemories()

    @property
    def agents_waiting(self) -> int:
        """Number of asking agents without actions, n."""
        return sum(request.agents for request in self.waiting)

    @property
    def refusal(self) -> str:
        """Why the learner does not take the behavior; empty if it does, or has not answered."""
        return "" if self._port is not None else self._declaration.refusal

    @property
    def missing(self) -> str:
        """The reason why agents wait, one of `actor_client.counts.WAIT_REASONS`."""
        if self._port is None or self.plays_opponents:
            return "policy"
        return self._port.missing

    @property
    def plays_opponents(self) -> bool:
        """True if its agents act as opponents."""
        return self._opponents is not None and self._evaluation is None

    @property
    def learns_in_match(self) -> bool:
        """True if its agents learn in a match."""
        return self.task.role is AssignmentRole.LEARN

    def changes_role(self, task: Task) -> bool:
        """Returns whether its agents are to learn that were opponents before, or the other way round."""
        return None not in {task.role, self.role} and task.role is not self.role

    @property
    def is_done(self) -> bool:
        """True if all episodes of its evaluation have been played, including those that have just ended."""
        self.record()
        return self._evaluation is not None and self._evaluation.is_done

    def assign(self, task: Task, *, stale: Collection[int]) -> None:
        """Begins another task. Recorded data is sent, unless only the match changes.

        Args:
            task: The task.
            stale: Simulators that will be reset if an evaluation begins or ends.
        """
        self.record()
        is_next_match = task.role is not None and task.role is self.task.role
        if (active := self._active) is not None and not is_next_match:
            active.cut()
        self.task, self._stale, self.rests = task, tuple(stale), False
        self._take_seat()
        self._begin_evaluation()

    @property
    def _active(self) -> AgentEvaluationRound | OpponentRound | AgentRecorder | None:
        """The recorder, or what replaces it in an evaluation or for opponents."""
        return self._evaluation or self._opponents or self._recorder

    def _take_seat(self) -> None:
        """Takes the part in a match that the task asks for; without one, episodes stay in the last match."""
        seat, port, recorder = self.task.seat, self._port, self._recorder
        if seat is None or port is None or recorder is None:
            return
        self.role = self.task.role
        recorder.assign(seat, self.task.told_by)
        if not seat.is_opponent:
            self._opponents = None
        elif self._opponents is not None:
            self._opponents.assign(seat)
        else:
            recorder.forget_all(RESET)
            self._opponents = OpponentRound(self.spec, port, seat, self._newest, script=self._script, clock=self._clock)
            for request in self.waiting:
                request.slots = self._opponents.observe(
                    request.worker, request.asking, settings_revision=request.settings_revision
                )

    def _begin_evaluation(self) -> None:
        """Ends the present evaluation, and begins another if the task asks for one."""
        self._evaluation = None
        if self.task.evaluates and self._port is not None:
            self._evaluation = AgentEvaluationRound(
                self.task, self.spec, self._port, stale=self._stale, clock=self._clock
            )
        self._choose()

    def _choose(self) -> None:
        """Chooses the acting policy."""
        if self._evaluation is not None:
            self._evaluation.choose(self._newest)
            self.policy = self._evaluation.policy
        elif self._newest is not None:
            self.policy = self._newest.greedy() if self.task.deterministic else self._newest

    def add(self, request: AgentRequest) -> None:
        """Adds the agents of this behavior id in one message."""
        self._arrived.append(request)
        self._memories.ended(request.worker, request.ended.ids.tolist())
        if request.agents:
            self.waiting.append(request)
        self.unrecorded = True

    def add_stats(self, worker: int, stats: Sequence[StatRecord]) -> None:
        """Adds statistics of a message."""
        self._stats.append((worker, stats))
        self.unrecorded = True

    def follow(self) -> None:
        """Applies the connection's changes between two steps."""
        port = self._port or self._begin()
        recorder = self._recorder
        if port is None or recorder is None:
            return
        if port.session_lost:
            self.record()
            # Counts in the books of the lost session; begin_session opens new ones.
            recorder.discard("session_lost")
            if self._opponents is not None:
                self._opponents.forget()
            port.begin_session()
        policy = port.take_policy()
        if policy is not None:
            self.record()  # the new policy answers waiting agents: their rows end with these observations
            recorder.swap(policy.generation, policy.version, policy.memory)
            self._newest = policy
            if self._opponents is not None:
                self._opponents.follow(policy)
        if policy is not None or self._evaluation is not None:
            self._choose()

    def _begin(self) -> BehaviorLink | None:
        """Creates the parts that need the learner's answer to the declaration."""
        port = self._port = self._declaration.port
        if port is not None:
            self._recorder = AgentRecorder(self.spec, port, clock=self._clock)
            self._take_seat()
            self._begin_evaluation()
        return port

    @property
    def in_flight(self) -> int:
        """Number of agents that were answered and have not reported again: each will complete a step."""
        if self._acted:
            self.record()
        return 0 if (active := self._active) is None else active.in_flight

    def may_act(self, in_flight: int) -> bool:
        """Returns whether waiting agents may be answered: there is a policy, credit, and no hold.

        Opponents need no credit. Where a behavior has self-play, its agents wait for a task.

        Args:
            in_flight: Answered agents of all teams of the behavior, which share the credit.
        """
        if self.policy is None or self._port is None or self._recorder is None or self.task.idles:
            return False
        if self._evaluation is not None:
            return not self.rests and self._port.may_act(self.policy)
        if self.task.seat is None and self._port.awaits_assignment:
            return False
        if self._opponents is not None:
            return not self._opponents.fault and self._port.may_act(self.policy)
        return self._port.may_step(self.agents_waiting + in_flight)

    def refuse(self, why: PolicyUnusable) -> None:
        """Refuses a policy that cannot act on the agents' observations; in training the agents wait for another.

        Args:
            why: The policy's error.

        Raises:
            PolicyUnusable: The task is an evaluation of that policy.
        """
        if self._evaluation is not None or self._port is None or self._recorder is None:
            raise why
        self.record()
        self.policy = None
        policy = self._newest = self._port.refuse(why)
        if policy is not None:
            self._recorder.swap(policy.generation, policy.version, policy.memory)
        self._choose()

    def choose(self, noise: Noise) -> Actions | None:
        """Returns the actions of waiting agents that are opponents; None until the policies of their matches are loaded.

        A policy that cannot act on their observations is reported, and they wait for another match.

        Args:
            noise: Source of random numbers.
        """
        self.record()
        if self._opponents is None:
            return None
        try:
            return self._opponents.choose(self.waiting, noise)
        except PolicyUnusable as why:
            self._opponents.fault = str(why)
            _log.warning("opponent_unusable", behavior=self.spec.name, team=self.team, reason=str(why))
            return None

    def remembered(self, policy: ActingPolicy) -> FloatArray | None:
        """Returns the memory of waiting agents, float32 [n, m]; None for a policy without memory."""
        return self._memories.of(policy, self.waiting)

    def acted(self, actions: Actions) -> None:
        """Notes the actions of the waiting agents, one row per agent in their order."""
        if actions.memory_out is not None:
            self._memories.keep(self.waiting, actions.memory_out)
        if self._untold is not None and self._active is self._recorder:
            self._tell_unused(self._untold)
        self._acted.append(_Acted(self.waiting, actions))
        self.waiting = []
        self.unrecorded = True

    def _tell_unused(self, script: ScriptedOpponent) -> None:
        """Warns once about a script that no agent uses. Where games are evaluated, no agent learns before them."""
        self._untold = None
        if self._port is not None and not self._port.awaits_assignment:
            _log.warning(
                "opponent_unused",
                behavior=self.spec.name,
                opponent=script.name,
                reason="the run file has no self_play for this behavior, so none of its agents is an opponent",
            )

    def record(self) -> None:
        """Records new reports and actions if the learner knows the behavior."""
        recorder = self._active
        if recorder is None or not self.unrecorded:
            return
        self.unrecorded = False
        for requests in self._arrivals():
            self._observe(recorder, requests)
        self._arrived.clear()
        for who, actions in self._acted:
            if self._observer is not None:
                self._observer.acted([(request.worker, request.asking) for request in who], actions)
            slots = [request.slots for request in who if request.slots is not None]
            recorder.act(slots[0] if len(slots) == 1 else np.concatenate(slots), actions)
        self._acted.clear()
        for worker, stats in self._stats:
            recorder.add_stats(worker, stats)
        self._stats.clear()
        self._declare_again(recorder.most_agents)

    def _arrivals(self) -> Iterator[list[AgentRequest]]:
        """Yields the new reports in their order; those of different simulators without an end are taken together."""
        found: list[AgentRequest] = []
        workers: set[int] = set()
        for request in self._arrived:
            if len(request.ended.ids) or request.worker in workers:
                if found:
                    yield found
                found, workers = [], set()
            found.append(request)
            workers.add(request.worker)
        if found:
            yield found

    def _observe(
        self, recorder: AgentEvaluationRound | OpponentRound | AgentRecorder, requests: Sequence[AgentRequest]
    ) -> None:
        """Records reports, of which only the first may have ended agents."""
        first = requests[0]
        if recorder is self._opponents:
            self._opponents.finish(first.worker, first.ended, first.results, first.games)
        else:
            recorder.finish(first.worker, first.ended, first.results)
        if isinstance(recorder, AgentRecorder):
            slots = recorder.observe_together(
                [(request.worker, request.asking, request.settings_revision) for request in requests]
            )
            begin = 0
            for request in requests:
                request.slots = slots[begin : begin + request.agents]
                begin += request.agents
        else:
            for request in requests:
                request.slots = recorder.observe(
                    request.worker, request.asking, settings_revision=request.settings_revision
                )
        if self._observer is not None:
            for request in requests:
                self._observer.ended(request.worker, request.ended)
                self._observer.observed(request.worker, request.asking)

    def _declare_again(self, agents: int) -> None:
        """Reports a larger number of agents to the learner, whose credit depends on it."""
        if agents > self._declared_agents and self._declaration.port is not None:
            self._declared_agents = agents
            self._declaration = self._link.declare_soon(self.spec, self.team, agents)

    def drop(self, worker: int, reason: str) -> None:
        """Forgets the agents of a simulator.

        Args:
            worker: Number of the environment.
            reason: Reason under which the books count their open rows as discarded.
        """
        if (active := self._forget(worker)) is not None:
            active.drop_env(worker, reason)

    def leave(self, worker: int) -> None:
        """Interrupts the episodes of a simulator that has gone. Those of evaluations and opponents do not count."""
        active = self._forget(worker)
        if isinstance(active, AgentRecorder):
            active.leave(worker)
        elif active is not None:
            active.drop_env(worker, LEFT)

    def _forget(self, worker: int) -> AgentEvaluationRound | OpponentRound | AgentRecorder | None:
        """Forgets what a simulator asked and its agents' memories; returns what still knows its agents."""
        self.record()
        self.waiting = [request for request in self.waiting if request.worker != worker]
        self._arrived = [request for request in self._arrived if request.worker != worker]
        self._memories.drop(worker)
        self._stale = tuple(each for each in self._stale if each != worker)
        if self._observer is not None:
            self._observer.dropped(worker)
        active = self._active
        if (
            self._recorder is not None and self._recorder is not active
        ):  # it has no open rows, since the evaluation began
            self._recorder.drop_env(worker, LEFT)
        return active

    def flush(self) -> None:
        """Sends closed segments, since no others will join them soon."""
        self.record()
        if (active := self._active) is not None:
            active.flush()

    def poll(self) -> None:
        """Sends data that is old enough."""
        if (active := self._active) is not None:
            active.poll()

    def end(self) -> None:
        """Ends all open segments and sends everything."""
        self.record()
        if (active := self._active) is not None:
            active.cut()


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

    def _begin(self, env: int, identity: int, episode: int, settings_revision: int) -> AgentEpisode:
        version = 0 if self.policy is None else self.policy.version
        counts = env not in self._stale and self._quota.begin()
        return AgentEpisode(env, identity, episode, settings_revision, version, counts=counts)

    def _end(self, player: AgentEpisode, end: SegmentEnd, result: int) -> None:
        policy = self.policy
        if not player.counts or policy is None:
            return
        if not player.steps:
            self._quota.lose()
            return
        self._finish(player.record(end, policy.version, result), is_known=player.is_usable)


class AgentMemories:
    """One memory per agent that a recurrent policy has answered; the memory of other agents is zeros.

    A memory lasts until the agent's episode ends, its simulator is lost or reset, or a policy of another generation
    acts. An agent that asks again before it was answered keeps its memory.

    Args:
        max_agents: Most agents of one simulator; beyond this, the agents that were answered longest ago are forgotten.
    """

    def __init__(self, max_agents: int = MAX_AGENTS) -> None:
        self._max_agents = max_agents
        self._generation: int | None = None
        self._known: dict[int, dict[int, FloatArray]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def of(self, policy: ActingPolicy, everyone: Sequence[AgentRequest]) -> FloatArray | None:
        """Returns the memory of asking agents, float32 [n, m], in their order; None for a policy without memory.

        Args:
            policy: The policy that will act.
            everyone: The asking agents.
        """
        if policy.generation != self._generation:
            self._known.clear()
            self._generation = policy.generation
        if not policy.memory.size:
            return None
        nothing = np.zeros(policy.memory.size, np.float32)
        found = [
            known.get(identity, nothing)
            for request in everyone
            for known in (self._known.get(request.worker, {}),)
            for identity in request.asking.ids.tolist()
        ]
        return np.array(found, np.float32).reshape(len(found), policy.memory.size)

    def keep(self, everyone: Sequence[AgentRequest], memory: FloatArray) -> None:
        """Stores the memories of the answered agents.

        Args:
            everyone: The asking agents.
            memory: float32 [n, m], in their order.
        """
        rows = iter(memory)
        for request in everyone:
            known = self._known.setdefault(request.worker, {})
            for identity in request.asking.ids.tolist():
                known.pop(identity, None)
                known[identity] = next(rows).copy()  # answered last; a view would keep the whole batch
            while len(known) > self._max_agents:
                del known[next(iter(known))]

    def ended(self, worker: int, ids: Iterable[int]) -> None:
        """Forgets agents of a simulator whose episodes ended."""
        known = self._known.get(worker)
        if known:
            for identity in ids:
                known.pop(identity, None)

    def drop(self, worker: int) -> None:
        """Forgets the agents of a simulator."""
        self._known.pop(worker, None)
