"""The learner's gRPC server for actors: start, drain, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from rollcast.auth import Role
from rollcast.channels import server_options
from rollcast.errors import Draining
from rollcast.v1 import policy_pb2, trajectory_pb2

from learner.link.channel import Link
from learner.link.control import Ending
from learner.service.calls import policy_calls, session_calls, trajectory
from learner.service.calls.budgets import CallBudgets
from learner.service.calls.form_faults import FormFaults
from learner.service.calls.guard import CallGuard
from learner.service.calls.identity import IdentityGuard
from learner.service.calls.listening import ADDRESS, listen
from learner.service.calls.methods import add_service
from learner.service.calls.policy_calls import PolicyService
from learner.service.calls.run_info import RunInfo
from learner.service.calls.session_calls import SessionService
from learner.service.calls.session_router import DRAIN_RETRY_SECONDS, SessionRouter, StatusKeeper
from learner.service.calls.strangers import Strangers
from learner.service.calls.trajectory import TrajectoryService
from learner.service.identity.setup import Identity
from learner.service.ingest.actor_rates import ActorRates
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.intake import ChunkIntake
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.snapshots import snapshot
from learner.service.metrics.learner import LearnerMetrics
from learner.service.policies.broadcast import Broadcast
from learner.service.policies.store import PolicyStore
from learner.shared.exits import ExitCode, UserError
from learner.shared.garbage import LongCollections
from learner.shared.platform import raise_descriptor_limit
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.service import SPARE_CONNECTIONS, ServiceSettings

SERVICES: Final = (session_calls.NAME, trajectory.NAME, policy_calls.NAME)
_ACTORS_PATHS: Final = tuple(f"/{name}/" for name in SERVICES)
OTHER_DESCRIPTORS: Final = 512
"""Open files that are no connection of an actor: those of the HTTP port, libraries, run files."""
GRACE_SECONDS: Final = 1.0
_STRANGERS_SECONDS: Final = 0.5
_HEALTH_CHECK: Final = f"/{health.SERVICE_NAME}/Check"
MAX_TICK_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class LearnerServer:
    """Serves actors until it is stopped. Create and use it in a running event loop.

    Args:
        address: Address for actors; port 0 takes any free port.
        settings: Settings of the service.
        behaviors: Behaviors that can be declared.
        sessions: Sessions of the actors.
        ledger: The ledger of steps.
        store: Store of the policies.
        run: Description of the run for actors.
        metrics: Metrics of the learner.
        link: Link to the trainers; their messages are carried out from `start` on.
        status: Stores the trainers' statistics; saved with the ledger.
        on_end: Called when the run must end: the trainers request it, or one of their messages is invalid.
        task: Returns what all actors do unless they have an order; None lets them learn.
        snapshots: Policies that are kept for matches; None for a run without a folder.
        identity: How the learner and its clients prove who they are.

    Attributes:
        port: Port for actors, once started.
        rates: Steps per second of each actor.
    """

    def __init__(
        self,
        *,
        address: str,
        settings: ServiceSettings,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        store: PolicyStore,
        run: RunInfo,
        metrics: LearnerMetrics,
        link: Link,
        status: StatusKeeper,
        on_end: Callable[[Ending], object],
        task: policy_pb2.BehaviorAssignment | None = None,
        snapshots: SnapshotFiles | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.port = 0
        self._address = address
        self._settings = settings
        self._identity = identity or Identity()
        self._sessions = sessions
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics
        self._link = link
        self._broadcast = Broadcast(store, on_replaced=metrics.policies.sends["replaced"].inc)
        self._router = SessionRouter(
            behaviors,
            sessions,
            self._broadcast,
            link,
            metrics.holds,
            store=store,
            take_stats=status.take_stats,
            snapshot=lambda: {**snapshot(behaviors, sessions, ledger), "status": status.state_dict()},
            on_end=on_end,
            task=task,
        )
        if run.assignment is not None:
            self._router.assign(run.assignment)
        newest_version = _newest_version(store, run.generation)
        self._guard = CallGuard(metrics.error, metrics.calls)
        self._faults = FormFaults(self._router, sessions, metrics.sessions)
        self._session_service = self._make_session_service(behaviors, run, newest_version)
        self._trajectory_service = self._make_trajectory_service(behaviors, ledger, newest_version)
        self._policy_service = self._make_policy_service(behaviors, store, snapshots)
        self.rates = ActorRates(sessions)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # untyped package
        self._callers: IdentityGuard | None = None
        self._strangers = Strangers(settings.connection_limit)
        self._server = self._make_server()
        self._ticker: asyncio.Task[None] | None = None
        self._bouncer: asyncio.Task[None] | None = None
        self._collections = LongCollections()
        self._is_stopped = self._is_healthy = False

    def _make_server(self) -> grpc.aio.Server:
        settings, access = self._settings, self._identity.access
        if access.identifies_actors:
            self._callers = IdentityGuard(access, _needs_of_actors, self._strangers.welcome)
        options = server_options(
            settings.max_chunk_bytes, max_connections=settings.connection_limit, max_streams=settings.max_streams
        )
        self._budgets = budgets = CallBudgets(self._metrics.calls.bounded)
        callers = [] if self._callers is None else [self._callers]
        return grpc.aio.server(interceptors=[self._guard, *callers, budgets], options=options)

    def _make_session_service(
        self, behaviors: BehaviorTable, run: RunInfo, newest_version: Callable[[str], int | None]
    ) -> SessionService:
        return SessionService(
            self._router,
            self._sessions,
            behaviors,
            run,
            metrics=self._metrics.sessions,
            newest_version=newest_version,
            audit=self._identity.audit,
            faults=self._faults,
        )

    def _make_policy_service(
        self, behaviors: BehaviorTable, store: PolicyStore, snapshots: SnapshotFiles | None
    ) -> PolicyService:
        return PolicyService(
            self._router,
            self._sessions,
            behaviors,
            store,
            self._broadcast,
            metrics=self._metrics.policies,
            faults=self._faults,
            snapshots=snapshots,
        )

    def _make_trajectory_service(
        self, behaviors: BehaviorTable, ledger: Ledger, newest_version: Callable[[str], int | None]
    ) -> TrajectoryService:
        metrics = self._metrics.intake
        intake = ChunkIntake(
            behaviors,
            self._sessions,
            ledger,
            newest_version=newest_version,
            order_numbers=self._router.assignments.order_numbers,
            matches=self._router.assignments.given,
            on_agents=self._router.presence.agents_changed,
            metrics=metrics,
        )
        return TrajectoryService(
            self._router,
            self._sessions,
            intake,
            metrics,
            self._metrics.calls.bounded,
            max_unopened=self._settings.connection_limit,
            faults=self._faults,
        )

    @property
    def incidents(self) -> int:
        """Number of unexpected errors."""
        return self._guard.incidents

    @property
    def subscribers(self) -> int:
        """Number of actors subscribed to policies."""
        return self._broadcast.subscribers

    @property
    def is_serving(self) -> bool:
        """True if health checks report serving."""
        return self._is_healthy and not self._router.is_draining

    @property
    def connected(self) -> int:
        """Number of actors that are uploading."""
        return self._router.connected

    async def start(self, *, falls_back: bool = False) -> None:
        """Listens.

        Raises:
            UserError: The address is unavailable (PORT_IN_USE).
        """
        for name, handlers in (
            (session_calls.NAME, self._session_service.handlers()),
            (trajectory.NAME, self._trajectory_service.handlers()),
            (policy_calls.NAME, self._policy_service.handlers()),
        ):
            self._guard.declare(name, handlers)
            add_service(self._server, name, handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)  # type: ignore[no-untyped-call]
        if self._settings.reflection:
            names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)  # type: ignore[no-untyped-call]
        try:
            self.port = listen(self._server, self._address, ADDRESS, self._identity.security, falls_back=falls_back)
        except UserError:
            await self._server.stop(None)
            raise
        for name in ("", *SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._is_healthy = True
        await self._server.start()
        self._router.wake()
        self._link.to_front.connect(lambda: self._loop.call_soon_threadsafe(self._router.wake))
        self._ticker = asyncio.create_task(self._tick())
        if self._callers is not None:
            self._bouncer = asyncio.create_task(self._end_strangers())
        self._collections.start()
        _log.info("listening", address=self._address, port=self.port)

    async def drain(
        self,
        *,
        final: bool,
        seconds: float,
        hurry: asyncio.Event | None = None,
        has_failed: bool = False,
        reason: str = "",
    ) -> None:
        """Ends the service gracefully: says goodbye, waits for the actors, and stops serving them.

        Args:
            final: True if actors exit, False if they wait to come back.
            seconds: How long to wait for them.
            hurry: Ends the wait early once it is set.
            has_failed: Whether an error ends the learner, so that its restart is uncertain.
            reason: Why the run has ended, for the actors' logs.
        """
        if self._router.is_draining:
            return
        await self._health.enter_graceful_shutdown()
        ended = f"the run has ended: {reason}" if reason else "the run has ended"
        message = ended if final else "the learner is stopping; this actor waits until the learner is back"
        if has_failed:
            message = "the learner failed; actors can reconnect if it is restarted"
        retry_after_ms = 0 if final else round(DRAIN_RETRY_SECONDS * 1000)
        self._router.drain(trajectory_pb2.Drain(final=final, retry_after_ms=retry_after_ms, message=message))
        awaited = {session.session_id for session in self._sessions.live() if session.is_connected}
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._all_gone(awaited, final=final))]
        if hurry is not None:
            waits.append(asyncio.create_task(hurry.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await self._stop_serving_actors()
        if final:
            self._sessions.end_all()

    async def stop(self) -> None:
        """Stops everything; open streams end with DRAINING. Safe to call after `drain` and more than once."""
        if self._is_stopped:
            return
        self._is_stopped = True
        await self._health.enter_graceful_shutdown()
        self._router.is_draining = True
        await self._stop_serving_actors()
        self._link.to_front.connect(lambda: None)
        self._router.presence.stop()
        tasks = [task for task in (self._ticker, self._bouncer) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._ticker is not None:
            self._collections.stop()
        await self._broadcast.stop()

    async def _stop_serving_actors(self) -> None:
        self._router.end_all(Draining("the learner is stopping", retry_after_seconds=DRAIN_RETRY_SECONDS))
        await self._server.stop(GRACE_SECONDS)

    async def _all_gone(self, awaited: set[str], *, final: bool) -> None:
        while awaited & self._still_here(final=final):
            await self._router.someone_left()

    def _still_here(self, *, final: bool) -> set[str]:
        """Returns the sessions to wait for: in a final drain all that remain, otherwise those still uploading."""
        return {session.session_id for session in self._sessions.live() if final or session.is_connected}

    async def _tick(self) -> None:
        """Ends sessions whose lease has expired, and measures rates."""
        period_seconds = min(MAX_TICK_SECONDS, self._sessions.lease_seconds / 5)
        while True:
            began = self._loop.time()
            await asyncio.sleep(period_seconds)
            late_seconds = self._loop.time() - began - period_seconds
            self._metrics.loop_lag.observe(max(0.0, late_seconds))
            try:
                if late_seconds > period_seconds:  # the process was stopped, suspended or short of processor time
                    _log.warning("service_stood_still", seconds=late_seconds)
                    self._sessions.extend(late_seconds)
                self._session_service.expire()
                self._end_revoked()
                self._router.tick()
                self.rates.update()
            except Exception as error:  # noqa: BLE001 - the next round may go well, and leases must go on running out
                _log.error("tick_failed", exc_info=error)

    async def _end_strangers(self) -> None:
        """Ends connections without an accepted call while there are many; in a thread, because it looks at every descriptor."""
        while True:
            await asyncio.sleep(_STRANGERS_SECONDS)
            await asyncio.to_thread(self._strangers.end_some, self.port)

    def _end_revoked(self) -> None:
        """Ends what belongs to principals whose tokens were revoked or have expired, by the newest files."""
        access = self._identity.access
        if self._identity.security is not None:
            self._identity.security.poll()
        access.poll()
        if self._callers is None:
            return
        self._callers.end_revoked()
        self._session_service.end_unknown(access.knows)


def _needs_of_actors(method: str) -> Role | None:
    """Returns the role that a method of the actors' address needs: health checks none, watchers a viewer's."""
    if method == _HEALTH_CHECK:
        return None
    return Role.ACTOR if method.startswith(_ACTORS_PATHS) else Role.VIEWER


def _newest_version(store: PolicyStore, generation: int) -> Callable[[str], int | None]:
    def newest(behavior: str) -> int | None:
        policy = store.latest(behavior)
        if policy is None or policy.description.generation != generation:
            return None
        return policy.description.version

    return newest


def require_descriptors(settings: ServiceSettings) -> None:
    """Raises the limit of open files for the connections of all actors, as far as the system allows.

    Raises:
        UserError: Not so many connections are possible (RUN_FILE).
    """
    needed = settings.connection_limit + OTHER_DESCRIPTORS
    allowed = raise_descriptor_limit(needed)
    if allowed is not None and allowed < needed:
        count, name = settings.session_limit
        fits = max(0, (allowed - OTHER_DESCRIPTORS - SPARE_CONNECTIONS) // 2)
        raise UserError(
            ExitCode.RUN_FILE,
            f"{name} {count} needs {needed} open files, but the system allows {allowed}: raise the limit (ulimit -Hn, or "
            f"ulimits in a compose file), or set {name} to at most {fits}",
        )
