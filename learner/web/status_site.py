"""The status page of a learner from start to stop: its port, its operators' token, its curves."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import structlog

from learner.common.files import WriteFailed
from learner.settings.load import LoadedRun
from learner.settings.service import ServiceSettings
from learner.web.learner_hooks import RunHooks
from learner.web.operator_token import OperatorToken, forget_token, token_from_file, token_of_run, unkept_token
from learner.web.server import WebServer, require_free_http

SAMPLE_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class StatusSite:
    """Serves the page beside the gRPC service, unless `rollcast.http` is false.

    Args:
        service: the settings.
        folder: of the run.
        hooks: the learner, as the page sees it.
        falls_back: nobody asked for the address: where it is taken, another port will do.

    Raises:
        UserError: the operators' token cannot be read.
    """

    def __init__(self, service: ServiceSettings, folder: Path, hooks: RunHooks, *, falls_back: bool) -> None:
        self._hooks = hooks
        self._server: WebServer | None = None
        self._sampler: asyncio.Task[None] | None = None
        if service.http:
            token = _token(service, folder)
            self._server = WebServer(hooks, address=service.http_address, token=token, falls_back=falls_back)

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``; empty if it does not."""
        return self._server.address if self._server is not None else ""

    @property
    def url(self) -> str:
        """Where the page is; empty if there is none."""
        return self._server.url if self._server is not None else ""

    async def start(self) -> None:
        """Listens.

        Raises:
            UserError: the address cannot be had (PORT_IN_USE).
        """
        if self._server is not None:
            await self._server.start()
            self._sampler = asyncio.create_task(self._sample())

    async def stop(self, *, in_a_hurry: bool = False) -> None:
        """Closes it. Harmless before `start`, and twice.

        Args:
            in_a_hurry: do not wait for an open page to have its last look.
        """
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampler
            await self._take_sample()  # what the run came to
            if self._server is not None and not in_a_hurry:
                await self._server.farewell()
        if self._server is not None:
            await self._server.stop()

    async def _sample(self) -> None:
        while True:
            await self._take_sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _take_sample(self) -> None:
        try:
            await asyncio.to_thread(self._hooks.sample)
        except Exception as error:  # curves never end a run
            log.error("sample_failed", exc_info=error)


def http_address_is_default(loaded: LoadedRun) -> bool:
    """Says whether nobody asked for the address of the page."""
    return loaded.sources.get("rollcast.http_address") == "default"


def check_http(loaded: LoadedRun) -> None:
    """Looks whether the page can be served, before a run folder is touched.

    Raises:
        UserError: the address was asked for and cannot be had, or the token cannot be read.
    """
    service = loaded.options.rollcast
    if not service.http:
        return
    if not http_address_is_default(loaded):
        require_free_http(service.http_address)
    if service.operator_token_file is not None:
        token_from_file(Path(service.operator_token_file))


def _token(service: ServiceSettings, folder: Path) -> OperatorToken:
    if service.operator_token_file is not None:
        forget_token(folder)
        return token_from_file(Path(service.operator_token_file))
    try:
        return token_of_run(folder)
    except WriteFailed as error:
        log.error(
            "operator_token_not_kept", error=str(error), action="the page can be read, but its buttons do nothing"
        )
        return unkept_token()
