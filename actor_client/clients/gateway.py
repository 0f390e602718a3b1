"""Acts for all clients of a process: takes their messages, acts in one batch per policy, and answers them.

Everything runs in one event loop, which also carries the clients' transports and the connection to the learner. A message is
read where it arrives. The gateway acts when all clients that are soon to ask have asked (`actor_client.clients.window`), and
records the steps once the answers are on their way.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import structlog
from rollcast import limits
from rollcast.enums import SegmentEnd, StatAggregation
from rollcast.errors import BadSpec
from rollcast.specs import BehaviorSpec, mismatches
from rollcast.text import printable
from rollcast.throttle import Throttle
from rollcast.v1 import client_pb2

from actor_client.clients.access import ClientAccess
from actor_client.clients.conversation import Conversation
from actor_client.clients.counts import ClientCounts
from actor_client.clients.messages import BadClientData, shown
from actor_client.clients.simulator import ClientExchange, ClientSimulator
from actor_client.clients.steps import Part
from actor_client.clients.window import Window
from actor_client.connection.session import RunInfo
from actor_client.counts import AgentCounts
from actor_client.envs.seeds import player_seed
from actor_client.heartbeat import Heartbeat
from actor_client.rollout.agents.interface import AgentRequest, Observer
from actor_client.rollout.agents.loop import AgentLoop
from actor_client.rollout.agents.runner import BehaviorRunner
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.link import AgentLink

WAIT_SECONDS: Final = 0.05
"""Longest time between two looks at what is due, and the age at which closed segments are sent."""
HELLO_SECONDS: Final = 10.0
"""Seconds in which a client that connected says who it is."""
MAX_BEHAVIORS: Final = 64
"""Behaviors of one client."""
MAX_IDS: Final = 1024
"""Behavior ids of all clients together."""
MAX_TEAMS: Final = 64
"""Teams of a behavior, which a learner limits."""
MAX_NAME: Final = 128
_SPARE: Final = 64
"""Conversations without a seat, in addition to those of all seats."""
_EXPLAINED: Final = 400
"""Most characters of what a goodbye quotes."""

_log = structlog.get_logger(__name__)


class GatewayLink(AgentLink, Protocol):
    """One session of an actor that acts in the connection's event loop."""

    @property
    def behaviors(self) -> tuple[str, ...]:
        """Names in the run file; empty if any name is allowed."""

    @property
    def stopping(self) -> bool:
        """True once the actor must end."""

    @property
    def stop_reason(self) -> str:
        """The reason for the end, for logs."""

    def on_change(self, listener: Callable[[], object]) -> None:
        """Calls a listener at each change: credit, hold, policy, stop."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What a gateway allows its clients.

    Attributes:
        max_clients: Most clients with a seat.
        window_seconds: Longest wait of a client for the others of a batch.
    """

    max_clients: int = 1024
    window_seconds: float = 0.002


