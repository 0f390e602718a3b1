"""SessionService: opens and ends sessions, and accepts declarations; see session.proto."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

import structlog
from rollcast.auth import Principal, Role
from rollcast.errors import (
    BadRequest,
    Draining,
    ProtocolTooOld,
    Quarantined,
    RingTooSmall,
    SessionExpired,
    SessionFenced,
    TooManyAgents,
    TooManyCalls,
    TooManySessions,
    Unauthenticated,
    UnknownBehavior,
    WireError,
)
from rollcast.limits import (
    MAX_DECLARATION_BYTES,
    OLDEST_PROTOCOL_REVISION,
    PROTOCOL_REVISION,
    SCRIPT_PATTERN,
)
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle
from rollcast.v1 import session_pb2

from learner.service.calls.budgets import Budget
from learner.service.calls.form_faults import FormFaults
from learner.service.calls.methods import BOUND, BytesContext, Handlers, check_entries, unary
from learner.service.calls.run_info import RunInfo
from learner.service.calls.session_router import SessionRouter
from learner.service.identity.access import CALLER, check_behavior
from learner.service.identity.audit import Audit, Requester, grpc_address
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.environments import EnvironmentState
from learner.service.ingest.openings import FULL_RETRY_SECONDS, Opened, Opening, Resumption
from learner.service.ingest.session import MAX_ERROR_CHARACTERS, ActorCounters, ActorSession, PolicyState, check_agents
from learner.service.ingest.session_ids import short_id
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.times import ActorTimes, report_seconds
from learner.service.metrics.learner import SessionMetrics

NAME: Final = session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name
COLUMN_ENCODINGS: Final = ("zstd",)
MAX_TEXT_CHARACTERS: Final = 256
MAX_ADDED_BEHAVIORS: Final = 64
"""Most behaviors that a principal, or an actor without one, adds to those of the run file; a run has at most 256."""
REFUSED_SHARE: Final = 0.02
"""Seconds per second for which the declarations of a principal, or of a host, may be measured and refused."""
REFUSED_BURST_SECONDS: Final = 5.0
LEAST_REFUSED_SECONDS: Final = 0.1
_REFUSALS: Final[Mapping[type[WireError], str]] = MappingProxyType(
    {SessionFenced: "fenced", TooManySessions: "full", Draining: "draining", Quarantined: "quarantined"}
)
"""Labels of failed openings in the metrics; other errors count as `refused`."""

_log = structlog.get_logger(__name__)


class SessionService:
    """Opens, renews and ends sessions, and accepts declarations."""

    def __init__(
        self,
        router: SessionRouter,
        sessions: SessionTable,
        behaviors: BehaviorTable,
        run: RunInfo,
        *,
        metrics: SessionMetrics,
        newest_version: Callable[[str], int | None],
        audit: Audit,
        faults: FormFaults,
    ) -> None:
        self._audit = audit
        self._faults = faults
        self._newest_version = newest_version
        self._metrics = metrics
        self._router = router
        self._sessions = sessions
        self._behaviors = behaviors
        self._run = run
        self._unusable = Throttle()
        self._added: dict[str, set[str]] = {}
        self._measured_for: dict[str, tuple[asyncio.Lock, Budget]] = {}
        # A separate executor, because the loop's own encodes policies; one thread, because parallel judgements are no
        # faster.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="declarations")

    def handlers(self) -> Handlers:
        """Returns the handlers of the methods."""
        return {
            "OpenSession": unary(session_pb2.OpenSessionRequest, self.open_session),
            "DeclareBehavior": unary(
                session_pb2.DeclareBehaviorRequest, self.declare_behavior, max_bytes=MAX_DECLARATION_BYTES
            ),
            "RenewSession": unary(session_pb2.RenewSessionRequest, self.renew_session),
            "CloseSession": unary(session_pb2.CloseSessionRequest, self.close_session),
        }

    async def open_session(
        self, request: session_pb2.OpenSessionRequest, context: BytesContext
    ) -> session_pb2.OpenSessionResponse:
        """Opens or resumes a session."""
        opened = self._open(request)
        session = opened.session
        session.opponent, session.opponent_by_seat = request.opponent, request.opponent_by_seat
        session.peer = grpc_address(context.peer())
        for over in opened.ended:
            self._router.forget(
                over, SessionExpired(f"session {short_id(over.session_id)} ended: its actor opened another")
            )
        self._router.end_streams(session, SessionFenced(f"session {short_id(session.session_id)} was opened again"))
        self._router.presence.changed()
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
            assignment=self._router.assignments.opening(session.session_id, resumed=opened.resumed),
            settled_through=opened.settled_through,
        )

    def _open(self, request: session_pb2.OpenSessionRequest) -> Opened:
        outcome = "refused"
        try:
            _check_revision(request.protocol_revision)
            _check_name(request.actor_name)
            place = (CALLER.get().name, request.actor_name)
            self._sessions.quarantine.check(place)
            with self._faults.of_place(place):
                opening = _opening(request)
            self._router.check_admission()
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
        """Accepts a declaration; the first one of the run defines the behavior."""
        outcome = "refused"
        try:
            response = await self._declare(request)
            outcome = "ok"
        finally:
            self._metrics.declared[outcome].inc()
        return response

    async def _declare(self, request: session_pb2.DeclareBehaviorRequest) -> session_pb2.DeclareBehaviorResponse:
        caller = CALLER.get()
        session = self._sessions.get(request.session_id, request.epoch, caller.name)
        with self._faults.of(session):
            check_agents(request.agents)
            spec = BehaviorSpec.from_message(request.spec)
        check_behavior(caller, spec.name)
        with self._adding(session, spec.name):
            behavior = await self._declared_with_others(session, spec, request)
        # The session may have closed meanwhile.
        session = self._sessions.get(request.session_id, request.epoch, caller.name)
        is_new = behavior.index not in session.accounts
        with self._faults.of(session):
            account = self._sessions.declare(
                session, behavior, request.team, request.agents, follows_quota=request.follows_quota
            )
        self._router.declared(session, behavior)
        if is_new:
            _log.info("behavior_declared", behavior=behavior.name, actor=session.actor_name, agents=request.agents)
            self._tell_of_settings_without_behavior(behavior.name)
        return session_pb2.DeclareBehaviorResponse(
            behavior_index=behavior.index,
            time_horizon=account.time_horizon,
            memory_stride=behavior.memory_stride,
            max_policy_lag=behavior.max_policy_lag,
            cut_at_swap=behavior.cut_at_swap,
            training=behavior.training,
            awaits_assignment=self._router.awaits_match(behavior.name),
            replay=behavior.takes_any_generation,
        )

    def _tell_of_settings_without_behavior(self, declared: str) -> None:
        """Warns once of behaviors that no actor has declared when one declares another that the run file does not list."""
        names = [] if self._behaviors.lists(declared) else self._behaviors.undeclared(declared)
        if names:
            _log.warning(
                "behaviors_not_declared",
                behaviors=names,
                declared=declared,
                note=f"the actor declares {declared!r}, which the run file does not list and which gets default_settings; what "
                f"the run file, or the learner's --set, has for {names[0]!r} has no effect unless an actor declares it",
            )

    @contextlib.contextmanager
    def _adding(self, session: ActorSession, name: str) -> Iterator[None]:
        """Counts a behavior that the run file does not list towards the client that declares it first.

        Raises:
            UnknownBehavior: The client has added as many as one may.
        """
        if self._behaviors.lists(name) or self._behaviors.by_name(name) is not None:
            yield
            return
        client = session.principal or f"place {session.actor_index}"
        added = self._added.setdefault(client, set())
        if len(added | {name}) > MAX_ADDED_BEHAVIORS:
            raise UnknownBehavior(
                f"this actor has added {len(added)} behaviors that the run file does not list, the maximum: list them under "
                "behaviors",
                metadata={"behavior": name, "max_added": str(MAX_ADDED_BEHAVIORS)},
            )
        is_new = name not in added
        added.add(name)
        try:
            yield
        except BaseException:
            if is_new:
                added.discard(name)
            raise

    async def _declared_with_others(
        self, session: ActorSession, spec: BehaviorSpec, request: session_pb2.DeclareBehaviorRequest
    ) -> Behavior:
        """Returns the behavior of a declaration, if the ring has room for its agents and those of all other actors.

        Raises:
            TooManyAgents: It has room for these agents alone. What other actors claim must not end this one.
        """
        others = self._sessions.agents(spec.name, besides=session)
        try:
            return await self._declared(session, spec, request.team, request.agents + others)
        except RingTooSmall as error:
            if not others:
                raise
            await self._declared(session, spec, request.team, request.agents)
            raise TooManyAgents(
                f"{error}; {others} of these agents are those that other actors claim: stop one of them, or wait",
                retry_after_seconds=FULL_RETRY_SECONDS,
                metadata={"agents": str(request.agents), "others": str(others)},
            ) from None

    async def _declared(self, session: ActorSession, spec: BehaviorSpec, team: int, agents: int) -> Behavior:
        """Returns the behavior of a declaration; renews the lease while the declaration waits to be measured."""
        if self._behaviors.by_name(spec.name) is not None:
            return self._behaviors.declare(spec, team, agents)
        client = session.principal or session.peer.rpartition(":")[0]
        lock, budget = self._measured_for.setdefault(
            client, (asyncio.Lock(), Budget(REFUSED_SHARE, REFUSED_BURST_SECONDS))
        )
        async with lock:  # one at a time of each client, so that others wait for one at most
            began = time.monotonic()
            seconds = budget.wait_seconds(began)
            if seconds > 0:
                raise TooManyCalls(
                    f"this client's refused declarations took too long to judge: try again in {seconds:.0f} s",
                    retry_after_seconds=seconds,
                    metadata={BOUND: "loop_time"},
                )
            try:
                return await self._estimated(session, spec, team, agents)
            except WireError:
                budget.charge(max(LEAST_REFUSED_SECONDS, time.monotonic() - began))
                raise

    async def _estimated(self, session: ActorSession, spec: BehaviorSpec, team: int, agents: int) -> Behavior:
        behavior = asyncio.get_running_loop().run_in_executor(self._thread, self._behaviors.declare, spec, team, agents)
        try:
            while not (await asyncio.wait({behavior}, timeout=self._sessions.lease_seconds / 3))[0]:
                self._sessions.touch(session)  # the actor is alive and waits for an answer
        finally:
            behavior.cancel()  # has no effect once there is an answer
        return behavior.result()

    async def renew_session(
        self, request: session_pb2.RenewSessionRequest, _context: BytesContext
    ) -> session_pb2.RenewSessionResponse:
        """Renews a lease."""
        session = self._sessions.get(request.session_id, request.epoch, CALLER.get().name)
        with self._faults.of(session):
            check_entries(request.policies, "policies")
            policies = [PolicyState.from_message(policy) for policy in request.policies]
            times = ActorTimes.from_message(request.times) if request.HasField("times") else None
            environments = (
                EnvironmentState.from_message(request.environments) if request.HasField("environments") else None
            )
            reports = _reports(request.books)
        for policy in policies:
            if policy.error and policy not in session.policies and self._unusable.admit(session.session_id) is not None:
                _log.warning("policy_not_usable", actor=session.actor_name, version=policy.version, error=policy.error)
        self._sessions.renew(session, reports)
        session.note_policies(policies, self._newest_version, self._run.generation)
        if times is not None:
            session.times.add(times, session.last_seen)
        if environments is not None:
            session.note_environments(environments)
        self._router.reported(session)
        report_ms = round(report_seconds(len(self._sessions.live())) * 1000)
        return session_pb2.RenewSessionResponse(lease_ms=self._lease_ms, report_ms=report_ms)

    async def close_session(
        self, request: session_pb2.CloseSessionRequest, _context: BytesContext
    ) -> session_pb2.CloseSessionResponse:
        """Ends a session."""
        session = self._sessions.get(request.session_id, request.epoch, CALLER.get().name)
        with self._faults.of(session):
            reports = _reports(request.books)
        self._sessions.close(session, reports)
        self._router.forget(session, None)
        self._metrics.closed.inc()
        has_failed = request.reason > session_pb2.CLOSE_REASON_DONE
        message = request.message[:MAX_ERROR_CHARACTERS]
        if has_failed:
            self._sessions.last_failure = f"actor {session.actor_name} ended: {message}"
        log = _log.warning if has_failed else _log.info
        log(
            "actor_left",
            actor=session.actor_name,
            actor_index=session.actor_index,
            reason=_close_reason(request.reason),
            message=message,
        )
        return session_pb2.CloseSessionResponse()

    def expire(self) -> None:
        """Ends sessions whose time has run out, or waits for their actors to return; call it periodically."""
        expired = self._sessions.expire()
        for session in expired.away:
            self._metrics.expired.inc()
            seconds = round(session.lease_until - self._sessions.clock())
            _log.warning(
                "actor_away",
                actor=session.actor_name,
                actor_index=session.actor_index,
                may_return_within_seconds=seconds,
            )
            self._router.forget(session, self._lease_ran_out(session))
        for session in expired.ended:
            why = "did not return" if session.is_away else "lease ran out"
            if not session.is_away:
                self._metrics.expired.inc()
            _log.warning("actor_lost", actor=session.actor_name, actor_index=session.actor_index, why=why)
            self._router.forget(session, self._lease_ran_out(session))

    def _lease_ran_out(self, session: ActorSession) -> SessionExpired:
        return SessionExpired(
            f"the lease of session {short_id(session.session_id)} ran out because the actor sent nothing for "
            f"{self._sessions.lease_seconds:g} s: renew it after a third of that time",
            metadata={"session": short_id(session.session_id)},
        )

    def end_unknown(self, knows: Callable[[str], bool]) -> None:
        """Ends the sessions of principals that no longer exist.

        Args:
            knows: Returns whether a principal exists, by its name.
        """
        for session in self._sessions.end_unknown(knows):
            _log.warning(
                "actor_lost",
                actor=session.actor_name,
                actor_index=session.actor_index,
                principal=session.principal,
                why="its principal has no valid token of an actor",
            )
            self._audit.note(
                "revoke",
                Requester("token_file", session.peer, Principal(session.principal, Role.ACTOR)),
                session=short_id(session.session_id),
                actor=session.actor_name,
            )
            self._router.forget(
                session, Unauthenticated("the principal of this session has no valid token of an actor any more")
            )

    @property
    def _lease_ms(self) -> int:
        return max(1, round(self._sessions.lease_seconds * 1000))

    def _note_opened(self, opened: Opened, request: session_pb2.OpenSessionRequest, context: BytesContext) -> None:
        _log.info(
            "actor_resumed" if opened.resumed else "actor_joined",
            actor=opened.session.actor_name,
            actor_index=opened.session.actor_index,
            session=short_id(opened.session.session_id),
            epoch=opened.session.epoch,
            client=request.client_version[:MAX_TEXT_CHARACTERS],
            peer=context.peer(),
        )


def _check_revision(revision: int) -> None:
    if revision < OLDEST_PROTOCOL_REVISION:
        raise ProtocolTooOld(
            f"the actor uses protocol revision {revision}, but this learner needs at least "
            f"{OLDEST_PROTOCOL_REVISION}: update the actor",
            metadata={"revision": str(revision), "oldest_revision": str(OLDEST_PROTOCOL_REVISION)},
        )


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= MAX_TEXT_CHARACTERS or not name.isprintable():
        raise BadRequest(
            f"actor_name has {len(name)} characters; it must have 1 to {MAX_TEXT_CHARACTERS}, all printable",
            metadata={"field": "actor_name"},
        )


def _opening(request: session_pb2.OpenSessionRequest) -> Opening:
    try:
        instance_id = str(uuid.UUID(request.instance_id))
    except ValueError:
        raise BadRequest(
            f"instance_id has {len(request.instance_id)} characters and is not a UUID",
            metadata={"field": "instance_id"},
        ) from None
    if request.opponent and SCRIPT_PATTERN.fullmatch(request.opponent) is None:
        raise BadRequest(
            f"opponent {request.opponent[:64]!r} is not module:callable, of at most 128 letters, digits, '_' and '.'",
            metadata={"field": "opponent"},
        )
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
            raise BadRequest(f"epoch {resume.epoch} or sequence {resume.acked_through} is out of range")
    caller = CALLER.get()
    return Opening(request.actor_name, instance_id, resume, caller.name, caller.max_sessions)


def _reports(books: Collection[session_pb2.ActorBooks]) -> list[ActorCounters]:
    check_entries(books, "books")
    return [ActorCounters.from_message(message) for message in books]


def _close_reason(reason: int) -> str:
    names = session_pb2.CloseReason.DESCRIPTOR.values_by_number
    return names[reason].name.removeprefix("CLOSE_REASON_").lower() if reason in names else str(reason)
