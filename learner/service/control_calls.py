"""ControlService: the operator's side, on a loopback address of its own; see control.proto."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import grpc
import structlog
from rollcast.errors import WireError
from rollcast.v1 import control_pb2

from learner.ingest.session import Session, reasons_to
from learner.ingest.sessions import SessionTable
from learner.observe.rates import WindowedRate
from learner.observe.view import BehaviorView, LedgerNumbers, RunView
from learner.service.methods import BytesContext, Handlers, unary

NAME: Final = control_pb2.DESCRIPTOR.services_by_name["ControlService"].full_name
DEFAULT_SAVE_SECONDS: Final = 300.0
"""For callers without a deadline."""

_log = structlog.get_logger(__name__)


class ControlHooks(Protocol):
    """What the learner lets an operator do. Methods may block; they are called outside the event loop."""

    def status(self) -> RunView:
        """Returns the state of the run."""

    def pause(self) -> None:
        """Stops training; again is harmless."""

    def resume(self) -> None:
        """Ends a pause."""

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint at the end of the present update.

        Returns:
            Its path.

        Raises:
            NothingToSave: no behavior was declared.
            CheckpointFailed: it could not be written.
            TimeoutError: it took too long.
        """

    def drain(self, *, final: bool) -> None:
        """Begins the end of the run, and returns at once."""


class ActorRates:
    """Steps a second of each actor, lately."""

    def __init__(self, sessions: SessionTable) -> None:
        self._sessions = sessions
        self._rates: dict[str, WindowedRate] = {}

    def update(self) -> None:
        """Notes the counters as they are now; to be called every second or so."""
        live = {session.session_id: session for session in self._sessions.live()}
        self._rates = {key: rate for key, rate in self._rates.items() if key in live}
        for key, session in live.items():
            rate = self._rates.setdefault(key, WindowedRate(clock=self._sessions.clock))
            rate.update(session.produced_steps)

    def of(self, session: Session) -> float:
        """Returns the rate of a session; 0 before there are two samples."""
        rate = self._rates.get(session.session_id)
        return rate.per_second if rate is not None else 0.0


class ControlService:
    """Answers operators."""

    def __init__(self, hooks: ControlHooks, sessions: SessionTable, rates: ActorRates, server_version: str) -> None:
        self._hooks = hooks
        self._sessions = sessions
        self._rates = rates
        self._server_version = server_version

    def handlers(self) -> Handlers:
        """Returns the methods."""
        return {
            "Status": unary(control_pb2.StatusRequest, self.status),
            "Pause": unary(control_pb2.PauseRequest, self.pause),
            "Resume": unary(control_pb2.ResumeRequest, self.resume),
            "SaveCheckpoint": unary(control_pb2.SaveCheckpointRequest, self.save_checkpoint),
            "Drain": unary(control_pb2.DrainRequest, self.drain),
        }

    async def status(self, _request: control_pb2.StatusRequest, _context: BytesContext) -> control_pb2.StatusResponse:
        """Returns the state of the run, its books and its actors."""
        view = await asyncio.to_thread(self._hooks.status)
        return control_pb2.StatusResponse(
            run_id=view.run_id,
            generation=view.generation,
            state=control_pb2.RunState.Value(f"RUN_STATE_{view.state.name}"),
            uptime_seconds=view.uptime_seconds,
            behaviors=[_behavior_status(behavior) for behavior in view.behaviors],
            actors=[self._actor_status(session) for session in self._sessions.live()],
            last_error=view.last_error,
            server_version=self._server_version,
        )

    async def pause(self, _request: control_pb2.PauseRequest, _context: BytesContext) -> control_pb2.PauseResponse:
        """Stops training."""
        await asyncio.to_thread(self._hooks.pause)
        return control_pb2.PauseResponse()

    async def resume(self, _request: control_pb2.ResumeRequest, _context: BytesContext) -> control_pb2.ResumeResponse:
        """Ends a pause."""
        await asyncio.to_thread(self._hooks.resume)
        return control_pb2.ResumeResponse()

    async def save_checkpoint(
        self, _request: control_pb2.SaveCheckpointRequest, context: BytesContext
    ) -> control_pb2.SaveCheckpointResponse:
        """Saves a checkpoint and answers when it is on disk."""
        remaining: float | None = context.time_remaining()
        seconds = DEFAULT_SAVE_SECONDS if remaining is None else remaining
        try:
            path = await asyncio.to_thread(self._hooks.save_checkpoint, seconds)
        except TimeoutError:
            raise WireError(
                f"the checkpoint was not on disk within {seconds:.0f} s: ask again with more time, or look at the log",
                code=grpc.StatusCode.DEADLINE_EXCEEDED,
                reason="CHECKPOINT_LATE",
            ) from None
        return control_pb2.SaveCheckpointResponse(path=path)

    async def drain(self, request: control_pb2.DrainRequest, _context: BytesContext) -> control_pb2.DrainResponse:
        """Begins the end of the run."""
        _log.info("drain_requested", final=request.final)
        final = request.final
        await asyncio.to_thread(lambda: self._hooks.drain(final=final))
        return control_pb2.DrainResponse()

    def _actor_status(self, session: Session) -> control_pb2.ActorStatus:
        with self._sessions.lock:
            accounts = tuple(session.accounts.values())
        credit_steps = sum(max(0, account.granted_steps - account.produced_steps) for account in accounts)
        return control_pb2.ActorStatus(
            actor_name=session.actor_name,
            actor_index=session.actor_index,
            session_id=session.session_id,
            connected=session.is_connected,
            last_seen_ms=max(0, round((self._sessions.clock() - session.last_seen) * 1000)),
            books=[account.counters.to_message() for account in accounts if account.counters is not None],
            policies=[policy.to_message() for policy in session.policies],
            env_steps_per_second=self._rates.of(session),
            credit_steps=credit_steps,
        )


def _behavior_status(view: BehaviorView) -> control_pb2.BehaviorStatus:
    return control_pb2.BehaviorStatus(
        behavior=view.name,
        version=view.version,
        env_steps_trained=view.env_steps_trained,
        max_steps=view.max_steps,
        env_steps_taken=view.env_steps_taken,
        episodes=view.episodes,
        mean_return_100=view.mean_return_100,
        mean_lag=view.mean_lag,
        books=_books(view.books),
        queued_bytes=view.queued_bytes,
        env_steps_per_second=view.steps_per_second,
        log_prob_error_max=view.log_prob_error_max,
    )


def _books(books: LedgerNumbers) -> control_pb2.LearnerBooks:
    return control_pb2.LearnerBooks(
        received=books["received"],
        trained=books["trained"],
        dropped=reasons_to(books["dropped"]),
        queued=books["queued"],
        lost=reasons_to(books["lost"]),
        duplicate=books["duplicate"],
        unknown_sessions=books["unknown"],
    )