class Gateway:
    """Serves all clients of one process until the link stops. All methods are for the event loop's thread.

    Args:
        link: The connection; opened already.
        run: The answer of `link.open`.
        bounds: What clients may do.
        access: Who may be a client.
        script: Plays opponents; None if their policies do.
        observe: Creates the observer of a behavior id; None observes none.
        heartbeat: Updated several times a second.
        clock: Monotonic seconds.

    Attributes:
        counts: Counts of the clients.
        agent_counts: Counts of their agents.
    """

    def __init__(
        self,
        link: GatewayLink,
        run: RunInfo,
        bounds: GatewayLimits = GatewayLimits(),
        access: ClientAccess | None = None,
        *,
        script: ScriptedOpponent | None = None,
        observe: Callable[[BehaviorSpec, int], Observer] | None = None,
        heartbeat: Heartbeat | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._run = run
        self._limits = bounds
        self._access = access or ClientAccess(None)
        self._heartbeat = heartbeat or Heartbeat()
        self._clock = clock
        self.counts = ClientCounts()
        self.agent_counts = AgentCounts()
        self._rollout = link.counts
        self._conversations: dict[Conversation, None] = {}
        self._strangers: dict[Conversation, None] = {}
        self._seats: dict[int, Conversation] = {}
        self._simulators: dict[int, ClientSimulator] = {}
        self._free: list[int] = []
        self._lives: list[int] = []
        self._window = Window(bounds.window_seconds)
        self._loop = AgentLoop(
            link,
            run.assignment,
            self._simulators.values(),
            self.agent_counts,
            script=script,
            observe=observe,
            clock=clock,
        )
        self._notices = Throttle(clock=clock)
        self._events = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        self._due: asyncio.Handle | None = None
        self._tend_due = clock()
        self._is_recorded = True
        self._is_over = False
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Acts until the link stops; then sends the recorded data and says goodbye. Called once.

        Raises:
            PolicyUnusable: A policy failed on the clients' observations, and no other policy is available.
        """
        self._link.on_change(lambda: self._events.call_soon_threadsafe(self._bell.set))
        try:
            while not self._link.stopping:
                if self._failure is not None:
                    raise self._failure
                self._heartbeat.beat()
                self._follow()
                self._bell.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_SECONDS):
                        await self._bell.wait()
                if self._clock() >= self._tend_due:
                    self._tend()
            if self._failure is not None:
                raise self._failure
        finally:
            self._is_over = True
            if self._due is not None:
                self._due.cancel()
            self._loop.end()
            why = printable(self._link.stop_reason or "the gateway ends", _EXPLAINED)
            for conversation in list(self._conversations):
                conversation.end(f"the run is over for this gateway: {why}")

    def _follow(self) -> None:
        """Applies what has changed in the connection, and acts for agents that were held until then."""
        self._record()
        self._loop.follow()
        self._turn_away()
        if any(runner.waiting for runner in self._loop) and self._window.wait_seconds(self._clock()) in (None, 0.0):
            self._act()

    def _tend(self) -> None:
        """Does what is due from time to time."""
        self._tend_due = self._clock() + WAIT_SECONDS
        self._loop.note_waits()
        self._loop.poll()
        late = self._clock() - HELLO_SECONDS
        for conversation in [each for each in self._strangers if each.heard_at < late]:
            conversation.end(f"no hello came within {HELLO_SECONDS:g} s")
            conversation.hang_up()

    def accept(self, transport: str, peer: str) -> Conversation:
        """Returns the conversation with a client that connected; one that is over already if there are too many.

        Args:
            transport: What carries its messages: ``grpc``, ``websocket`` or ``http``.
            peer: Its address, for the log.
        """
        conversation = Conversation(self, transport, peer, clock=self._clock)
        if self._is_over:
            conversation.goodbye = "the gateway ends"
        elif len(self._conversations) >= self._limits.max_clients + _SPARE:
            conversation.goodbye = self._full
            self._count_refusal(conversation, conversation.goodbye)
        else:
            self._conversations[conversation] = self._strangers[conversation] = None
        return conversation

    @property
    def _full(self) -> str:
        return (
            f"this gateway serves at most {self._limits.max_clients} clients at once (--max-clients): come back later, or "
            "start another gateway"
        )

    def take(self, conversation: Conversation, request: client_pb2.PlayRequest) -> Future[client_pb2.PlayResponse]:
        """Takes a message; returns its answer, which may have come already.

        Raises:
            BadClientData: The message cannot be used.
        """
        self._record()
        simulator = conversation.simulator
        if simulator is None:
            simulator = self._seat(conversation, request)
        elif request.HasField("hello"):
            raise BadClientData("hello came twice; send it in the first message only")
        parts = simulator.reader.read(request.steps)
        runners = [self._runner(part) for part in parts]
        stats = _statistics(request.statistics) if request.statistics else ()
        future: Future[client_pb2.PlayResponse] = self._events.create_future()
        exchange = ClientExchange(simulator, parts, future, self._answered)
        asks = False
        for runner, part in zip(runners, parts, strict=True):
            asks |= bool(len(part.asking.ids))
            self._count(simulator, part)
            runner.add(
                AgentRequest(
                    exchange,
                    part.form.behavior_id,
                    part.asking,
                    part.ended,
                    settings_revision=simulator.revision,
                    results=part.results,
                )
            )
        for runner in (runners or list(self._loop)) if stats else ():
            runner.add_stats(simulator.worker, stats)
        if not asks or simulator.reset_due:
            self._loop.finish(exchange)
            self._record_soon()
        else:
            self._window.asked(conversation, self._clock())
            self._act_when_due()
        return future

    def _count(self, simulator: ClientSimulator, part: Part) -> None:
        if len(part.ended.ids):
            simulator.ended()
            self._rollout.ended(np.where(part.ended.interrupted, SegmentEnd.TRUNCATED, SegmentEnd.TERMINATED).tolist())
        for faulty in (part.asking.faulty, part.ended.faulty):
            if faulty is not None and faulty.any():
                self.agent_counts.faulty_agents += int(faulty.sum())
                if (left_out := self._notices.admit("not_finite")) is not None:
                    _log.warning(
                        "not_finite",
                        client=simulator.name,
                        behavior=part.form.behavior_id,
                        agents=self.agent_counts.faulty_agents,
                        consequence="rows with NaN, infinity or numbers above 1e15 are not trained",
                        left_out=left_out,
                    )

    def _act_when_due(self) -> None:
        """Acts in the next round of the event loop, or after the rest of the window: messages that are there come first."""
        wait_seconds = self._window.wait_seconds(self._clock())
        if wait_seconds is None or (self._due is not None and wait_seconds > 0):
            return
        if self._due is not None:
            self._due.cancel()
        self._due = (
            self._events.call_later(wait_seconds, self._come)
            if wait_seconds > 0
            else self._events.call_soon(self._guarded, self._act_soon)
        )

    def _come(self) -> None:
        self._due = None
        self._act_when_due()

    def _act_soon(self) -> None:
        self._due = None
        self._act()

    def _act(self) -> None:
        """Acts for all agents that may act, and answers their clients."""
        self._window.acted()
        self._record()
        self._loop.follow()
        self._loop.act()
        self._record_soon()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Does something in a round of its own of the event loop; a failure ends the gateway."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised in `run`
            self._failure = error
            self._bell.set()

    def _answered(self, simulator: ClientSimulator) -> None:
        self.counts.exchanges += 1
        self._window.answered(self._seats[simulator.worker], self._clock())

    def _record_soon(self) -> None:
        """Records once the answers have been handed to the transports."""
        if self._is_recorded:
            self._is_recorded = False
            self._events.call_soon(self._guarded, self._record)

    def _record(self) -> None:
        """Records what was answered: a later report of the same agents must not come before."""
        if not self._is_recorded:
            self._is_recorded = True
            self._loop.record()

    def _seat(self, conversation: Conversation, request: client_pb2.PlayRequest) -> ClientSimulator:
        """Gives a client that says who it is a seat.

        Raises:
            BadClientData: It may not be a client, or there is no seat.
        """
        if not request.HasField("hello"):
            raise BadClientData("the first message has no hello; begin with one that declares your behaviors")
        hello = request.hello
        if fault := self._access.fault(hello.token):
            raise BadClientData(fault)
        if len(self._simulators) >= self._limits.max_clients:
            raise BadClientData(self._full)
        if len(hello.name) > MAX_NAME:
            raise BadClientData(f"hello.name has {len(hello.name)} characters; at most {MAX_NAME} are allowed")
        specs = self._specs(hello)
        worker = heapq.heappop(self._free) if self._free else len(self._lives)
        if worker == len(self._lives):
            self._lives.append(0)
        name = printable(hello.name) or conversation.peer
        seed = player_seed(self._run.run_seed, self._run.actor_index, worker, life=self._lives[worker])
        self._lives[worker] += 1
        simulator = ClientSimulator(worker, name, specs, seed, self._loop.assignment)
        conversation.simulator = self._simulators[worker] = simulator
        self._seats[worker] = conversation
        del self._strangers[conversation]
        self.counts.connected[conversation.transport] += 1
        self._say(worker, "client_connected", client=name, transport=conversation.transport, peer=conversation.peer)
        return simulator

    def _say(self, worker: int, event: str, **fields: object) -> None:
        """Logs what happens to a seat, but not each time that a client comes and goes within seconds."""
        if (left_out := self._notices.admit((event, worker))) is not None:
            _log.info(event, worker=worker, **fields, left_out=left_out)

    def _specs(self, hello: client_pb2.Hello) -> Mapping[str, BehaviorSpec]:
        """Returns the behaviors of a hello, by name.

        Raises:
            BadClientData: One of them cannot be used in this run.
        """
        if not 1 <= len(hello.behaviors) <= MAX_BEHAVIORS:
            raise BadClientData(f"hello declares {len(hello.behaviors)} behaviors; 1 to {MAX_BEHAVIORS} are allowed")
        known = {runner.spec.name: runner.spec for runner in self._loop}
        allowed = self._link.behaviors
        specs: dict[str, BehaviorSpec] = {}
        for message in hello.behaviors:
            try:
                spec = BehaviorSpec.from_message(message)
            except BadSpec as error:
                raise BadClientData(f"behavior {shown(message.name)}: {error}") from None
            if spec.name in specs:
                raise BadClientData(f"behavior {shown(spec.name)} is declared twice in hello; declare it once")
            if allowed and spec.name not in allowed:
                raise BadClientData(
                    f"behavior {shown(spec.name)} is not in the run file, which has {', '.join(allowed)}; "
                    "rename it, or add it to the run file"
                )
            if spec.name in known:
                _compare(known[spec.name], spec)
            specs[spec.name] = spec
        return specs

    def _runner(self, part: Part) -> BehaviorRunner:
        """Returns the runner for some agents; declares a new behavior id.

        Raises:
            BadClientData: Another client has this behavior with other observations or actions.
        """
        spec, team = part.form.spec, part.form.team
        runner = self._loop.find(spec.name, team)
        if runner is None:
            known = list(self._loop)
            if len(known) >= MAX_IDS:
                raise BadClientData(f"the clients have {MAX_IDS} behavior ids together, the maximum; use fewer teams")
            others = [other for other in known if other.spec.name == spec.name]
            for other in others:
                _compare(other.spec, spec)
            if len(others) >= MAX_TEAMS:
                raise BadClientData(f"behavior {shown(spec.name)} has {MAX_TEAMS} teams, the maximum; use fewer teams")
            runner = self._loop.add(spec, team, max(1, len(part.asking.ids)))
            _log.info("acting", behavior=f"{spec.name}?team={team}")
        if part.form.agreed is not runner.spec:  # once: it costs as much as reading a message
            _compare(runner.spec, spec)
            part.form.agreed = runner.spec
        return runner

    def _turn_away(self) -> None:
        """Refuses the clients whose agents have a behavior that the learner does not take."""
        for runner in [runner for runner in self._loop if runner.refusal]:
            self._loop.remove(runner)
            for worker in {request.worker for request in runner.waiting}:
                self._seats[worker].refuse(f"behavior {shown(runner.spec.name)}: {runner.refusal[:_EXPLAINED]}")

    def refused(self, conversation: Conversation, fault: str) -> None:
        """Counts a refusal, and warns of it."""
        self._count_refusal(conversation, fault)

    def _count_refusal(self, conversation: Conversation, fault: str) -> None:
        self.counts.refused += 1
        if (left_out := self._notices.admit("refused")) is not None:
            simulator = conversation.simulator
            _log.warning(
                "client_refused",
                client="" if simulator is None else simulator.name,
                transport=conversation.transport,
                peer=conversation.peer,
                reason=fault,
                left_out=left_out,
            )

    def left(self, conversation: Conversation, why: str) -> None:
        """Ends the episodes of a client's agents, and frees its seat."""
        self._conversations.pop(conversation, None)
        self._strangers.pop(conversation, None)
        self._window.gone(conversation)
        simulator, conversation.simulator = conversation.simulator, None
        if simulator is None:
            return
        self.counts.connected[conversation.transport] -= 1
        self.counts.left += 1
        if not self._is_over:
            self._loop.leave(simulator.worker)
            self._is_recorded = True
            self._say(simulator.worker, "client_left", client=simulator.name, why=why)
        del self._simulators[simulator.worker], self._seats[simulator.worker]
        heapq.heappush(self._free, simulator.worker)


def _compare(run: BehaviorSpec, client: BehaviorSpec) -> None:
    """Compares a client's behavior with that of the run.

    Raises:
        BadClientData: They differ.
    """
    if run != client and (differences := mismatches(run, client)):
        raise BadClientData(
            f"behavior {shown(client.name)} differs from that of the run: {'; '.join(differences)[:_EXPLAINED]}; "
            "declare it as the first client did"
        )


def _statistics(statistics: Mapping[str, float]) -> Sequence[tuple[str, float, StatAggregation]]:
    """Returns the numbers of a message for the run's curves.

    Raises:
        BadClientData: There are too many.
    """
    if len(statistics) > limits.MAX_STAT_KEYS:
        raise BadClientData(f"statistics has {len(statistics)} names; at most {limits.MAX_STAT_KEYS} are allowed")
    return [(name, value, StatAggregation.AVERAGE) for name, value in statistics.items()]
