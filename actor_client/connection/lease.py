"""Keeping the session alive: a renewal every third of the lease, whatever the stepping thread does."""

import asyncio
from collections.abc import Callable

import structlog
from rollcast.errors import SessionExpired, SessionFenced, WireError
from rollcast.v1 import session_pb2

from actor_client.connection.endpoint import CALL_SECONDS, Endpoint, call
from actor_client.connection.hub import Hub
from actor_client.connection.verdicts import describe, fatal

RENEWALS_PER_LEASE = 3
# A learner that answers with a lease of next to nothing is not flooded.
SHORTEST_INTERVAL_SECONDS = 0.05


class Lease:
    """Renews the session and reports books and policies.

    Args:
        hub: The state of the connection.
        endpoint: Where to.
        healthy: Called after each renewal that was answered.
    """

    def __init__(self, hub: Hub, endpoint: Endpoint, healthy: Callable[[], None]) -> None:
        self._hub = hub
        self._endpoint = endpoint
        self._healthy = healthy
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Renews until cancelled. A renewal that fails is tried again while the lease lasts.

        Raises:
            WireError: The learner does not know the session, or knows a newer opening of it, or has not answered for
                the whole lease: then the connection is dead even if the network has not said so.
        """
        run = self._hub.run
        interval_seconds = _interval(run.lease_seconds if run is not None else CALL_SECONDS)
        failures = 0
        while True:
            await self._wait(interval_seconds)
            try:
                response = await call(
                    self._endpoint.sessions.RenewSession, self._request(), min(CALL_SECONDS, interval_seconds)
                )
            except WireError as error:
                failures += 1
                lost = isinstance(error, SessionExpired | SessionFenced) or failures >= RENEWALS_PER_LEASE
                if lost or fatal(error, opening=False):
                    raise
                if (left_out := self._hub.notices.due("renewal_failed")) is not None:
                    self._log.warning("renewal_failed", reason=describe(error), left_out=left_out)
                continue
            failures = 0
            if response.lease_ms:
                interval_seconds = _interval(response.lease_ms / 1000)
            self._healthy()

    async def _wait(self, seconds: float) -> None:
        """Waits for the next renewal, or until the learner shall hear at once."""
        try:
            async with asyncio.timeout(seconds):
                await self._hub.renew_now.wait()
        except TimeoutError:
            return
        finally:
            self._hub.renew_now.clear()

    def _request(self) -> session_pb2.RenewSessionRequest:
        hub = self._hub
        return session_pb2.RenewSessionRequest(
            session_id=hub.session.session_id,
            epoch=hub.session.epoch,
            books=hub.reports(),
            policies=[behavior.policy_report() for behavior in hub.behaviors.values() if behavior.index >= 0],
        )


def _interval(lease_seconds: float) -> float:
    """Returns the seconds between two renewals."""
    return max(SHORTEST_INTERVAL_SECONDS, lease_seconds / RENEWALS_PER_LEASE)
