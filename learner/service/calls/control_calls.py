"""ControlService: serves operators on its own loopback address; see control.proto."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import grpc
import structlog
from rollcast.errors import WireError
from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.v1 import control_pb2

from learner.service.calls.methods import BytesContext, Handlers, unary
from learner.service.identity.access import CALLER
from learner.service.identity.audit import Audit, Source, grpc_address
from learner.service.ingest.session import MAX_ERROR_CHARACTERS, ActorSession, reasons_to, shown
from learner.service.ingest.session_ids import short_id
from learner.service.ingest.sessions import SessionTable
from learner.shared.observe.behavior_state import FIELDS, BehaviorState, LedgerNumbers
from learner.shared.observe.rates import WindowedRate
from learner.shared.observe.view import MAX_NAMED, Bottleneck, LessonView, LockstepView, QuarantineView, RunView

MAX_BYTES: Final = MAX_CHUNK_BYTES
"""Largest size of an answer, as accepted by operators' channels."""
_FIELD_BYTES: Final = 8
"""Bytes of the tag and length of one actor in the list."""
BOTTLENECKS: Final = {
    "none": control_pb2.BOTTLENECK_UNSPECIFIED,
    "learner": control_pb2.BOTTLENECK_LEARNER,
    "actors": control_pb2.BOTTLENECK_ACTORS,
    "network": control_pb2.BOTTLENECK_NETWORK,
}


def status_response(
    view: RunView,
    sessions: Iterable[ActorSession],
    *,
    server_version: str,
    now: float,
    rate_of: Callable[[ActorSession], float],
) -> control_pb2.StatusResponse:
    """Builds the status response. Counts above the wire's range are sent as its largest value.

    The status of a run with very many actors, or with actors that report very much, may exceed the size of a message.
    The last actors then lack books and policies; if that is not enough, the last actors are left out.

    Args:
        view: State of the run.
        sessions: Actors of the run; they must not change during the call.
        server_version: Version of the learner.
        now: Monotonic seconds.
        rate_of: Returns the steps per second of an actor.
    """
    response = control_pb2.StatusResponse(
        quarantined=[_quarantined(each) for each in view.quarantined[-MAX_NAMED:]],
        run_id=view.run_id,
        generation=view.generation,
        state=control_pb2.RunState.Value(f"RUN_STATE_{view.state.name}"),
        uptime_seconds=view.uptime_seconds,
        behaviors=[_behavior(behavior) for behavior in view.behaviors],
        last_error=view.last_error[:MAX_ERROR_CHARACTERS],
        server_version=server_version,
        verdict=_bottleneck(view.bottleneck),
        lessons=[_lesson(lesson) for lesson in view.lessons],
        lockstep=None if view.lockstep is None else _lockstep(view.lockstep),
        actors_away=len(view.away),
        away=[
            control_pb2.AwayActor(
                actor_name=each.name, actor_index=each.index, away_ms=shown(round(each.seconds * 1000))
            )
            for each in view.away[:MAX_NAMED]
        ],
    )
    room = MAX_BYTES - response.ByteSize()
    fitting: list[tuple[ActorSession, control_pb2.ActorStatus]] = []
    for session in sessions:
        actor = _actor(session, now, rate_of(session))
        room -= actor.ByteSize() + _FIELD_BYTES
        if room < 0:
            break
        fitting.append((session, actor))
    for session, actor in fitting:
        details = _details(session, now)
        if details.ByteSize() <= room:
            room -= details.ByteSize()
            actor.MergeFrom(details)
        response.actors.append(actor)
    return response


def _actor(session: ActorSession, now: float, rate: float) -> control_pb2.ActorStatus:
    credit_steps = sum(account.credit_steps for account in session.accounts.values())
    return control_pb2.ActorStatus(
        actor_name=session.actor_name,
        actor_index=session.actor_index,
        session_id=short_id(session.session_id),
        connected=session.is_connected,
        last_seen_ms=shown(round((now - session.last_seen) * 1000)),
        env_steps_per_second=rate,
        credit_steps=shown(credit_steps),
        wait_ratio=session.times.wait_share,
        waits_for=session.times.waits_for,
        round_trip_seconds=session.times.round_trip_seconds,
        lag_versions=None if session.policy_lag is None else shown(session.policy_lag),
    )


def _details(session: ActorSession, now: float) -> control_pb2.ActorStatus:
    reports = [account.counters for account in session.accounts.values() if account.counters is not None]
    environments = session.environments
    return control_pb2.ActorStatus(
        books=[counters.to_message() for counters in reports],
        policies=[policy.to_message() for policy in session.policies],
        environments=None if environments.state is None else environments.state.to_message(),
        environment_failed_seconds=None if environments.failed_at is None else max(0.0, now - environments.failed_at),
    )


def _bottleneck(bottleneck: Bottleneck) -> control_pb2.Verdict:
    return control_pb2.Verdict(
        bottleneck=BOTTLENECKS[bottleneck.name],
        text=bottleneck.text,
        learner_busy_ratio=bottleneck.learner_busy,
        actor_busy_ratio=bottleneck.actor_busy,
        network_ratio=bottleneck.network_share,
    )


