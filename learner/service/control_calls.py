"""ControlService: the operator's side, on a loopback address of its own; see control.proto."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import grpc
import structlog
from rollcast.errors import WireError
from rollcast.v1 import control_pb2

from learner.ingest.session import Session
from learner.ingest.sessions import SessionTable
from learner.observe.rates import WindowedRate
from learner.observe.view import RunView
from learner.service.methods import BytesContext, Handlers, unary
from learner.service.saves import SaveDesk
from learner.service.status import status_response

NAME: Final = control_pb2.DESCRIPTOR.services_by_name["ControlService"].full_name
DEFAULT_SAVE_SECONDS: Final = 300.0
"""For callers without a deadline."""

_T = TypeVar("_T")

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
        # What waits for an update has threads of its own: however many ask, status and drain are answered at once.
        self._quick = ThreadPoolExecutor(1, thread_name_prefix="operator-quick")
        self._orders = ThreadPoolExecutor(1, thread_name_prefix="operator-orders")
        saver = ThreadPoolExecutor(1, thread_name_prefix="operator-save")
        self._saves = SaveDesk(hooks.save_checkpoint, saver, DEFAULT_SAVE_SECONDS)

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
        view = await self._in(self._quick, self._hooks.status)
        return status_response(
            view,
            self._sessions.live(),
            server_version=self._server_version,
            now=self._sessions.clock(),
            rate_of=self._rates.of,
        )

    async def pause(self, _request: control_pb2.PauseRequest, _context: BytesContext) -> control_pb2.PauseResponse:
        """Stops training."""
        await self._in(self._orders, self._hooks.pause)
        return control_pb2.PauseResponse()

    async def resume(self, _request: control_pb2.ResumeRequest, _context: BytesContext) -> control_pb2.ResumeResponse:
        """Ends a pause."""
        await self._in(self._orders, self._hooks.resume)
        return control_pb2.ResumeResponse()

    async def save_checkpoint(
        self, _request: control_pb2.SaveCheckpointRequest, context: BytesContext
    ) -> control_pb2.SaveCheckpointResponse:
        """Saves a checkpoint and answers when it is on disk."""
        remaining: float | None = context.time_remaining()
        seconds = DEFAULT_SAVE_SECONDS if remaining is None else remaining
        try:
            path = await self._saves.save(seconds)
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
        await self._in(self._quick, lambda: self._hooks.drain(final=final))
        return control_pb2.DrainResponse()

    async def _in(self, executor: Executor, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(executor, call)
