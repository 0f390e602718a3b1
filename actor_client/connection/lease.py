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
            WireError: The learner does not know the session, or knows a newer opening of it.
        """
        run = self._hub.run
        interval_seconds = (run.lease_seconds if run is not None else CALL_SECONDS) / RENEWALS_PER_LEASE
        while True:
            await self._wait(interval_seconds)
            try:
                response = await call(
                    self._endpoint.sessions.RenewSession, self._request(), min(CALL_SECONDS, interval_seconds)
                )
            except WireError as error:
                if isinstance(error, SessionExpired | SessionFenced) or fatal(error, opening=False):
                    raise
                if (left_out := self._hub.notices.due("renewal_failed")) is not None:
                    self._log.warning("renewal_failed", reason=describe(error), left_out=left_out)
                continue
            if response.lease_ms:
                interval_seconds = response.lease_ms / 1000 / RENEWALS_PER_LEASE
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
