"""The routes of the HTTP port: the page, the metrics, the status documents and the operators' requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any, Final, TypeVar

import grpc
import structlog
from aiohttp import hdrs, web
from rollcast.addresses import ip_of
from rollcast.auth import Principal, Role, bearer
from rollcast.errors import WireError
from rollcast.throttle import Throttle

from learner.service.identity.access import OPERATOR, Access, with_article
from learner.service.identity.audit import Audit, Requester
from learner.service.metrics.learner import CONTENT_TYPE
from learner.service.view.history import HistoryView
from learner.service.web.guard import RequestRefused, json_answer
from learner.service.web.hooks import WebHooks
from learner.service.web.operator_token import COMMAND_HEADER, OperatorToken
from learner.shared.observe.document import status_document, to_json

FRESH_SECONDS: Final = 0.5
"""Seconds for which all callers share an answer."""
STATUS_REST: Final = 10.0
"""For so many times what it took, at most `FRESH_SECONDS`, they share the status: commands show what is, and callers take a tenth of
a core at most."""
ABOUT_SECONDS: Final = 5.0
"""The same for the settings, events and other runs, which are read from files."""
_INLINE: Final = {kind: re.compile(rf"<{kind}>(.*?)</{kind}>", flags=re.DOTALL) for kind in ("script", "style")}
SAVE_SECONDS: Final = 120.0
MAX_WAITING: Final = 32
"""Most operators' requests that wait for the current update; they must not occupy all connections."""
MAX_CHANGES: Final = 32
"""Most settings of one request."""
MAX_ACTOR_CHARACTERS: Final = 256
"""Longest name of an actor that is kept in the audit."""
THREADS: Final = 2
"""Threads for all readers. They are separate, because the loop's own threads publish policies and end the run."""
VIEWER_SECONDS: Final = 2.5
"""A caller that has asked for the status within this time has the page open."""
SCRAPE_SECONDS: Final = 15.0
"""Longest time between two scrapes of a Prometheus that the end of a run waits for."""
log = structlog.get_logger(__name__)
Result = TypeVar("Result")


class SharedAnswer:
    """Creates an answer when there is no fresh one, one at a time. Belongs to one event loop.

    Args:
        make: Returns the answer; called in a thread of the executor.
        executor: A separate executor, because the loop's own serves the learner.
        clock: Returns monotonic seconds.
        fresh_seconds: Largest age of an answer, in seconds.
        rest: Largest age of an answer, in multiples of the time that it took; None sets no such limit.
    """

    def __init__(
        self,
        make: Callable[[], bytes],
        executor: Executor,
        clock: Callable[[], float] = time.monotonic,
        fresh_seconds: float = FRESH_SECONDS,
        rest: float | None = None,
    ) -> None:
        self._make = make
        self._executor = executor
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._rest = rest
        self._making = asyncio.Lock()
        self._answer = b""
        self._fresh_until = -math.inf

    async def get(self) -> bytes:
        """Returns an answer that is fresh."""
        async with self._making:
            if self._clock() >= self._fresh_until:
                begin = self._clock()
                self._answer = await asyncio.get_running_loop().run_in_executor(self._executor, self._make)
                end, seconds = self._clock(), self._fresh_seconds
                self._fresh_until = end + (seconds if self._rest is None else min(seconds, self._rest * (end - begin)))
        return self._answer

    def expire(self) -> None:
        """Makes the next caller get a new answer."""
        self._fresh_until = -math.inf


@dataclass(frozen=True, slots=True)
class Page:
    """The status page as sent to browsers.

    Attributes:
        body: One self-contained HTML file.
        policy: Its Content-Security-Policy: only the script and style present when the learner started may run, nothing
            is loaded from elsewhere, and text cannot become markup (Trusted Types).
    """

    body: bytes
    policy: str


def load_page() -> Page:
    """Reads the page from this package."""
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Page(text.encode(), content_policy(text))


def content_policy(html: str) -> str:
    """Returns the policy that allows exactly the inline script and style of a page."""
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


def history_document(view: HistoryView) -> dict[str, Any]:
    """Returns the document of ``GET /api/history``."""
    found = {"behavior": view.behavior, "interval_seconds": view.interval_seconds, "columns": dict(view.columns)}
    return {**found, "marks": [{"t": t, "text": text} for t, text in view.marks]}


