"""What is where on the HTTP port."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog
from aiohttp import hdrs, web

from learner.web.documents import history_document, status_document, to_json
from learner.web.guard import RequestRefused, json_answer
from learner.web.hooks import WebHooks
from learner.web.operator_token import OperatorToken
from learner.web.page import Page
from learner.web.shared import SharedAnswer

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SAVE_SECONDS: Final = 120.0
THREADS: Final = 2
"""For all readers together: of their own, for in the loop's the learner publishes, and ends the run."""
VIEWER_SECONDS: Final = 2.5
"""Who asked for the status within so long is looking at a page."""

log = structlog.get_logger(__name__)

Result = TypeVar("Result")


class Routes:
    """Answers requests.

    Args:
        hooks: the learner.
        token: of the operators.
        page: the status page.
    """

    def __init__(self, hooks: WebHooks, token: OperatorToken, page: Page) -> None:
        self._hooks = hooks
        self._token = token
        self._page = page
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web")
        self._metrics = SharedAnswer(hooks.metrics, self._threads)
        self._status = SharedAnswer(lambda: to_json(status_document(hooks.status())), self._threads)
        self._acting = asyncio.Lock()
        self._asked_at = -math.inf
        self._last_look = asyncio.Event()
        self._draws_curves = False

    def close(self) -> None:
        """Lets go of the threads; nothing can be asked any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def farewell(self, seconds: float) -> None:
        """Waits, if a page is open, until it has had a last look: so it can say that the run ended, not just vanished."""
        if time.monotonic() - self._asked_at > VIEWER_SECONDS:
            return
        self._status.expire()
        self._last_look.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._last_look.wait(), seconds)

    def add_to(self, app: web.Application) -> None:
        """Adds all routes."""
        app.router.add_get("/", self.page)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/api/status", self.status)
        app.router.add_get("/api/history", self.history)
        app.router.add_post("/api/operator", self.operator)
        app.router.add_post("/api/pause", self.pause)
        app.router.add_post("/api/resume", self.resume)
        app.router.add_post("/api/checkpoint", self.checkpoint)

    async def page(self, _request: web.Request) -> web.Response:
        """The status page."""
        headers = {"Content-Security-Policy": self._page.policy}
        return web.Response(body=self._page.body, content_type="text/html", charset="utf-8", headers=headers)

    async def metrics(self, _request: web.Request) -> web.Response:
        """The metrics, for Prometheus."""
        return web.Response(body=await self._metrics.get(), headers={"Content-Type": METRICS_TYPE})

    async def healthz(self, _request: web.Request) -> web.Response:
        """Whether the learner is well, for those who look at the code alone."""
        is_serving = await self._read(self._hooks.is_serving)
        return web.Response(text="serving\n" if is_serving else "not serving\n", status=200 if is_serving else 503)

    async def status(self, _request: web.Request) -> web.Response:
        """The state of the run, its books, its actors."""
        self._asked_at = time.monotonic()
        body = await self._status.get()
        if not self._draws_curves:
            self._last_look.set()
        return web.Response(body=body, content_type="application/json")

    async def history(self, request: web.Request) -> web.Response:
        """The curves of one behavior, those later than ``since`` alone."""
        behavior, since = request.query.get("behavior"), _seconds(request.query.get("since"))
        if behavior is None:
            raise RequestRefused(400, "NO_BEHAVIOR", "say which behavior: /api/history?behavior=NAME")
        view = await self._read(lambda: self._hooks.history(behavior, since))
        if view is None:
            raise RequestRefused(404, "NO_SUCH_BEHAVIOR", "no behavior of this name has a history")
        self._draws_curves = True  # a page asks for the status, and then for these
        self._last_look.set()
        return json_answer(history_document(view))

    async def operator(self, request: web.Request) -> web.Response:
        """Whether the caller is an operator."""
        self._require_operator(request)
        return json_answer({"operator": True})

    async def pause(self, request: web.Request) -> web.Response:
        """Stops training."""
        await self._act(request, "pause", self._hooks.pause)
        return json_answer({"state": "paused"})

    async def resume(self, request: web.Request) -> web.Response:
        """Ends a pause."""
        await self._act(request, "resume", self._hooks.resume)
        return json_answer({"state": "resumed"})

    async def checkpoint(self, request: web.Request) -> web.Response:
        """Saves a checkpoint, and answers when it is on disk."""
        path = await self._act(request, "checkpoint", lambda: self._hooks.save_checkpoint(SAVE_SECONDS))
        return json_answer({"path": path})

    async def _read(self, read: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def _act(self, request: web.Request, action: str, act: Callable[[], str | None]) -> str | None:
        """Lets an operator do something; one thing at a time, for each may keep a thread waiting for an update."""
        self._require_operator(request)
        if self._acting.locked():
            raise RequestRefused(409, "BUSY", "an operator's last request is still being done; try again in a moment")
        async with self._acting:
            log.info("operator_request", action=action, caller=request.remote)
            result = await asyncio.to_thread(act)
            self._status.expire()  # whoever looks next sees what was done
            return result

    def _require_operator(self, request: web.Request) -> None:
        header = request.headers.get(hdrs.AUTHORIZATION)
        if header is None:
            raise RequestRefused(
                401,
                "NO_TOKEN",
                "only operators may do this: send the header `Authorization: Bearer TOKEN`; "
                "`rollcast-learner page` shows the token",
                {"WWW-Authenticate": "Bearer"},
            )
        if not self._token.is_that_of(header):
            log.warning("operator_refused", path=request.path, caller=request.remote)
            raise RequestRefused(
                403, "WRONG_TOKEN", "this is not the operator's token; `rollcast-learner page` shows it"
            )


def _seconds(text: str | None) -> float:
    if text is None:
        return -math.inf
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RequestRefused(400, "BAD_SINCE", "since must be a number of seconds")
    return value