def _lesson(view: LessonView) -> control_pb2.LessonStatus:
    return control_pb2.LessonStatus(
        parameter=view.parameter, number=view.number, lessons=view.lessons, name=view.name[:MAX_ERROR_CHARACTERS]
    )


def _lockstep(view: LockstepView) -> control_pb2.LockstepStatus:
    return control_pb2.LockstepStatus(
        actors=view.actors,
        joined=view.joined,
        round=view.round,
        checkpoint_round=view.checkpoint_round,
        quota_steps=view.quota_steps,
        reproducible=view.is_reproducible,
        reason=view.reason[:MAX_ERROR_CHARACTERS],
    )


def _quarantined(view: QuarantineView) -> control_pb2.QuarantinedActor:
    return control_pb2.QuarantinedActor(
        actor_name=view.name,
        principal=view.principal,
        remaining_ms=round(view.seconds_left * 1000),
        times=view.times,
        last_fault=view.fault,
    )


def _behavior(state: BehaviorState) -> control_pb2.BehaviorStatus:
    row = control_pb2.BehaviorStatus(behavior=state.name, books=_books(state.books), numbers=state.all_numbers())
    row.labels.update({each.name: each.label for each in state.own_fields if each.label})
    for each in FIELDS:
        name, value = each.log or each.name, state.value(each)
        if value is not None and name in row.DESCRIPTOR.fields_by_name:
            setattr(row, name, shown(value) if isinstance(value, int) else value)
    return row


def _books(books: LedgerNumbers) -> control_pb2.LearnerBooks:
    return control_pb2.LearnerBooks(
        received=shown(books["received"]),
        trained=shown(books["trained"]),
        dropped=reasons_to(books["dropped"]),
        queued=shown(books["queued"]),
        lost=reasons_to(books["lost"]),
        duplicate=shown(books["duplicate"]),
        unknown_sessions=shown(books["unknown"]),
    )


class SaveCoalescer:
    """Merges concurrent requests for a checkpoint. For the event loop alone.

    A request that arrives while a checkpoint is being written may want later changes, so it waits for the next
    checkpoint together with all other requests that have arrived.

    Args:
        save: Writes a checkpoint within the given seconds and returns its path; blocks.
        executor: Executor that runs `save`.
        least_seconds: Shortest time limit of a checkpoint, because later requests may join it.
    """

    def __init__(self, save: Callable[[float], str], executor: Executor, least_seconds: float) -> None:
        self._save = save
        self._executor = executor
        self._least_seconds = least_seconds
        self._running: asyncio.Task[str] | None = None
        self._waiting: asyncio.Task[str] | None = None

    async def save(self, seconds: float) -> str:
        """Returns the path of a checkpoint that began after this call.

        Raises:
            TimeoutError: The checkpoint was not on disk in time; it may still be written.
        """
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._run(self._running, seconds))
            self._waiting.add_done_callback(_retrieve)
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._waiting)

    async def _run(self, before: asyncio.Task[str] | None, seconds: float) -> str:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._waiting = self._waiting, None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._save, max(seconds, self._least_seconds))


def _retrieve(task: asyncio.Task[str]) -> None:
    """Retrieves a checkpoint's result, because all callers that requested it may be gone."""
    if not task.cancelled():
        task.exception()


NAME: Final = control_pb2.DESCRIPTOR.services_by_name["ControlService"].full_name
DEFAULT_SAVE_SECONDS: Final = 300.0
"""Time limit in seconds of callers without a deadline."""

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


