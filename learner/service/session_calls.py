"""SessionService: who takes part; see session.proto."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

import structlog
from rollcast.errors import (
    BadRequest,
    Draining,
    ProtocolTooOld,
    SessionExpired,
    SessionFenced,
    TooManySessions,
    WireError,
)
from rollcast.limits import OLDEST_PROTOCOL_REVISION, PROTOCOL_REVISION
from rollcast.specs import BehaviorSpec
from rollcast.v1 import session_pb2

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.session import ActorCounters, ActorSession, PolicyState, check_agents
from learner.ingest.sessions import Opened, Opening, Resumption, SessionTable
from learner.ingest.times import ActorTimes, report_seconds
from learner.observe.metrics.learner import SessionMetrics
from learner.observe.rates import Throttle
from learner.service.hub import Hub
from learner.service.methods import BytesContext, Handlers, unary
from learner.service.run_info import RunInfo

NAME: Final = session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name
COLUMN_ENCODINGS: Final = ("zstd",)
MAX_TEXT_CHARACTERS: Final = 256
MAX_REPORTS: Final = 1024
_REFUSALS: Final[Mapping[type[WireError], str]] = MappingProxyType(
    {SessionFenced: "fenced", TooManySessions: "full", Draining: "draining"}
)
"""What an opening counts as in the metrics; others are `refused`."""

_log = structlog.get_logger(__name__)


class SessionService:
    """Opens, renews and ends sessions, and takes declarations."""

    def __init__(
        self,
        hub: Hub,
        sessions: SessionTable,
        behaviors: BehaviorTable,
        run: RunInfo,
        *,
        metrics: SessionMetrics,
        newest_version: Callable[[str], int | None],
    ) -> None:
        self._newest_version = newest_version
        self._metrics = metrics
        self._hub = hub
        self._sessions = sessions
        self._behaviors = behaviors
        self._run = run
        self._unusable = Throttle()
        # Not the loop's own, in which policies are encoded; and one, as judgements at the same time take as long together.
        self._judging = ThreadPoolExecutor(1, thread_name_prefix="judge")

    def handlers(self) -> Handlers:
        """Returns the methods."""
        return {
            "OpenSession": unary(session_pb2.OpenSessionRequest, self.open_session),
            "DeclareBehavior": unary(session_pb2.DeclareBehaviorRequest, self.declare_behavior),
            "RenewSession": unary(session_pb2.RenewSessionRequest, self.renew_session),
            "CloseSession": unary(session_pb2.CloseSessionRequest, self.close_session),
        }

    async def open_session(
        self, request: session_pb2.OpenSessionRequest, context: BytesContext
    ) -> session_pb2.OpenSessionResponse:
        """Opens a session, or resumes one."""
        opened = self._open(request)
        session = opened.session
        for over in opened.ended:
            self._hub.forget(over, SessionExpired(f"session {over.session_id} ended: its actor opened another one"))
        self._hub.end_streams(session, SessionFenced(f"session {session.session_id} was opened again"))
        self._note_opened(opened, request, context)
        return session_pb2.OpenSessionResponse(
            protocol_revision=min(request.protocol_revision, PROTOCOL_REVISION),
            session_id=session.session_id,
            epoch=session.epoch,
            run_id=self._run.run_id,
            generation=self._run.generation,
            actor_index=session.actor_index,
            run_seed=self._run.run_seed,
            lease_ms=self._lease_ms,
            limits=self._run.limits,
            resumed=opened.resumed,
            next_sequence=session.next_sequence,
            behaviors=self._run.behaviors,
            environment_settings=self._run.environment_settings,
            engine_settings=self._run.engine_settings,
            column_encodings=COLUMN_ENCODINGS,
            server_version=self._run.server_version,
            assignment=self._hub.opening_assignment(session, resumed=opened.resumed),
        )

    def _open(self, request: session_pb2.OpenSessionRequest) -> Opened:
        outcome = "refused"
        try:
            _check_revision(request.protocol_revision)
            opening = _opening(request)
            self._hub.check_admission()
            opened = self._sessions.open(opening)
            outcome = "resumed" if opened.resumed else "ok"
        except WireError as error:
            outcome = _REFUSALS.get(type(error), outcome)
            raise
        finally:
            self._metrics.opened[outcome].inc()
        return opened

    async def declare_behavior(
        self, request: session_pb2.DeclareBehaviorRequest, _context: BytesContext
    ) -> session_pb2.DeclareBehaviorResponse:
        """Takes a declaration; the first one of the run defines the behavior."""
        outcome = "refused"
        try:
            response = await self._declare(request)
            outcome = "ok"
        finally:
            self._metrics.declared[outcome].inc()
        return response

    async def _declare(self, request: session_pb2.DeclareBehaviorRequest) -> session_pb2.DeclareBehaviorResponse:
        session = self._sessions.get(request.session_id, request.epoch)
        check_agents(request.agents)
        spec = BehaviorSpec.from_message(request.spec)
        agents = request.agents + self._sessions.agents(spec.name, besides=session)
        behavior = await self._declared(session, spec, request.team, agents)
        session = self._sessions.get(request.session_id, request.epoch)  # it may have been closed meanwhile
        is_new = behavior.index not in session.accounts
        self._sessions.declare(session, behavior, request.team, request.agents)
        self._hub.declared(session, behavior)
        if is_new:
            _log.info("behavior_declared", behavior=behavior.name, actor=session.actor_name, agents=request.agents)
        return session_pb2.DeclareBehaviorResponse(
            behavior_index=behavior.index,
            time_horizon=behavior.time_horizon,
            memory_stride=behavior.memory_stride,
            max_policy_lag=behavior.max_policy_lag,
            cut_at_swap=behavior.cut_at_swap,
            training=behavior.training,
        )

    async def _declared(self, session: ActorSession, spec: BehaviorSpec, team: int, agents: int) -> Behavior:
        """Returns the behavior of a declaration; one that must be judged first waits for its turn, and keeps its lease."""
        if self._behaviors.by_name(spec.name) is not None:
            return self._behaviors.declare(spec, team, agents)
        judged = asyncio.get_running_loop().run_in_executor(self._judging, self._behaviors.declare, spec, team, agents)
        try:
            while not (await asyncio.wait({judged}, timeout=self._sessions.lease_seconds / 3))[0]:
                self._sessions.touch(session)  # the actor is not lost: it waits for an answer
        finally:
            judged.cancel()  # of no effect once there is an answer
        return judged.result()

    async def renew_session(
        self, request: session_pb2.RenewSessionRequest, _context: BytesContext
    ) -> session_pb2.RenewSessionResponse:
        """Keeps a lease."""
        session = self._sessions.get(request.session_id, request.epoch)
        if len(request.policies) > MAX_REPORTS:
            raise BadRequest(f"{len(request.policies)} policies in one report; at most {MAX_REPORTS} are allowed")
        policies = [PolicyState.from_message(policy) for policy in request.policies]
        times = ActorTimes.from_message(request.times) if request.HasField("times") else None
        for policy in policies:
            if policy.error and policy not in session.policies and self._unusable.admit(session.session_id) is not None:
                _log.warning("policy_not_usable", actor=session.actor_name, version=policy.version, error=policy.error)
        self._sessions.renew(session, _reports(request.books))
        session.note_policies(policies, self._newest_version, self._run.generation)
        if times is not None:
            session.times.add(times, session.last_seen)
        self._hub.reported(session)
        report_ms = round(report_seconds(len(self._sessions.live())) * 1000)
        return session_pb2.RenewSessionResponse(lease_ms=self._lease_ms, report_ms=report_ms)

    async def close_session(
        self, request: session_pb2.CloseSessionRequest, _context: BytesContext
    ) -> session_pb2.CloseSessionResponse:
        """Ends a session."""
        session = self._sessions.get(request.session_id, request.epoch)
        self._sessions.close(session, _reports(request.books))
        self._hub.forget(session, None)
        self._metrics.closed.inc()
        log = _log.warning if request.reason > session_pb2.CLOSE_REASON_DONE else _log.info
        log(
            "actor_left",
            actor=session.actor_name,
            actor_index=session.actor_index,
            reason=_close_reason(request.reason),
            message=request.message[:MAX_TEXT_CHARACTERS],
        )
        return session_pb2.CloseSessionResponse()

    def expire(self) -> None:
        """Ends the sessions whose lease ran out; to be called every now and then."""
        for session in self._sessions.expire():
            self._metrics.expired.inc()
            _log.warning("actor_lost", actor=session.actor_name, actor_index=session.actor_index, why="lease ran out")
            self._hub.forget(
                session,
                SessionExpired(
                    f"the lease of session {session.session_id} ran out after {self._sessions.lease_seconds:g} s "
                    "without a word: renew every third of it",
                    metadata={"session_id": session.session_id},
                ),
            )

    @property
    def _lease_ms(self) -> int:
        return max(1, round(self._sessions.lease_seconds * 1000))

    def _note_opened(self, opened: Opened, request: session_pb2.OpenSessionRequest, context: BytesContext) -> None:
        _log.info(
            "actor_resumed" if opened.resumed else "actor_joined",
            actor=opened.session.actor_name,
            actor_index=opened.session.actor_index,
            session=opened.session.session_id,
            epoch=opened.session.epoch,
            client=request.client_version[:MAX_TEXT_CHARACTERS],
            peer=context.peer(),
        )


def _check_revision(revision: int) -> None:
    if revision < OLDEST_PROTOCOL_REVISION:
        raise ProtocolTooOld(
            f"the actor speaks revision {revision} of the protocol, and this learner needs "
            f"{OLDEST_PROTOCOL_REVISION} at least: update the actor",
            metadata={"revision": str(revision), "oldest_revision": str(OLDEST_PROTOCOL_REVISION)},
        )


def _opening(request: session_pb2.OpenSessionRequest) -> Opening:
    name = request.actor_name
    if not 1 <= len(name) <= MAX_TEXT_CHARACTERS or not name.isprintable():
        raise BadRequest(
            f"actor_name has {len(name)} characters; 1 to {MAX_TEXT_CHARACTERS} printable ones are allowed",
            metadata={"field": "actor_name"},
        )
    try:
        instance_id = str(uuid.UUID(request.instance_id))
    except ValueError:
        raise BadRequest(
            f"instance_id {request.instance_id[:64]!r} is no UUID", metadata={"field": "instance_id"}
        ) from None
    resume = None
    if request.HasField("resume"):
        asked = request.resume
        resume = Resumption(
            session_id=asked.session_id,
            epoch=asked.epoch,
            generation=asked.generation,
            acked_through=asked.acked_through,
            reports=tuple(_reports(asked.books)),
        )
        if max(resume.epoch, resume.acked_through) >= 2**62:
            raise BadRequest(f"epoch {resume.epoch} or sequence {resume.acked_through} is out of bounds")
    return Opening(name, instance_id, resume)


def _reports(books: Iterable[session_pb2.ActorBooks]) -> list[ActorCounters]:
    reports = [ActorCounters.from_message(message) for message in books]
    if len(reports) > MAX_REPORTS:
        raise BadRequest(f"{len(reports)} books in one report; at most {MAX_REPORTS} are allowed")
    return reports


def _close_reason(reason: int) -> str:
    names = session_pb2.CloseReason.DESCRIPTOR.values_by_number
    return names[reason].name.removeprefix("CLOSE_REASON_").lower() if reason in names else str(reason)
