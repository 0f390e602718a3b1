"""Runs the status page of a learner: its port, its operators' token and its curves."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import structlog

from learner.service.identity.setup import Identity
from learner.service.web.learner_hooks import RunHooks
from learner.service.web.operator_token import OperatorToken, forget_token, token_from_file, token_of_run, unkept_token
from learner.service.web.server import WebServer, require_free_http
from learner.shared.files import WriteFailed
from learner.shared.settings.addresses import host_names
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.service import ServiceSettings

SAMPLE_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class StatusSite:
    """Serves the page next to the gRPC service, unless `rollcast.http` is false.

    Args:
        service: The settings.
        token: The operators' token.
        hooks: Access to the learner.
        identity: The learner's certificate, and the tokens of viewers.
        falls_back: Whether to take another port if the address, a default, is in use.
    """

    def __init__(
        self, service: ServiceSettings, token: OperatorToken, hooks: RunHooks, identity: Identity, *, falls_back: bool
    ) -> None:
        self._hooks = hooks
        self._server: WebServer | None = None
        self._sampler: asyncio.Task[None] | None = None
        if service.http:
            self._server = WebServer(
                hooks,
                address=service.http_address,
                token=token,
                identity=identity,
                falls_back=falls_back,
                hosts=host_names(service.http_hosts),
            )

    @property
    def address(self) -> str:
        """Bound address, ``host:port``; empty if the page is not served."""
        return self._server.address if self._server is not None else ""

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            UserError: The address is unavailable (PORT_IN_USE).
        """
        if self._server is not None:
            await self._server.start()
            self._sampler = asyncio.create_task(self._sample())

    async def stop(self, *, in_a_hurry: bool = False, is_over: bool = False) -> None:
        """Closes the page. Safe to call before `start` and more than once.

        Args:
            in_a_hurry: Whether to close the page even if an open one has not read the final status.
            is_over: Whether the run has ended by itself, which Prometheus is to know.
        """
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampler
            await self._take_sample()  # the final values
            if self._server is not None and not in_a_hurry:
                await self._server.farewell(is_over=is_over)
        if self._server is not None:
            await self._server.stop()

    async def _sample(self) -> None:
        while True:
            await self._take_sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _take_sample(self) -> None:
        try:
            await asyncio.to_thread(self._hooks.sample)
        except Exception as error:  # faulty curves never end a run
            log.error("sample_failed", exc_info=error)


def http_address_is_default(loaded: LoadedRun) -> bool:
    """Returns whether the address of the page is the default one."""
    return loaded.sources.get("rollcast.http_address") == "default"


def check_http(loaded: LoadedRun) -> None:
    """Checks that the page can be served before a run folder is created.

    Raises:
        UserError: The requested address is unavailable, or the token cannot be read.
    """
    service = loaded.options.rollcast
    if service.operator_token_file is not None:
        token_from_file(Path(service.operator_token_file))
    if service.http and not http_address_is_default(loaded):
        require_free_http(service.http_address)


def operator_token(service: ServiceSettings, folder: Path) -> OperatorToken:
    """Returns the operators' token: of the user's file, or of the run folder, which keeps it.

    Raises:
        UserError: The user's file cannot be read.
    """
    if service.operator_token_file is not None:
        forget_token(folder)
        return token_from_file(Path(service.operator_token_file))
    try:
        return token_of_run(folder)
    except WriteFailed as error:
        log.error("operator_token_not_kept", error=str(error), action="the status page is read-only for this run")
        return unkept_token()
