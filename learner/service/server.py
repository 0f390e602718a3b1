"""The gRPC front of the learner: one address for actors, one for operators; start, drain, stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from rollcast.channels import server_options
from rollcast.errors import Draining
from rollcast.v1 import policy_pb2, trajectory_pb2

from learner.common.exits import ExitCode, UserError
from learner.ingest.behaviors import BehaviorTable
from learner.ingest.intake import ChunkIntake
from learner.ingest.ledger import Ledger
from learner.ingest.sessions import SessionTable
from learner.link.commands import CommandChannel
from learner.observe.metrics.learner import LearnerMetrics
from learner.publish.broadcast import Broadcast
from learner.publish.store import PolicyStore
from learner.service import control_calls, policy_calls, session_calls, trajectory
from learner.service.control_calls import ActorRates, ControlHooks, ControlService
from learner.service.guard import CallGuard
from learner.service.hub import DRAIN_RETRY_SECONDS, Hub
from learner.service.methods import add_service
from learner.service.policy_calls import PolicyService
from learner.service.run_info import RunInfo
from learner.service.session_calls import SessionService
from learner.service.trajectory import TrajectoryService
from learner.settings.service import ServiceSettings, split_address

SERVICES: Final = (session_calls.NAME, trajectory.NAME, policy_calls.NAME)
GRACE_SECONDS: Final = 1.0
MAX_TICK_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class LearnerServer:
    """Serves actors and operators until it is stopped. Create and use it in a running event loop.

    Args:
        address: where actors connect; port 0 takes any free port.
        control_address: where operators connect.
        settings: the service's settings.
        behaviors: what can be declared.
        sessions: who takes part.
        ledger: the books.
        store: where policies come from.
        run: what actors are told.
        control: what operators can do.
        metrics: where all is counted.
        commands: what the run asks of actors; carried out from `start` on.
        task: what all actors are asked for unless they are ordered something; None lets them learn.

    Attributes:
        port: where actors connect, once started.
        control_port: where operators connect, once started.
    """

    def __init__(
        self,
        *,
        address: str,
        control_address: str,
        settings: ServiceSettings,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        store: PolicyStore,
        run: RunInfo,
        control: ControlHooks,
        metrics: LearnerMetrics,
        commands: CommandChannel,
        task: policy_pb2.BehaviorAssignment | None = None,
    ) -> None:
        self.port = 0
        self.control_port = 0
        self._address = address
        self._control_address = control_address
        self._settings = settings
        self._sessions = sessions
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics
        self._commands = commands
        self._broadcast = Broadcast(store, on_replaced=metrics.policies.sends["replaced"].inc)
        wakeups = (behaviors.to_service, store.wakeup)
        self._hub = Hub(behaviors, sessions, self._broadcast, wakeups, metrics.holds, task=task)
        if run.assignment is not None:
            self._hub.assign(run.assignment)
        newest_version = _newest_version(store, run.generation)
        intake = ChunkIntake(behaviors, sessions, ledger, newest_version=newest_version, metrics=metrics.intake)
        self._guard = CallGuard(metrics.error, metrics.calls)
        self._session_service = SessionService(
            self._hub, sessions, behaviors, run, metrics=metrics.sessions, newest_version=newest_version
        )
        self._trajectory_service = TrajectoryService(self._hub, sessions, intake, metrics.intake)
        self._policy_service = PolicyService(
            self._hub, sessions, behaviors, store, self._broadcast, metrics=metrics.policies
        )
        self._rates = ActorRates(sessions)
        self._control_service = ControlService(control, sessions, self._rates, run.server_version)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # untyped package
        interceptors = [self._guard]
        self._server = grpc.aio.server(interceptors=interceptors, options=server_options(settings.max_chunk_bytes))
        self._control_server = grpc.aio.server(interceptors=interceptors, options=server_options())
        self._ticker: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._is_healthy = False

    @property
    def incidents(self) -> int:
        """Unexpected errors."""
        return self._guard.incidents

    @property
    def subscribers(self) -> int:
        """How many actors are subscribed to policies."""
        return self._broadcast.subscribers

    @property
    def rates(self) -> ActorRates:
        """Steps a second of each actor."""
        return self._rates

    @property
    def is_serving(self) -> bool:
        """What health checks are told."""
        return self._is_healthy and not self._hub.is_draining

    @property
    def connected(self) -> int:
        """How many actors are uploading."""
        return self._hub.connected

    async def start(self) -> None:
        """Listens on both addresses.

        Raises:
            UserError: an address cannot be had (PORT_IN_USE).
        """
        for server, name, handlers in (
            (self._server, session_calls.NAME, self._session_service.handlers()),
            (self._server, trajectory.NAME, self._trajectory_service.handlers()),
            (self._server, policy_calls.NAME, self._policy_service.handlers()),
            (self._control_server, control_calls.NAME, self._control_service.handlers()),
        ):
            self._guard.declare(name, handlers)
            add_service(server, name, handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)  # type: ignore[no-untyped-call]
        if self._settings.reflection:
            names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)  # type: ignore[no-untyped-call]
        try:
            self.port = _listen(self._server, self._address, "rollcast.address")
            self.control_port = _listen(self._control_server, self._control_address, "rollcast.control_address")
        except UserError:
            await self._server.stop(None)  # frees the port that was had
            await self._control_server.stop(None)
            raise
        for name in ("", *SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._is_healthy = True
        await self._server.start()
        await self._control_server.start()
        for wakeup in self._hub.wakeups:
            self._loop.add_reader(wakeup.fileno(), self._hub.wake)
        self._hub.wake()
        self._commands.connect(lambda command: self._loop.call_soon_threadsafe(self._hub.carry_out, command))
        self._ticker = asyncio.create_task(self._tick())
        _log.info("listening", address=self._address, port=self.port, control_port=self.control_port)

    async def drain(
        self, *, final: bool, seconds: float, hurry: asyncio.Event | None = None, has_failed: bool = False
    ) -> None:
        """Ends the service in good order: says farewell, waits for the actors, stops serving them.

        Operators are served until `stop`.

        Args:
            final: True if actors shall exit, False if they shall come back.
            seconds: how long to wait for them.
            hurry: ends the wait as soon as it is set.
            has_failed: the learner ends for a fault: perhaps nobody starts it again.
        """
        if self._hub.is_draining:
            return
        await self._health.enter_graceful_shutdown()
        message = "the run is over" if final else "the learner stops and will be back"
        if has_failed:
            message = "the learner failed; it will be back if it is started again"
        retry_after_ms = 0 if final else round(DRAIN_RETRY_SECONDS * 1000)
        self._hub.drain(trajectory_pb2.Drain(final=final, retry_after_ms=retry_after_ms, message=message))
        awaited = {session.session_id for session in self._sessions.live() if session.is_connected}
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._all_gone(awaited, final=final))]
        if hurry is not None:
            waits.append(asyncio.create_task(hurry.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await self._stop_serving_actors()

    async def stop(self) -> None:
        """Stops everything; open streams end with DRAINING. Harmless after `drain`, and twice."""
        if self._is_stopped:
            return
        self._is_stopped = True
        await self._health.enter_graceful_shutdown()
        self._hub.is_draining = True
        await self._stop_serving_actors()
        await self._control_server.stop(GRACE_SECONDS)
        for wakeup in self._hub.wakeups:
            self._loop.remove_reader(wakeup.fileno())
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self._broadcast.stop()

    async def _stop_serving_actors(self) -> None:
        self._hub.end_all(Draining("the learner stops", retry_after_seconds=DRAIN_RETRY_SECONDS))
        await self._server.stop(GRACE_SECONDS)

    async def _all_gone(self, awaited: set[str], *, final: bool) -> None:
        while awaited & self._still_here(final=final):
            await self._hub.someone_left()

    def _still_here(self, *, final: bool) -> set[str]:
        """Returns the sessions that did not end (a final drain), or whose upload did not."""
        return {session.session_id for session in self._sessions.live() if final or session.is_connected}

    async def _tick(self) -> None:
        """Ends sessions whose lease ran out, and measures rates."""
        period_seconds = min(MAX_TICK_SECONDS, self._sessions.lease_seconds / 5)
        while True:
            began = self._loop.time()
            await asyncio.sleep(period_seconds)
            late_seconds = self._loop.time() - began - period_seconds
            self._metrics.loop_lag.observe(max(0.0, late_seconds))
            try:
                if late_seconds > period_seconds:  # stopped, suspended, or starved of the processor
                    _log.warning("service_stood_still", seconds=late_seconds)
                    self._sessions.extend(late_seconds)
                self._session_service.expire()
                self._rates.update()
            except Exception as error:  # noqa: BLE001 - the next round may go well, and leases must go on running out
                _log.error("tick_failed", exc_info=error)


def _newest_version(store: PolicyStore, generation: int) -> Callable[[str], int | None]:
    def newest(behavior: str) -> int | None:
        policy = store.latest(behavior)
        if policy is None or policy.description.generation != generation:
            return None
        return policy.description.version

    return newest


def require_free(address: str, setting: str) -> None:
    """Looks whether an address can be had, before a run folder is touched; `LearnerServer.start` takes it for good.

    Raises:
        UserError: it cannot (PORT_IN_USE).
    """
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        found = []
    if not any(_can_bind(family, where) for family, _, _, _, where in found):
        raise _cannot_listen(address, setting)


def _can_bind(family: int, where: tuple[Any, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does: old connections do not matter
            probe.bind(where)
    except OSError:
        return False
    return True


def _listen(server: grpc.aio.Server, address: str, setting: str) -> int:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise _cannot_listen(address, setting)
    return port


def _cannot_listen(address: str, setting: str) -> UserError:
    return UserError(
        ExitCode.PORT_IN_USE,
        f"cannot listen on {address}: the port is in use, or this machine has no such address. Stop the program "
        f"that listens there, or choose another address ({setting}; port 0 takes any free port)",
    )
