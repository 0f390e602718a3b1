"""The loop of a connection: open, declare, stream; after any break wait and open again; at the end close."""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Executor

import grpc
import structlog
from rollcast.errors import Draining, SessionFenced, StreamSuperseded, WireError
from rollcast.v1 import session_pb2

from actor_client.connection.backoff import Backoff
from actor_client.connection.declarations import Declarations
from actor_client.connection.downlink import Downlink, LoadPolicy
from actor_client.connection.endpoint import CLOSE_SECONDS, Endpoint, call, first_of
from actor_client.connection.errors import describe, describe_shortly, fatal, least_wait_seconds, superseded
from actor_client.connection.lease import Lease
from actor_client.connection.session import Opening
from actor_client.connection.state import ConnectionState
from actor_client.connection.uplink import Uplink
from actor_client.counts import count

# An actor that is fenced so often in a row shares its session with another process.
MAX_FENCED = 3


class Connector:
    """Connects and reconnects, in the connection's thread.

    Args:
        state: The state of the connection.
        declarations: The behaviors of the actor.
        load: Makes a policy from verified bytes.
        workers: Where to verify and load policies.
        flush_seconds: How long the last chunks may take to be acked when the actor closes.
        advice: The next step by the learner's reason, where the usual one does not suit the command.
        quiet_seconds: How long to log no warning of a learner that has never answered.
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
    ) -> None:
        self._state = state
        self._declarations = declarations
        self._load = load
        self._workers = workers
        self._flush_seconds = flush_seconds
        self._advice = advice
        self._quiet_until = time.monotonic() + quiet_seconds
        self._backoff = Backoff()
        self._fenced = 0
        self._opening = True
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Connects, and again after each break, until the actor closes, or stops while there is no connection.

        Raises:
            ActorError: Trying again would not help.
        """
        state = self._state
        while not state.closing.is_set():
            try:
                async with Endpoint(state.address) as endpoint:
                    await self._connection(endpoint)
                return
            except WireError as error:
                if state.stopping:
                    self._log.info("connection_ended", reason=describe(error))
                    return
                await self._pause(self._judge(error))

    async def _connection(self, endpoint: Endpoint) -> None:
        """One connection from opening to closing.

        Raises:
            WireError: It broke.
            ActorError: Trying again would not help.
        """
        state = self._state
        await first_of(self._open(endpoint), self._closing())
        if self._opening:
            return  # closed before there was a connection
        try:
            await first_of(
                Uplink(state, endpoint).run(),
                Downlink(state, self._declarations, endpoint, self._load, self._workers).run(),
                Lease(state, self._declarations, endpoint, self._healthy).run(),
                self._declarations.serve(endpoint),
                self._flushed(),
            )
        except WireError as error:
            failure = fatal(error, opening=False, advice=self._advice)
            if failure is None:
                raise
            await self._close(endpoint, session_pb2.CLOSE_REASON_ERROR, failure.message)
            raise failure from None
        await self._close(endpoint, state.close_reason, state.close_message)

    async def _open(self, endpoint: Endpoint) -> None:
        """Opens or resumes the session and declares all behaviors.

        Raises:
            WireError: The learner refused, or did not answer.
            ActorError: A behavior was refused for good; the session has been closed.
        """
        state = self._state
        self._opening = True
        request = state.session.request(self._declarations.reports(), state.window.acked_through)
        response = await call(endpoint.sessions.OpenSession, request)
        opening, run = state.session.opened(response)
        dropped_steps = self._declarations.opened(opening, run)
        self._opening = False
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
        state.notices.reset("unreachable")
        try:
            await self._declarations.repeat(endpoint)
        except WireError as error:
            failure = fatal(error, opening=False, advice=self._advice)
            if failure is None:
                raise
            await self._close(endpoint, session_pb2.CLOSE_REASON_ERROR, failure.message)
            raise failure from None
        state.changed.set()

    async def _closing(self) -> None:
        """Returns when the actor closes."""
        await self._state.closing.wait()

    async def _flushed(self) -> None:
        """Returns when the actor has closed and the last chunks have had their time."""
        await self._state.closing.wait()
        self._state.sendable.set()
        await asyncio.sleep(self._flush_seconds)

    async def _close(self, endpoint: Endpoint, reason: session_pb2.CloseReason.ValueType, message: str) -> None:
        """Closes the session with the last counters; a learner that does not answer will see the lease run out."""
        state = self._state
        request = session_pb2.CloseSessionRequest(
            session_id=state.session.session_id,
            epoch=state.session.epoch,
            books=self._declarations.reports(),
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
            ActorError: Another attempt would not help.
        """
        state = self._state
        failure = fatal(error, opening=self._opening, advice=self._advice)
        if isinstance(error, SessionFenced | StreamSuperseded):
            self._fenced += 1
            if self._fenced >= MAX_FENCED:
                failure = superseded(error)
        if failure is not None:
            raise failure
        state.reconnects += 1
        count(state.counts.reconnects, (error.reason or error.code.name).lower())
        state.last_failure = describe_shortly(error)
        wait_seconds = self._backoff.failed(least_wait_seconds(error))
        self._log.debug("connection_failure", reason=describe(error))
        if self._is_early(error):
            return wait_seconds
        if not isinstance(error, Draining) and (left_out := state.notices.due("unreachable")) is not None:
            self._log.warning(
                "learner_unreachable" if self._opening else "connection_lost",
                address=state.address,
                reason=f"{state.last_failure}; trying again in {wait_seconds:.2g} s",
                attempt=self._backoff.attempts,
                left_out=left_out,
            )
        return wait_seconds

    def _is_early(self, error: WireError) -> bool:
        """Returns whether a learner that is about to start has not answered at all."""
        is_silent = error.code is grpc.StatusCode.UNAVAILABLE and not error.reason
        return is_silent and self._state.run is None and time.monotonic() < self._quiet_until

    async def _pause(self, seconds: float) -> None:
        """Waits, unless the actor closes."""
        try:
            async with asyncio.timeout(seconds):
                await self._state.closing.wait()
        except TimeoutError:
            return

    def _healthy(self) -> None:
        """The connection has held for a while: the next break is a new one."""
        self._backoff.healthy()
        self._fenced = 0