class ControlHooks(Protocol):
    """Actions available to operators. Methods may block; they are called outside the event loop."""

    def status(self) -> RunView:
        """Returns the state of the run."""

    def pause(self) -> None:
        """Stops training; safe to repeat."""

    def resume(self) -> None:
        """Ends a pause."""

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint at the end of the current update.

        Returns:
            Path of the checkpoint.

        Raises:
            NothingToSave: No behavior is declared.
            CheckpointFailed: The checkpoint could not be written.
            TimeoutError: The checkpoint took too long.
        """

    def drain(self, *, final: bool) -> None:
        """Asks the run to end, and returns at once."""


class ActorRates:
    """Measures the recent steps per second of each actor."""

    def __init__(self, sessions: SessionTable) -> None:
        self._sessions = sessions
        self._rates: dict[str, WindowedRate] = {}

    def update(self) -> None:
        """Samples the counters; call it about once a second."""
        live = {session.session_id: session for session in self._sessions.live()}
        self._rates = {key: rate for key, rate in self._rates.items() if key in live}
        for key, session in live.items():
            rate = self._rates.setdefault(key, WindowedRate(clock=self._sessions.clock))
            rate.update(session.produced_steps)

    def of(self, session: ActorSession) -> float:
        """Returns the steps per second of a session; 0 before there are two samples."""
        rate = self._rates.get(session.session_id)
        return rate.per_second if rate is not None else 0.0


class ControlService:
    """Serves the operators' calls.

    Args:
        hooks: The run.
        sessions: The actors.
        rates: Steps per second of each actor.
        server_version: Version of the learner.
        audit: Records who changes the run.
        prove: Returns the proof for a nonce and a claim; see control.proto.
    """

    def __init__(
        self,
        hooks: ControlHooks,
        sessions: SessionTable,
        rates: ActorRates,
        server_version: str,
        audit: Audit,
        *,
        prove: Callable[[bytes, bytes], bytes],
    ) -> None:
        self._audit = audit
        self._prove = prove
        self._hooks = hooks
        self._sessions = sessions
        self._rates = rates
        self._server_version = server_version
        # Calls that wait for an update have their own threads, so that status and drain are always answered at once.
        self._quick = ThreadPoolExecutor(1, thread_name_prefix="operator-quick")
        self._orders = ThreadPoolExecutor(1, thread_name_prefix="operator-orders")
        saver = ThreadPoolExecutor(1, thread_name_prefix="operator-save")
        self._saves = SaveCoalescer(hooks.save_checkpoint, saver, DEFAULT_SAVE_SECONDS)

    def handlers(self) -> Handlers:
        """Returns the handlers of the methods."""
        return {
            "Status": unary(control_pb2.StatusRequest, self.status),
            "Pause": unary(control_pb2.PauseRequest, self.pause),
            "Resume": unary(control_pb2.ResumeRequest, self.resume),
            "SaveCheckpoint": unary(control_pb2.SaveCheckpointRequest, self.save_checkpoint),
            "Drain": unary(control_pb2.DrainRequest, self.drain),
            "ReleaseActor": unary(control_pb2.ReleaseActorRequest, self.release_actor),
            "Prove": unary(control_pb2.ProveRequest, self.prove),
        }

    async def status(self, _request: control_pb2.StatusRequest, _context: BytesContext) -> control_pb2.StatusResponse:
        """Returns the state of the run, its ledger and its actors."""
        view = await self._in(self._quick, self._hooks.status)
        return status_response(
            view,
            self._sessions.live(),
            server_version=self._server_version,
            now=self._sessions.clock(),
            rate_of=self._rates.of,
        )

    async def pause(self, _request: control_pb2.PauseRequest, context: BytesContext) -> control_pb2.PauseResponse:
        """Stops training."""
        with self._audit.noting("pause", _source(context)):
            await self._in(self._orders, self._hooks.pause)
        return control_pb2.PauseResponse()

    async def resume(self, _request: control_pb2.ResumeRequest, context: BytesContext) -> control_pb2.ResumeResponse:
        """Ends a pause."""
        with self._audit.noting("resume", _source(context)):
            await self._in(self._orders, self._hooks.resume)
        return control_pb2.ResumeResponse()

    async def save_checkpoint(
        self, _request: control_pb2.SaveCheckpointRequest, context: BytesContext
    ) -> control_pb2.SaveCheckpointResponse:
        """Saves a checkpoint and answers when it is on disk."""
        with self._audit.noting("save", _source(context)) as details:
            details["path"] = path = await self._save(context.time_remaining())
        return control_pb2.SaveCheckpointResponse(path=path)

    async def _save(self, remaining: float | None) -> str:
        seconds = DEFAULT_SAVE_SECONDS if remaining is None else remaining
        try:
            return await self._saves.save(seconds)
        except TimeoutError:
            raise WireError(
                f"the checkpoint was not written within {seconds:.0f} s: repeat the request with a longer timeout, "
                "or check the log",
                code=grpc.StatusCode.DEADLINE_EXCEEDED,
                reason="CHECKPOINT_LATE",
            ) from None

    async def drain(self, request: control_pb2.DrainRequest, context: BytesContext) -> control_pb2.DrainResponse:
        """Asks the run to end."""
        _log.info("drain_requested", final=request.final)
        final = request.final
        with self._audit.noting("drain", _source(context), final=final):
            await self._in(self._quick, lambda: self._hooks.drain(final=final))
        return control_pb2.DrainResponse()

    async def release_actor(
        self, request: control_pb2.ReleaseActorRequest, context: BytesContext
    ) -> control_pb2.ReleaseActorResponse:
        """Lets an actor that is shut out in again."""
        name = request.actor_name
        principal = request.principal if request.HasField("principal") else None
        with self._audit.noting("release", _source(context), actor=name[:MAX_ERROR_CHARACTERS]):
            released = self._sessions.quarantine.release(name, principal)
        _log.info("actor_released", actor=name, released=released)
        return control_pb2.ReleaseActorResponse(released=released)

    async def prove(self, request: control_pb2.ProveRequest, _context: BytesContext) -> control_pb2.ProveResponse:
        """Proves that this learner knows the caller's token."""
        return control_pb2.ProveResponse(proof=self._prove(request.nonce, request.claim))

    async def _in(self, executor: Executor, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(executor, call)


def _source(context: BytesContext) -> Source:
    return Source("grpc", grpc_address(context.peer()), CALLER.get())