class LastLook:
    """Waits, at the end of a run, for one more answer to callers that keep asking.

    Attributes:
        interval_seconds: Time between the last two questions; infinite before the second.
    """

    def __init__(self) -> None:
        self.interval_seconds = math.inf
        self._asked_at = -math.inf
        self._has_looked = asyncio.Event()

    def note_asked(self) -> None:
        """Notes that someone asks."""
        now = time.monotonic()
        self.interval_seconds, self._asked_at = now - self._asked_at, now

    def note_answered(self) -> None:
        """Notes that someone got an answer."""
        self._has_looked.set()

    async def wait(self, seconds: float, *, recent_seconds: float) -> None:
        """Returns after the next answer, or after some seconds; at once if nobody has asked recently."""
        if time.monotonic() - self._asked_at > recent_seconds:
            return
        self._has_looked.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_looked.wait(), seconds)


class Routes:
    """Answers requests.

    Args:
        hooks: The learner.
        token: The operators' token.
        page: The status page.
        access: The principals; None for none but the operator of the token.
        audit: Records who changes the run.
    """

    def __init__(
        self,
        hooks: WebHooks,
        token: OperatorToken,
        page: Page,
        access: Access | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._known = access or Access()
        self._access = access if access is not None and access.identifies_actors else None  # else anyone may read
        self._audit = audit or Audit()
        self._hooks = hooks
        self._token = token
        self._page = page
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web")
        # Requests that wait for an update have their own threads, so that a drain and readers are answered at once.
        self._orders = ThreadPoolExecutor(1, thread_name_prefix="web-orders")
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="web-save")
        self._saves = SaveCoalescer(hooks.control.save_checkpoint, self._saver, SAVE_SECONDS)
        self._waiting = 0
        self._metrics = SharedAnswer(hooks.metrics, self._threads)
        self._status = SharedAnswer(lambda: to_json(status_document(hooks.status())), self._threads, rest=STATUS_REST)
        self._about = SharedAnswer(lambda: to_json(hooks.about()), self._threads, fresh_seconds=ABOUT_SECONDS)
        self._refused = Throttle()
        self._viewer, self._scraper = LastLook(), LastLook()
        self._draws_curves = False

    def close(self) -> None:
        """Stops the threads; later requests fail."""
        for threads in (self._threads, self._orders, self._saver):
            threads.shutdown(wait=False, cancel_futures=True)

    async def farewell(self, seconds: float, *, is_over: bool) -> None:
        """Waits until an open page has read the final status, and a Prometheus that the run is over.

        Args:
            seconds: Most seconds for the page.
            is_over: Whether the run is; Prometheus looks again at one that continues.
        """
        self._status.expire()
        self._metrics.expire()
        looks = [self._viewer.wait(seconds, recent_seconds=VIEWER_SECONDS)]
        if is_over and self._scraper.interval_seconds <= SCRAPE_SECONDS:
            patience = 2.0 * self._scraper.interval_seconds
            looks.append(self._scraper.wait(patience, recent_seconds=patience))
        await asyncio.gather(*looks)

    def add_to(self, app: web.Application) -> None:
        """Adds all routes."""
        app.router.add_get("/", self.page)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/api/status", self.status)
        app.router.add_get("/api/history", self.history)
        app.router.add_get("/api/run", self.about)
        app.router.add_post("/api/prove", self.prove)
        app.router.add_post("/api/operator", self.operator)
        app.router.add_post("/api/pause", self.pause)
        app.router.add_post("/api/resume", self.resume)
        app.router.add_post("/api/checkpoint", self.checkpoint)
        app.router.add_post("/api/set", self.set)
        app.router.add_post("/api/undo", self.undo)
        app.router.add_post("/api/release", self.release)
        app.router.add_post("/api/drain", self.drain)

    async def page(self, _request: web.Request) -> web.Response:
        """Returns the status page."""
        headers = {"Content-Security-Policy": self._page.policy}
        return web.Response(body=self._page.body, content_type="text/html", charset="utf-8", headers=headers)

    async def metrics(self, request: web.Request) -> web.Response:
        """Returns the metrics for Prometheus."""
        self._require_viewer(request)
        self._scraper.note_asked()
        body = await self._metrics.get()
        self._scraper.note_answered()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def healthz(self, _request: web.Request) -> web.Response:
        """Returns the learner's health, for callers that read the HTTP status only."""
        is_serving = await self._read(self._hooks.is_serving)
        return web.Response(text="serving\n" if is_serving else "not serving\n", status=200 if is_serving else 503)

    async def status(self, request: web.Request) -> web.Response:
        """Returns the state of the run, its ledger and its actors."""
        self._require_viewer(request)
        self._viewer.note_asked()
        body = await self._status.get()
        if not self._draws_curves:
            self._viewer.note_answered()
        return web.Response(body=body, content_type="application/json")

    async def history(self, request: web.Request) -> web.Response:
        """Returns the curves of one behavior after the time ``since``."""
        self._require_viewer(request)
        behavior, since = request.query.get("behavior"), _seconds(request.query.get("since"))
        if behavior is None:
            raise RequestRefused(400, "NO_BEHAVIOR", "name a behavior: /api/history?behavior=NAME")
        view = await self._read(lambda: self._hooks.history(behavior, since))
        if view is None:
            raise RequestRefused(404, "NO_SUCH_BEHAVIOR", "no behavior with this name has a history")
        self._draws_curves = True  # a page asks for the status before the curves
        self._viewer.note_answered()
        return json_answer(history_document(view))

    async def about(self, request: web.Request) -> web.Response:
        """Returns the settings and the newest events of the run, and the runs of the same folder."""
        self._require_viewer(request)
        return web.Response(body=await self._about.get(), content_type="application/json")

    async def operator(self, request: web.Request) -> web.Response:
        """Returns whether the caller is an operator."""
        self._require_operator(request)
        return json_answer({"operator": True})

    async def prove(self, request: web.Request) -> web.Response:
        """Proves that this learner knows the caller's token: ``/api/prove?nonce=HEX&claim=HEX``; see `rollcast.auth.proof_of`.

        In plain text, a caller asks for it before it sends the token to whoever has the learner's port.
        """
        try:
            nonce, claim = (bytes.fromhex(request.query.get(name, "")) for name in ("nonce", "claim"))
        except ValueError:
            raise RequestRefused(400, "BAD_CLAIM", "nonce and claim must be hexadecimal digits") from None
        try:
            return json_answer({"proof": self._known.prove(nonce, claim, _port(request)).hex()})
        except WireError:
            self._log_refusal(request, None)
            raise

    async def pause(self, request: web.Request) -> web.Response:
        """Stops training."""
        await self._act(request, "pause", lambda: self._wait_in(self._orders, self._hooks.control.pause))
        return json_answer({"state": "paused"})

    async def resume(self, request: web.Request) -> web.Response:
        """Ends a pause."""
        await self._act(request, "resume", lambda: self._wait_in(self._orders, self._hooks.control.resume))
        return json_answer({"state": "resumed"})

    async def checkpoint(self, request: web.Request) -> web.Response:
        """Saves a checkpoint, and answers when it is on disk."""
        path = await self._act(request, "save", self._save)
        return json_answer({"path": path})

    async def set(self, request: web.Request) -> web.Response:
        """Changes settings, all or none: ``/api/set?learning_rate=1e-4&target_return=475``."""
        values = dict(request.query)
        if not 1 <= len(request.query) <= MAX_CHANGES or len(values) < len(request.query):
            raise RequestRefused(
                400, "BAD_CHANGE", f"name 1 to {MAX_CHANGES} settings, each once: /api/set?learning_rate=1e-4"
            )
        return await self._change(request, "set", values)

    async def undo(self, request: web.Request) -> web.Response:
        """Undoes the last change of settings that is not undone."""
        return await self._change(request, "undo", {})

    async def _change(self, request: web.Request, action: str, values: dict[str, str]) -> web.Response:
        principal = self._require_operator(request).name
        change = functools.partial(self._hooks.control.change, values, principal)
        details = {"values": values} if values else {}
        changes = await self._act(request, action, lambda: self._wait_in(self._orders, change), **details)
        return json_answer({"changes": [{**asdict(each), "text": each.text} for each in changes]})

    async def drain(self, request: web.Request) -> web.Response:
        """Asks the run to end: ``/api/drain?final=1`` lets the actors exit, ``final=0`` lets them wait to come back.

        Without TLS only who is on this machine may end the run, because a token on a network can be read. Where clients have
        certificates, the caller's must name the principal of its token.
        """
        final = {"0": False, "1": True}.get(request.query.get("final", "1"))
        if final is None:
            raise RequestRefused(400, "BAD_FINAL", "final must be 0 or 1")
        caller = self._require_operator(request)
        if not request.secure and not is_on_this_machine(request.remote or ""):
            raise RequestRefused(
                403,
                "NOT_ALLOWED",
                "without TLS a run is ended from the learner's own machine only: run the command there, or give the learner "
                "certificates (rollcast certs init)",
            )
        if self._access is not None:
            self._access.agree(caller, _names(request))
        await self._act(
            request, "drain", lambda: self._read(lambda: self._hooks.control.drain(final=final)), final=final
        )
        return json_answer({"state": "draining"})

    async def release(self, request: web.Request) -> web.Response:
        """Lets an actor that is shut out in again: ``/api/release?actor=NAME&principal=NAME``."""
        name, principal = request.query.get("actor"), request.query.get("principal")
        if name is None:
            raise RequestRefused(400, "NO_ACTOR", "name an actor: /api/release?actor=NAME")
        release = functools.partial(self._hooks.release, name, principal)
        count = await self._act(request, "release", lambda: self._read(release), actor=name[:MAX_ACTOR_CHARACTERS])
        return json_answer({"released": name, "count": count})

    async def _read(self, read: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def _wait_in(self, threads: Executor, act: Callable[[], Result]) -> Result:
        """Returns the result of what waits for the current update."""
        with self._one_more():
            return await asyncio.get_running_loop().run_in_executor(threads, act)

    async def _save(self) -> str:
        with self._one_more():
            try:
                return await self._saves.save(SAVE_SECONDS)
            except TimeoutError:
                raise WireError(
                    f"the checkpoint was not written within {SAVE_SECONDS:.0f} s: repeat the request, or check the log",
                    reason="CHECKPOINT_LATE",
                    code=grpc.StatusCode.DEADLINE_EXCEEDED,
                ) from None

    @contextlib.contextmanager
    def _one_more(self) -> Iterator[None]:
        if self._waiting >= MAX_WAITING:
            raise RequestRefused(
                409, "BUSY", f"{MAX_WAITING} operators' requests wait for the current update; try again in a moment"
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _act(
        self, request: web.Request, action: str, act: Callable[[], Awaitable[Result]], **details: object
    ) -> Result:
        """Carries out an operator's request, and records it."""
        principal = self._require_operator(request)
        log.info("operator_request", action=action, principal=principal.name, caller=request.remote)
        with self._audit.noting(action, Requester("http", _peer(request), principal), **details) as noted:
            result = await act()
            if isinstance(result, str):
                noted["path"] = result
        self._status.expire()  # the next reader sees the effect
        return result

    def _require_operator(self, request: web.Request) -> Principal:
        """Returns the calling operator.

        Raises:
            RequestRefused: The caller is no operator.
        """
        caller = self._caller(request)
        if caller is None:
            raise RequestRefused(
                401,
                "NO_TOKEN",
                "only operators may do this: send the header `Authorization: Bearer TOKEN`; `rollcast page` "
                "prints the token",
                {"WWW-Authenticate": "Bearer"},
            )
        if caller.role is not Role.OPERATOR:
            self._log_refusal(request, caller.name)
            raise RequestRefused(
                403, "NOT_ALLOWED", f"this is the token of {with_article(caller.role)}, and only operators may do this"
            )
        return caller

    def _require_viewer(self, request: web.Request) -> None:
        """Checks that the caller may read.

        Raises:
            RequestRefused: The caller may not read.
        """
        if self._access is None:
            return
        caller = self._caller(request)
        if caller is None:
            raise RequestRefused(
                401,
                "NO_TOKEN",
                "this learner shows its state to viewers and operators only: send the header `Authorization: Bearer TOKEN`",
                {"WWW-Authenticate": "Bearer"},
            )
        if not caller.role.includes(Role.VIEWER):
            raise RequestRefused(
                403,
                "NOT_ALLOWED",
                f"this is the token of {with_article(caller.role)}, and only viewers and operators may read this",
            )

    def _caller(self, request: web.Request) -> Principal | None:
        """Returns the principal of a request's token; None without a token.

        A token travels in this header only, which browsers never send by themselves: other sites cannot act for the
        user.

        Raises:
            RequestRefused: The token is wrong.
        """
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers:
            return self._certified(request)
        if len(headers) == 1 and self._token.is_that_of(headers[0]):
            return Principal(OPERATOR, Role.OPERATOR)
        token = bearer(headers)
        if token is not None:
            with contextlib.suppress(WireError):
                found = self._known.by_token(token)
                if found is not None:
                    return found
        self._log_refusal(request, None)
        told = "this is not the operator's token; `rollcast page` prints it"
        if token is None:
            told = "the header must be `Authorization: Bearer TOKEN`, with the whole token"
        elif self._access is not None:
            told = "this token is unknown, was revoked, or has expired: ask for a new one; one just made is known within seconds"
        raise RequestRefused(403, "WRONG_TOKEN", told)

    def _certified(self, request: web.Request) -> Principal | None:
        """Returns the principal of a request's client certificate, which suffices where there are no tokens; None without one.

        A browser sends a certificate by itself, so the request also needs a header that no other site can send for the user.
        """
        access = self._access
        if access is None or access.has_tokens or COMMAND_HEADER not in request.headers:
            return None
        with contextlib.suppress(WireError):
            return access.agree(None, _names(request))
        return None

    def _log_refusal(self, request: web.Request, principal: str | None) -> None:
        """Logs a refused caller; one line at a time for all strangers, who could fill the log otherwise."""
        left_out = self._refused.admit(principal)
        if left_out is not None:
            log.warning(
                "operator_refused",
                path=request.path,
                principal=principal,
                caller=request.remote,
                left_out=left_out,
            )


def _names(request: web.Request) -> list[str]:
    """Returns the URIs in the certificate of a caller, which has been verified."""
    certificate = None if request.transport is None else request.transport.get_extra_info("peercert")
    return [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]


def _port(request: web.Request) -> int:
    """Returns the port at which a caller has arrived; 0 if it has left."""
    own = None if request.transport is None else request.transport.get_extra_info("sockname")
    return 0 if own is None else int(own[1])


def is_on_this_machine(address: str) -> bool:
    """Returns whether the caller of an address is a process of this machine."""
    found = ip_of(address)
    return found is not None and found.is_loopback


def _peer(request: web.Request) -> str:
    """Returns the address of a caller; empty if it has left."""
    peer = None if request.transport is None else request.transport.get_extra_info("peername")
    return "" if peer is None else f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"


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


class SaveCoalescer:
    """Merges concurrent requests for a checkpoint. For the event loop alone.

    A request that arrives while a checkpoint is being written may want later changes, so it waits for the next
    checkpoint together with all other requests that have arrived.

    Args:
        save: Writes a checkpoint within the given seconds and returns its path; blocks.
        executor: Executor that runs `save`.
        least_seconds: Shortest time limit of a checkpoint, because later requests may join it.
    """

    def __init__(self, save: Callable[[float], str], executor: Executor, least_seconds: float) -> None:
        self._save = save
        self._executor = executor
        self._least_seconds = least_seconds
        self._running: asyncio.Task[str] | None = None
        self._waiting: asyncio.Task[str] | None = None

    async def save(self, seconds: float) -> str:
        """Returns the path of a checkpoint that began after this call.

        Raises:
            TimeoutError: The checkpoint was not on disk in time; it may still be written.
        """
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._run(self._running, seconds))
            self._waiting.add_done_callback(_retrieve)
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._waiting)

    async def _run(self, before: asyncio.Task[str] | None, seconds: float) -> str:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._waiting = self._waiting, None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._save, max(seconds, self._least_seconds))


def _retrieve(task: asyncio.Task[str]) -> None:
    """Retrieves a checkpoint's result, because all callers that requested it may be gone."""
    if not task.cancelled():
        task.exception()
