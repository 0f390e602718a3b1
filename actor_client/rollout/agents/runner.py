"""One behavior id over all simulators: who asks, what acts, and what is still to be recorded."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from rollcast.enums import StatAggregation
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import ActingPolicy, Actions, FloatArray, PolicyUnusable
from actor_client.rollout.agents.evaluation import AgentEvaluationRound
from actor_client.rollout.agents.interface import AgentRequest, Observer
from actor_client.rollout.agents.memories import AgentMemories
from actor_client.rollout.agents.recorder import AgentRecorder
from actor_client.rollout.assignment import Task
from actor_client.rollout.link import AgentLink, BehaviorLink

StatRecord = tuple[str, float, StatAggregation]
"""Key, value, and how values of the key are put together."""


class _Acted(NamedTuple):
    """Agents that were answered; `actions` has their rows in order."""

    requests: list[AgentRequest]
    actions: Actions


class BehaviorRunner:
    """One behavior id. All methods are for the stepping thread.

    Recording is put off until simulators have their answers: what a simulator does with them and what is recorded of its
    last message then happen at the same time. `record` must come before anything that looks at rows.

    Args:
        link: The connection; the behavior is declared to it.
        spec: What agents see and do.
        team: Their team.
        agents: How many there are by now.
        task: What is asked for.
        stale: Simulators that are not reset for it yet.
        observer: Follows the agents; None for none.
        clock: Monotonic seconds.

    Attributes:
        spec: The same.
        team: The same.
        waiting: Who asks and has no actions.
        policy: What acts; None before there is one.
        unrecorded: Whether there is something to record.
        task: What is asked for.
        rests: An evaluation is over, for all: nobody is answered until there is another assignment.
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
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.task = task or Task()
        self.rests = False
        self._stale = tuple(stale)
        self._observer = observer
        self._newest: ActingPolicy | None = None
        self._evaluation: AgentEvaluationRound | None = None
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
        """Number of agents that ask and have no actions, n."""
        return sum(request.agents for request in self.waiting)

    @property
    def missing(self) -> str:
        """Why those who wait are not answered, in a word of `actor_client.counts.WAIT_REASONS`."""
        return "policy" if self._port is None else self._port.missing

    @property
    def is_done(self) -> bool:
        """True if it has played all episodes of its evaluation, those included that ended just now."""
        self.record()
        return self._evaluation is not None and self._evaluation.is_done

    def assign(self, task: Task, *, stale: Collection[int]) -> None:
        """Begins another task. What was recorded is sent.

        Args:
            task: What is asked for.
            stale: Simulators that will be reset if an evaluation begins or ends.
        """
        self.record()
        if (active := self._active) is not None:
            active.cut()
        self.task, self._stale, self.rests = task, tuple(stale), False
        self._begin_evaluation()

    @property
    def _active(self) -> AgentEvaluationRound | AgentRecorder | None:
        """The recorder, or the evaluation round that takes its place."""
        return self._recorder if self._evaluation is None else self._evaluation

    def _begin_evaluation(self) -> None:
        """Begins an evaluation if one is asked for, or ends it."""
        self._evaluation = None
        if self.task.evaluates and self._port is not None:
            self._evaluation = AgentEvaluationRound(
                self.task, self.spec, self._port, stale=self._stale, clock=self._clock
            )
        self._choose()

    def _choose(self) -> None:
        """Chooses what acts."""
        if self._evaluation is not None:
            self._evaluation.choose(self._newest)
            self.policy = self._evaluation.policy
        elif self._newest is not None:
            self.policy = self._newest.greedy() if self.task.deterministic else self._newest

    def add(self, request: AgentRequest) -> None:
        """Takes what one message says of this behavior id."""
        self._arrived.append(request)
        self._memories.ended(request.worker, request.ended.ids.tolist())
        if request.agents:
            self.waiting.append(request)
        self.unrecorded = True

    def add_stats(self, worker: int, stats: Sequence[StatRecord]) -> None:
        """Takes statistics that came along."""
        self._stats.append((worker, stats))
        self.unrecorded = True

    def follow(self) -> None:
        """Does between two steps what the connection asks for."""
        port = self._port or self._begin()
        recorder = self._recorder
        if port is None or recorder is None:
            return
        if port.session_lost:
            self.record()
            # In the books of the session that was lost; begin_session opens new ones.
            recorder.discard("session_lost")
            port.begin_session()
        policy = port.take_policy()
        if policy is not None:
            self.record()  # whoever waits will be answered by the new one: its rows end with what is seen now
            recorder.swap(policy.generation, policy.version, policy.memory)
            self._newest = policy
        if policy is not None or self._evaluation is not None:
            self._choose()

    def _begin(self) -> BehaviorLink | None:
        """Makes what needs the learner's answer to the declaration."""
        port = self._port = self._declaration.port
        if port is not None:
            self._recorder = AgentRecorder(self.spec, port, clock=self._clock)
            self._begin_evaluation()
        return port

    @property
    def in_flight(self) -> int:
        """Agents that were answered and have not shown up again: each will make a step."""
        if self._acted:
            self.record()
        return 0 if (active := self._active) is None else active.in_flight

    def may_act(self, in_flight: int) -> bool:
        """True if those who wait may be answered: there is a policy, credit, and no hold.

        Args:
            in_flight: Agents of all teams of the behavior that were answered: credit is for all of them.
        """
        if self.policy is None or self._port is None or self._recorder is None or self.task.idles:
            return False
        if self._evaluation is not None:
            return not self.rests and self._port.may_act(self.policy)
        return self._port.may_step(self.agents_waiting + in_flight)

    def refuse(self, why: PolicyUnusable) -> None:
        """The policy cannot act on what agents see: they wait for another one, if it was to learn.

        Args:
            why: What the policy raised.

        Raises:
            PolicyUnusable: In an evaluation, which is of that policy.
        """
        if self._evaluation is not None or self._port is None or self._recorder is None:
            raise why
        self.record()
        self.policy = None
        policy = self._newest = self._port.refuse(why)
        if policy is not None:
            self._recorder.swap(policy.generation, policy.version, policy.memory)
        self._choose()

    def remembered(self, policy: ActingPolicy) -> FloatArray | None:
        """Returns what those who wait remember, float32 [n, m]; None for a policy without memory."""
        return self._memories.of(policy, self.waiting)

    def acted(self, actions: Actions) -> None:
        """Those who waited were told to do this; one row an agent, in their order."""
        if actions.memory_out is not None:
            self._memories.keep(self.waiting, actions.memory_out)
        self._acted.append(_Acted(self.waiting, actions))
        self.waiting = []
        self.unrecorded = True

    def record(self) -> None:
        """Records what arrived and what was done, as far as the learner knows the behavior."""
        recorder = self._active
        if recorder is None or not self.unrecorded:
            return
        self.unrecorded = False
        for request in self._arrived:
            recorder.finish(request.worker, request.ended)
            request.slots = recorder.observe(
                request.worker, request.asking, settings_revision=request.settings_revision
            )
            if self._observer is not None:
                self._observer.ended(request.worker, request.ended)
                self._observer.observed(request.worker, request.asking)
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

    def _declare_again(self, agents: int) -> None:
        """Tells the learner of more agents than it knows of: its credit goes by them."""
        if agents > self._declared_agents and self._declaration.port is not None:
            self._declared_agents = agents
            self._declaration = self._link.declare_soon(self.spec, self.team, agents)

    def drop(self, worker: int, reason: str) -> None:
        """Forgets the agents of a simulator.

        Args:
            worker: Number of the environment.
            reason: The word of the books for their open rows.
        """
        self.record()
        self.waiting = [request for request in self.waiting if request.worker != worker]
        self._arrived = [request for request in self._arrived if request.worker != worker]
        self._memories.drop(worker)
        if self._observer is not None:
            self._observer.dropped(worker)
        if (active := self._active) is not None:
            active.drop_env(worker, reason)

    def flush(self) -> None:
        """Sends what is closed: nothing will join it soon."""
        self.record()
        if (active := self._active) is not None:
            active.flush()

    def poll(self) -> None:
        """Sends what is old enough."""
        if (active := self._active) is not None:
            active.poll()

    def end(self) -> None:
        """Ends all open segments and sends everything."""
        self.record()
        if (active := self._active) is not None:
            active.cut()
