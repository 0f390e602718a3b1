"""Keeps the session alive: renews as often as the lease and the learner require, independent of the stepping thread."""

import asyncio
import time
from collections.abc import Callable

import structlog
from rollcast.errors import SessionExpired, SessionFenced, WireError
from rollcast.v1 import session_pb2

from actor_client.connection.declarations import Declarations
from actor_client.connection.endpoint import CALL_SECONDS, Endpoint, call
from actor_client.connection.errors import describe, fatal
from actor_client.connection.state import ConnectionState

RENEWALS_PER_LEASE = 3
# Seconds to the first report, before the learner has named an interval.
FIRST_REPORT_SECONDS = 2.0
# Least interval, so that a learner with a very short lease is not flooded.
SHORTEST_INTERVAL_SECONDS = 0.05


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
