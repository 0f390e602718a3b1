"""Starts a real HTTP port with a learner that records its calls."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from learner.link.control import SettingChange
from learner.service.identity.setup import Identity
from learner.service.view.history import History, HistoryView
from learner.service.web.operator_token import OperatorToken
from learner.service.web.server import WebServer
from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.view import ActorView, RunState, RunView, StatusView

SECONDS = 20.0
TOKEN = "a-token-for-these-tests-alone"  # noqa: S105 - and for nothing else
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
NAME = "CartPole"


@dataclass
class Hooks:
    """A learner without activity."""

    calls: list[str] = field(default_factory=list)
    history_: History = field(default_factory=History)
    about_: dict[str, Any] = field(default_factory=dict)
    views: int = 0
    errors: list[str] = field(default_factory=list)
    scrapes: int = 0
    scrape_threads: set[str] = field(default_factory=set)
    serving: bool = True
    error: Exception | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event | None = None

    @property
    def control(self) -> Hooks:
        """Returns itself: it records the operators' calls, too."""
        return self

    def status(self) -> StatusView:
        """Returns a run with one behavior and one actor."""
        self.views += 1
        self._fail()
        behavior = BehaviorState(NAME, version=self.views, numbers={"mean_lag": math.nan})
        run = RunView("run", RunState.TRAINING, 1, 12.5, "127.0.0.1:1", 1, "", (behavior,))
        return StatusView(run, (ActorView("actor", 0, connected=True, last_seen_seconds=0.5),), "1.2.3")

    def history(self, behavior: str, since: float) -> HistoryView | None:
        """Returns the curves."""
        return self.history_.view(behavior, since)

    def about(self) -> dict[str, Any]:
        """Returns the value set by the test."""
        return self.about_

    def metrics(self) -> bytes:
        """Returns one metric."""
        self.scrapes += 1
        self.scrape_threads.add(threading.current_thread().name)
        self._fail()
        return b"# TYPE up gauge\nup 1.0\n"

    def count_error(self, reason: str) -> None:
        """Records the reason."""
        self.errors.append(reason)

    def is_serving(self) -> bool:
        """Returns the value set by the test."""
        return self.serving

    def pause(self) -> None:
        """Records the call and waits if the test says so."""
        self._note("pause")

    def resume(self) -> None:
        """Records the call."""
        self._note("resume")

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Records the call."""
        self._note("checkpoint")
        return f"/there/within/{timeout_seconds:g}"

    def release(self, actor_name: str, principal: str | None) -> int:
        """Records the call."""
        self._note(f"release {actor_name} of {principal}", waits=False)
        return 1

    def change(self, values: Mapping[str, str], principal: str) -> tuple[SettingChange, ...]:
        """Records the call."""
        self._note(f"change {dict(values)} by {principal}")
        return tuple(SettingChange(name, None, text) for name, text in values.items())

    def drain(self, *, final: bool) -> None:
        """Records the call."""
        self._note(f"drain {final}", waits=False)

    def _note(self, call: str, *, waits: bool = True) -> None:
        self.calls.append(call)
        self.entered.set()
        if waits and self.go_on is not None:
            assert self.go_on.wait(SECONDS)
        self._fail()

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Returns the JSON document."""
        assert self.headers["content-type"].startswith("application/json")
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Returns the reason of an error."""
        return str(self.json["error"]["reason"])


@dataclass(frozen=True)
class Site:
    """A listening port."""

    server: WebServer
    hooks: Hooks
    loop: asyncio.AbstractEventLoop
    has_tls: bool = False

    @property
    def url(self) -> str:
        """Returns the address of the page for a browser."""
        return f"{'https' if self.has_tls else 'http'}://{self.server.address}/"

    @property
    def port(self) -> int:
        """Returns the port number."""
        return int(self.server.address.rpartition(":")[2])

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, *, body: bytes | None = None
    ) -> Answer:
        """Sends a request over a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()


@contextmanager
def serving(hooks: Hooks | None = None, *, address: str = "127.0.0.1:0", **settings: Any) -> Iterator[Site]:
    """Starts a port for a block in its own event loop."""
    hooks = hooks or Hooks()
    server = WebServer(hooks, address=address, token=OperatorToken(TOKEN), **settings)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(SECONDS)
        identity: Identity | None = settings.get("identity")
        yield Site(server, hooks, loop, has_tls=identity is not None and identity.security is not None)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(SECONDS)
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()
