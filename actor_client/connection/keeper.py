"""The life of a connection: open, declare, stream; after any break wait and open again; at the end close."""

import asyncio
import time
from concurrent.futures import Executor

import grpc
import structlog
from rollcast.errors import Draining, SessionFenced, StreamSuperseded, WireError
from rollcast.v1 import session_pb2

from actor_client.connection.backoff import Backoff
from actor_client.connection.declarations import Declarations
from actor_client.connection.downlink import Downlink, LoadPolicy
from actor_client.connection.endpoint import CLOSE_SECONDS, Endpoint, call
from actor_client.connection.hub import Hub
from actor_client.connection.lease import Lease
from actor_client.connection.manner import Manner
from actor_client.connection.pins import Pins
from actor_client.connection.session import Opening
from actor_client.connection.tasks import first_of
from actor_client.connection.uplink import Uplink
from actor_client.connection.verdicts import describe, describe_shortly, fatal, least_wait_seconds, superseded
from actor_client.counts import count
from actor_client.exits import ActorError, ExitCode

# An actor that is fenced so often in a row shares its session with another process.
MAX_FENCED = 3


class Keeper:
    """Keeps the connection, in the connection's thread.

    Args:
        hub: The state of the connection.
        declarations: What to declare.
        load: Makes a policy from verified bytes.
        workers: Where to verify and load policies.
        flush_seconds: How long the last chunks may take to be acked when the actor closes.
        manner: How it speaks to the user.
    """

    def __init__(
        self,
        hub: Hub,
        declarations: Declarations,
        load: LoadPolicy,
        workers: Executor,
        flush_seconds: float,
        *,
        manner: Manner,
    ) -> None:
        self._hub = hub
        self._declarations = declarations
        self._load = load
        self._workers = workers
        self._flush_seconds = flush_seconds
        self._advice = manner.advice
        self._quiet_until = time.monotonic() + manner.quiet_seconds
        self._backoff = Backoff()
        self._fenced = 0
        self._opening = True
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Connects, and again after each break, until the actor closes, or stops while there is no connection.

        Raises:
            ActorError: Trying again would not help.
        """
        hub = self._hub
        while not hub.closing.is_set():
            try:
                async with Endpoint(hub.address) as endpoint:
                    await self._connection(endpoint)
                return
            except WireError as error:
                if hub.stopping:
                    self._log.info("connection_ended", reason=describe(error))
                    return
                await self._pause(self._judge(error))

    async def _connection(self, endpoint: Endpoint) -> None:
        """One connection from opening to closing.

        Raises:
            WireError: It broke.
            ActorError: Trying again would not help.
        """
        hub = self._hub
        await first_of(self._open(endpoint), self._closing())
        if self._opening:
            return  # closed before there was a connection
        try:
            await first_of(
                Uplink(hub, endpoint).run(),
                Downlink(hub, endpoint, self._load, self._workers).run(),
                Pins(hub, endpoint, self._load, self._workers).run(),
                Lease(hub, endpoint, self._healthy).run(),
                self._declarations.serve(endpoint),
                self._flushed(),
            )
        except WireError as error:
            failure = fatal(error, opening=False, advice=self._advice)
            if failure is None:
                raise
            await self._close(endpoint, session_pb2.CLOSE_REASON_ERROR, failure.message)
            raise failure from None
        await self._close(endpoint, hub.close_reason, hub.close_message)

    async def _open(self, endpoint: Endpoint) -> None:
        """Opens or resumes the session and declares all behaviors.

        Raises:
            WireError: The learner refused, or did not answer.
            ActorError: A behavior was refused for good; the session has been closed.
        """
        hub = self._hub
        self._opening = True
        request = hub.session.request(hub.reports(), hub.window.acked_through)
        response = await call(endpoint.sessions.OpenSession, request)
        opening, run = hub.session.opened(response)
        dropped_steps = hub.opened(opening, run)
        self._opening = False
        log = self._log.warning if opening is Opening.LOST else self._log.info
        log(
            "connected",
            address=hub.address,
            session=opening.name.lower(),
            run_id=run.run_id,
            generation=run.generation,
            actor_index=run.actor_index,
            dropped_steps=dropped_steps,
        )
        hub.notices.reset("unreachable")
        try:
            await self._declarations.repeat(endpoint)
        except WireError as error:
            failure = fatal(error, opening=False, advice=self._advice)
            if failure is None:
                raise
            await self._close(endpoint, session_pb2.CLOSE_REASON_ERROR, failure.message)
            raise failure from None
        hub.changed.set()

    async def _closing(self) -> None:
        """Returns when the actor closes."""
        await self._hub.closing.wait()

    async def _flushed(self) -> None:
        """Returns when the actor has closed and the last chunks have had their time."""
        await self._hub.closing.wait()
        self._hub.sendable.set()
        await asyncio.sleep(self._flush_seconds)

    async def _close(self, endpoint: Endpoint, reason: session_pb2.CloseReason.ValueType, message: str) -> None:
        """Closes the session with the last counters; a learner that does not answer will see the lease run out."""
        hub = self._hub
        request = session_pb2.CloseSessionRequest(
            session_id=hub.session.session_id,
            epoch=hub.session.epoch,
            books=hub.reports(),
            reason=reason,
            message=message,
        )
        try:
            await call(endpoint.sessions.CloseSession, request, CLOSE_SECONDS)
        except WireError as error:
            self._log.info("close_unanswered", reason=describe(error))

    def _judge(self, error: WireError) -> float:
        """Returns how long to wait before the next attempt.

        Raises:
            ActorError: There shall be none.
        """
        hub = self._hub
        failure = fatal(error, opening=self._opening, advice=self._advice)
        if isinstance(error, SessionFenced | StreamSuperseded):
            self._fenced += 1
            if self._fenced >= MAX_FENCED:
                failure = superseded(error)
        if failure is not None:
            raise failure
        hub.reconnects += 1
        count(hub.counts.reconnects, (error.reason or error.code.name).lower())
        hub.last_failure = describe_shortly(error)
        wait_seconds = self._backoff.failed(least_wait_seconds(error))
        self._log.debug("connection_failure", reason=describe(error))
        if self._is_early(error):
            return wait_seconds
        if not isinstance(error, Draining) and (left_out := hub.notices.due("unreachable")) is not None:
            self._log.warning(
                "learner_unreachable" if self._opening else "connection_lost",
                address=hub.address,
                reason=f"{hub.last_failure}; trying again in {wait_seconds:.2g} s",
                attempt=self._backoff.attempts,
                left_out=left_out,
            )
        return wait_seconds

    def _is_early(self, error: WireError) -> bool:
        """Whether a learner that is about to start has not answered at all."""
        is_silent = error.code is grpc.StatusCode.UNAVAILABLE and not error.reason
        return is_silent and self._hub.run is None and time.monotonic() < self._quiet_until

    async def _pause(self, seconds: float) -> None:
        """Waits, unless the actor closes."""
        try:
            async with asyncio.timeout(seconds):
                await self._hub.closing.wait()
        except TimeoutError:
            return

    def _healthy(self) -> None:
        """The connection has held for a while: the next break is a new one."""
        self._backoff.healthy()
        self._fenced = 0


def unexpected(error: BaseException) -> ActorError:
    """Returns how the actor ends because of a fault of the connection itself."""
    kind = type(error).__name__
    return ActorError(
        ExitCode.INTERNAL, f"the connection failed with {kind}: {error}; please report the traceback above"
    )
