"""The loop of a connection: opens, declares and streams; waits and reopens after each break; closes at the end."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from typing import Final

import grpc
import structlog
from rollcast.addresses import split_address
from rollcast.errors import Draining, Quarantined, SessionExpired, SessionFenced, StreamSuperseded, WireError
from rollcast.history import session_name
from rollcast.tls import ClientSecurity
from rollcast.v1 import session_pb2

from actor_client.connection.backoff import Backoff
from actor_client.connection.declarations import Declarations
from actor_client.connection.downlink import Downlink, LoadPolicy
from actor_client.connection.endpoint import CALL_SECONDS, CLOSE_SECONDS, Endpoint, call, first_of
from actor_client.connection.errors import describe, describe_shortly, fatal, least_wait_seconds, one_line, superseded
from actor_client.connection.session import Opening
from actor_client.connection.state import ConnectionState
from actor_client.connection.uplink import Uplink
from actor_client.counts import count
from actor_client.exits import ActorError, ExitCode

PATIENT_SECONDS: Final = 60.0
"""Seconds without an answer of the learner from which on the actor warns."""
_START: Final = "start the learner with rollcast serve RUN.yaml, or give its address with --learner"
_WAIT: Final = "the actor waits until the learner is back; Ctrl-C ends the actor"

# Consecutive fenced openings after which another process is assumed to use the same session.
MAX_FENCED = 3
# Seconds for which an actor that the learner has accepted once retries when its token is refused.
REFUSED_SECONDS = 600.0
RENEWALS_PER_LEASE = 3
# Seconds to the first report, before the learner has named an interval.
FIRST_REPORT_SECONDS = 2.0
# Least interval, so that a learner with a very short lease is not flooded.
SHORTEST_INTERVAL_SECONDS = 0.05


class Connector:
    """Connects and reconnects, in the connection's thread.

    Args:
        state: The state of the connection.
        declarations: The behaviors of the actor.
        load: Makes a policy from verified bytes.
        workers: Workers that verify and load policies.
        flush_seconds: Seconds for the acks of the last chunks when the actor closes.
        advice: The command's own next steps for errors, by the learner's reason.
        quiet_seconds: Seconds without warnings of a learner that has never answered.
        security: How to connect.
    """

    def __init__(
        self,
        state: ConnectionState,
        declarations: Declarations,
        load: LoadPolicy,
        workers: Executor,
        flush_seconds: float,
        *,
        advice: Mapping[str, str],
        quiet_seconds: float,
        security: ClientSecurity = ClientSecurity(),  # noqa: B008 - frozen
    ) -> None:
        self._state = state
        self._declarations = declarations
        self._load = load
        self._workers = workers
        self._flush_seconds = flush_seconds
        self._advice = advice
        self._quiet_until = time.monotonic() + quiet_seconds
        self._security = security
        self._refused_since: float | None = None
        self._backoff = Backoff()
        self._fenced = 0
        self._opening = True
        self._has_advised = False
        self._silent_since: float | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Connects, and reconnects after each break, until the actor closes, or stops without a connection.

        Raises:
            ActorError: A retry would not help.
        """
        state = self._state
        for path in self._security.exposed:
            self._log.warning(
                "secret_readable_by_others", file=str(path), action=f"chmod 600 {path}, unless it is mounted"
            )
        while not state.closing.is_set():
            try:
                async with Endpoint(state.address, self._security) as endpoint:
                    await self._connection(endpoint)
                return
            except WireError as error:
                if state.stopping:
                    self._log.info("connection_ended", reason=describe(error))
                    return
                await self._pause(await self._judge(error))

    async def _connection(self, endpoint: Endpoint) -> None:
        """Runs one connection from opening to closing.

        Raises:
            WireError: The connection broke.
            ActorError: A retry would not help.
        """
        state = self._state
        await first_of(self._open(endpoint), state.closing.wait())
        if self._opening:
            return  # closed before there was a connection
        async with self._closed_by_errors(endpoint):
            await first_of(
                Uplink(state, endpoint).run(),
                Downlink(state, self._declarations, endpoint, self._load, self._workers).run(),
                Lease(state, self._declarations, endpoint, self._healthy).run(),
                self._declarations.serve(endpoint),
                self._flushed(),
            )
        await self._close(endpoint, state.close_reason, state.close_message)

    async def _open(self, endpoint: Endpoint) -> None:
        """Opens or resumes the session and declares all behaviors.

        Raises:
            WireError: The learner refused, or did not answer.
            ActorError: A behavior was refused permanently; the session has been closed.
        """
        state = self._state
        self._opening = True
        request = state.session.request(self._declarations.reports(), state.window.acked_through)
        response = await call(endpoint.sessions.OpenSession, request, metadata=endpoint.metadata)
        opening, run = state.session.opened(response)
        if state.history is not None:
            session = state.session
            state.history.write(
                "opened",
                session=session_name(session.session_id),
                epoch=session.epoch,
                generation=session.generation,
                kind=opening.name.lower(),
                next_sequence=session.next_sequence,
                settled_through=run.settled_through,
            )
        dropped_steps = self._declarations.opened(opening, run)
        self._opening = False
        self._has_advised = False
        self._silent_since = None
        self._refused_since = None
        log = self._log.warning if opening is Opening.LOST else self._log.info
        log(
            "connected",
            address=state.address,
            session=opening.name.lower(),
            run_id=run.run_id,
            generation=run.generation,
            actor_index=run.actor_index,
            dropped_steps=dropped_steps,
        )
        state.notices.forget("unreachable")
        async with self._closed_by_errors(endpoint):
            await self._declarations.repeat(endpoint)
        state.changed.set()

    @contextlib.asynccontextmanager
    async def _closed_by_errors(self, endpoint: Endpoint) -> AsyncIterator[None]:
        """Closes the session if an error of the block ends the actor.

        Raises:
            WireError: A retry may help.
            ActorError: It ends the actor.
        """
        try:
            yield
        except (WireError, ActorError) as error:
            failure = self._fatal(error, opening=False) if isinstance(error, WireError) else error
            if failure is not None:
                await self._close(endpoint, session_pb2.CLOSE_REASON_ERROR, failure.message)
            raise failure or error from None

    async def _flushed(self) -> None:
        """Waits until the actor has closed and the time for the last chunks is over."""
        await self._state.closing.wait()
        self._state.sendable.set()
        await asyncio.sleep(self._flush_seconds)

    async def _close(self, endpoint: Endpoint, reason: session_pb2.CloseReason.ValueType, message: str) -> None:
        """Closes the session with the last counters; if the learner does not answer, the lease expires."""
        state = self._state
        request = session_pb2.CloseSessionRequest(
            session_id=state.session.session_id,
            epoch=state.session.epoch,
            books=self._declarations.reports(),
            reason=reason,
            message=one_line(message),
        )
        try:
            await call(endpoint.sessions.CloseSession, request, CLOSE_SECONDS, metadata=endpoint.metadata)
        except WireError as error:
            self._log.info("close_unanswered", reason=describe(error))

    async def _judge(self, error: WireError) -> float:
        """Returns the seconds to wait before the next attempt.

        Raises:
            ActorError: A retry would not help.
        """
        state = self._state
        failure = self._fatal(error, opening=self._opening)
        if isinstance(error, SessionFenced | StreamSuperseded):
            self._fenced += 1
            if self._fenced >= MAX_FENCED:
                failure = superseded(error)
        if failure is not None:
            raise failure
        problem = await self._certificate_problem(error)
        state.reconnects += 1
        count(state.counts.reconnects, (error.reason or error.code.name).lower())
        proxy = await asyncio.to_thread(self._security.proxy_words, state.address) if _is_silent(error) else ""
        state.last_failure = "; ".join(filter(None, (problem or describe_shortly(error), proxy)))
        wait_seconds = self._backoff.failed(least_wait_seconds(error))
        self._log.debug("connection_failure", reason=describe(error))
        if self._is_early(error):
            return wait_seconds
        next_step = self._next_step(error)
        if next_step:  # an earlier line of this outage, such as that of a cancelled call, had no advice
            state.notices.forget("unreachable")
        if not isinstance(error, Draining) and (left_out := state.notices.admit("unreachable")) is not None:
            # To wait for a learner that starts or restarts is the normal course; only a long wait is a problem.
            say = self._log.info if self._is_brief_silence(error) else self._log.warning
            say(
                _event(error, is_opening=self._opening),
                address=state.address,
                reason=f"{state.last_failure}; trying again in {wait_seconds:.2g} s{self._until(error)}",
                attempt=self._backoff.attempts,
                left_out=left_out,
                **next_step,
            )
        return wait_seconds

    def _until(self, error: WireError) -> str:
        """Returns how long the actor tries again, if a refused token ends it then; empty otherwise."""
        if error.code is not grpc.StatusCode.UNAUTHENTICATED or self._refused_since is None:
            return ""
        left_seconds = max(0.0, self._refused_since + REFUSED_SECONDS - time.monotonic())
        return f", and the actor ends if it is refused for another {left_seconds:.0f} s"

    def _fatal(self, error: WireError, *, opening: bool) -> ActorError | None:
        """Returns the error that ends the actor; None if the actor should reconnect.

        An actor that the learner has accepted once retries for some time if its token is refused, and reads its token
        again for each attempt: while tokens are replaced, both sides' files may differ.
        """
        if error.code is grpc.StatusCode.UNAUTHENTICATED and self._state.run is not None:
            now = time.monotonic()
            self._refused_since = now if self._refused_since is None else self._refused_since
            if now - self._refused_since < REFUSED_SECONDS:
                return None
        return fatal(error, opening=opening, advice=self._advice)

    async def _certificate_problem(self, error: WireError) -> str:
        """Returns what is wrong with a certificate if that is why no learner answers; empty otherwise.

        Raises:
            ActorError: It is, or another service answers, and the learner has never answered.
        """
        if not _is_silent(error) or (self._security.ca is None and self._state.run is not None):
            return ""
        host, port = split_address(self._state.address)
        problem = await asyncio.to_thread(self._security.problem, host, port)
        if problem and self._state.run is None:
            raise ActorError(ExitCode.UNTRUSTED, f"no connection to {self._state.address}: {problem}")
        if not problem and self._state.run is None:
            other = await asyncio.to_thread(self._security.other_service, host, port)
            if other:
                raise ActorError(
                    ExitCode.NOT_A_LEARNER, f"no learner answers at {self._state.address} (--learner): {other}"
                )
        return problem

    def _next_step(self, error: WireError) -> dict[str, str]:
        """Returns the field `action` for the first attempt of an outage that no learner answers; empty otherwise."""
        if self._has_advised or not _is_silent(error):
            return {}
        self._has_advised = True
        return {"action": _START if self._state.run is None else _WAIT}

    def _is_brief_silence(self, error: WireError) -> bool:
        """Returns whether no learner has answered for less than `PATIENT_SECONDS`."""
        if not _is_silent(error):
            return False
        now = time.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        return now - self._silent_since < PATIENT_SECONDS

    def _is_early(self, error: WireError) -> bool:
        """Returns whether the learner, perhaps still starting, has never answered."""
        return _is_silent(error) and self._state.run is None and time.monotonic() < self._quiet_until

    async def _pause(self, seconds: float) -> None:
        """Waits; returns early if the actor closes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._state.closing.wait(), seconds)

    def _healthy(self) -> None:
        """Notes that the connection is stable, so that the next break counts as the first."""
        self._backoff.healthy()
        self._fenced = 0


def _event(error: WireError, *, is_opening: bool) -> str:
    """Returns the name of the log line for an attempt that failed."""
    if isinstance(error, Quarantined):
        return "quarantined"
    return "learner_unreachable" if is_opening else "connection_lost"


def _is_silent(error: WireError) -> bool:
    """Returns whether no learner answered."""
    return error.code is grpc.StatusCode.UNAVAILABLE and not error.reason


class Lease:
    """Renews the session and reports books and policies.

    Args:
        state: The state of the connection.
        declarations: The behaviors of the actor.
        endpoint: The endpoint of the connection.
        healthy: Called after each renewal that was answered.
    """

    def __init__(
        self, state: ConnectionState, declarations: Declarations, endpoint: Endpoint, healthy: Callable[[], None]
    ) -> None:
        self._state = state
        self._declarations = declarations
        self._endpoint = endpoint
        self._healthy = healthy
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Renews until cancelled. A failed renewal is retried while the lease lasts.

        Raises:
            WireError: The learner does not know the session, knows a newer opening of it, or has not answered for the
                whole lease, which means that the connection is dead.
        """
        run = self._state.run
        lease_seconds = run.lease_seconds if run is not None else CALL_SECONDS * RENEWALS_PER_LEASE
        wanted_seconds = FIRST_REPORT_SECONDS
        failures = 0
        answered = time.monotonic()
        while True:
            third_seconds = max(SHORTEST_INTERVAL_SECONDS, lease_seconds / RENEWALS_PER_LEASE)
            # After a failure, renewals are as rare as the lease allows.
            await self._wait(third_seconds if failures else _interval(third_seconds, wanted_seconds))
            try:
                response = await call(
                    self._endpoint.sessions.RenewSession,
                    self._request(),
                    min(CALL_SECONDS, third_seconds),
                    metadata=self._endpoint.metadata,
                )
            except WireError as error:
                failures += 1
                silent = failures >= RENEWALS_PER_LEASE and time.monotonic() - answered >= lease_seconds
                lost = isinstance(error, SessionExpired | SessionFenced) or silent
                if lost or fatal(error, opening=False):
                    raise
                if (left_out := self._state.notices.admit("renewal_failed")) is not None:
                    self._log.warning("renewal_failed", reason=describe(error), left_out=left_out)
                continue
            failures = 0
            answered = time.monotonic()
            if response.lease_ms:
                lease_seconds = response.lease_ms / 1000
            wanted_seconds = response.report_ms / 1000
            self._healthy()

    async def _wait(self, seconds: float) -> None:
        """Waits until the next renewal is due."""
        try:
            async with asyncio.timeout(seconds):
                await self._state.renew_now.wait()
        except TimeoutError:
            return
        finally:
            self._state.renew_now.clear()

    def _request(self) -> session_pb2.RenewSessionRequest:
        state = self._state
        return session_pb2.RenewSessionRequest(
            session_id=state.session.session_id,
            epoch=state.session.epoch,
            books=self._declarations.reports(),
            policies=[behavior.policy_report() for behavior in self._declarations.numbered()],
            times=state.times.report(),
            environments=state.rollout.environment_report(),
        )


def _interval(third_seconds: float, wanted_seconds: float) -> float:
    """Returns the seconds between two renewals: at most a third of the lease, or less if the learner asks for it."""
    if wanted_seconds == 0.0:
        return third_seconds
    return min(third_seconds, max(SHORTEST_INTERVAL_SECONDS, wanted_seconds))
