"""The routes of the HTTP port: the page, the metrics, the status documents and the operators' requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import math
import re
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any, Final, TypeVar

import structlog
from aiohttp import hdrs, web

from learner.observe.history import HistoryView
from learner.observe.metrics.learner import CONTENT_TYPE
from learner.observe.view import ActorView, BehaviorView
from learner.web.guard import RequestRefused, json_answer, to_json
from learner.web.hooks import StatusView, WebHooks
from learner.web.operator_token import OperatorToken

FRESH_SECONDS: Final = 0.5
"""So long an answer is good for everybody who asks."""


class SharedAnswer:
    """Makes an answer where there is no fresh one, one at a time. Belongs to one event loop.

    Args:
        make: returns the answer; called in a thread of the executor.
        executor: not the loop's own, in which the learner has work of its own.
        clock: monotonic seconds.
    """

    def __init__(
        self, make: Callable[[], bytes], executor: Executor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._executor = executor
        self._clock = clock
        self._making = asyncio.Lock()
        self._answer = b""
        self._fresh_until = -math.inf

    async def get(self) -> bytes:
        """Returns the answer, which is at most `FRESH_SECONDS` old."""
        async with self._making:
            if self._clock() >= self._fresh_until:
                self._answer = await asyncio.get_running_loop().run_in_executor(self._executor, self._make)
                self._fresh_until = self._clock() + FRESH_SECONDS
        return self._answer

    def expire(self) -> None:
        """Lets whoever asks next have a new one."""
        self._fresh_until = -math.inf


_INLINE: Final = {kind: re.compile(rf"<{kind}>(.*?)</{kind}>", flags=re.DOTALL) for kind in ("script", "style")}


@dataclass(frozen=True, slots=True)
class Page:
    """The page as it is sent.

    Attributes:
        body: one HTML file that needs nothing else.
        policy: its Content-Security-Policy: only the script and style that were there when the learner started run,
            nothing is loaded from anywhere, and texts cannot become markup (Trusted Types).
    """

    body: bytes
    policy: str


def load_page() -> Page:
    """Reads the page that this package brings."""
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Page(text.encode(), content_policy(text))


def content_policy(html: str) -> str:
    """Returns the policy that lets exactly the inline script and style of a page run."""
    allowed = {
        kind: " ".join(f"'sha256-{_digest(block)}'" for block in pattern.findall(html)) or "'none'"
        for kind, pattern in _INLINE.items()
    }
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed['script']}",
            f"style-src {allowed['style']}",
            "img-src data:",  # the icon
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(block: str) -> str:
    return base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()


def status_document(status: StatusView) -> dict[str, Any]:
    """Returns the document of ``GET /api/status``. It holds nothing that lets its reader do anything."""
    run = status.run
    return {
        "run_id": run.run_id,
        "state": run.state.value,
        "generation": run.generation,
        "uptime_seconds": run.uptime_seconds,
        "address": run.address,
        "version": status.version,
        "last_error": run.last_error,
        "verdict": asdict(run.bottleneck),
        "behaviors": [_behavior(view) for view in run.behaviors],
        "lessons": [asdict(lesson) for lesson in run.lessons],
        "lockstep": None if run.lockstep is None else asdict(run.lockstep),
        "actors": [_actor(view) for view in status.actors],
    }


def history_document(view: HistoryView) -> dict[str, Any]:
    """Returns the document of ``GET /api/history``."""
    return {"behavior": view.behavior, "interval_seconds": view.interval_seconds, "columns": dict(view.columns)}


def _behavior(view: BehaviorView) -> dict[str, Any]:
    shown = asdict(view)
    mean_return = shown.pop("mean_return_100")
    return {**shown, "mean_return": mean_return, "books": {**view.books, "balanced": view.is_balanced}}


def _actor(view: ActorView) -> dict[str, Any]:
    return {**asdict(view), "books": {**asdict(view.books), "balanced": view.books.balanced}}


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
        return web.Response(body=await self._metrics.get(), headers={"Content-Type": CONTENT_TYPE})

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
