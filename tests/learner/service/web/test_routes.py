"""Tests the responses of the HTTP port over real connections."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace

import pytest
from rollcast.errors import CheckpointFailed, NothingToSave, SettingRefused

from learner.service.view.history import COLUMNS
from learner.service.web.routes import FRESH_SECONDS, MAX_WAITING, SharedAnswer, load_page
from learner.shared.observe.behavior_state import BehaviorState, LedgerNumbers
from learner.shared.observe.document import status_document, to_json
from learner.shared.observe.view import ActorBooksView, ActorView, Bottleneck, RunState, RunView, StatusView
from tests.clock import Clock
from tests.learner.service.web.site import NAME, OPERATOR, TOKEN, Hooks, serving

ACTIONS = {
    "/api/pause": "pause",
    "/api/resume": "resume",
    "/api/checkpoint": "checkpoint",
    "/api/drain": "drain True",
    "/api/drain?final=0": "drain False",
}


def test_what_can_be_read() -> None:
    """Page, metrics, health and status need no token."""
    with serving() as site:
        page = site.ask("/")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.body.startswith(b"<!doctype html>")
        metrics = site.ask("/metrics")
        assert metrics.body == b"# TYPE up gauge\nup 1.0\n"
        assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        status = site.ask("/api/status").json
        assert (status["run_id"], status["state"], status["version"]) == ("run", "training", "1.2.3")
        assert status["behaviors"][0]["mean_lag"] is None
        assert status["behaviors"][0]["books"]["balanced"]
        assert status["actors"][0]["name"] == "actor"
        assert status["verdict"]["name"] == "none"


def test_about_the_run() -> None:
    """The settings, events and other runs are sent as the learner returns them, without NaN."""
    about = {"settings": [{"name": "a.b", "value": math.nan, "is_default": True}], "events": [], "runs": []}
    with serving(Hooks(about_=about)) as site:
        answer = site.ask("/api/run")
        assert answer.status == 200
        assert answer.json == {**about, "settings": [{"name": "a.b", "value": None, "is_default": True}]}


def test_nothing_that_can_be_read_holds_the_token() -> None:
    """No readable response contains the token."""
    with serving() as site:
        site.hooks.history_.add(NAME, 1.0, {})
        for path in ("/", "/metrics", "/healthz", "/api/status", "/api/run", f"/api/history?behavior={NAME}"):
            answer = site.ask(path)
            assert answer.status == 200
            assert TOKEN not in answer.body.decode() + str(answer.headers)


@pytest.mark.parametrize(("is_serving", "code", "text"), [(True, 200, b"serving\n"), (False, 503, b"not serving\n")])
def test_health(is_serving: bool, code: int, text: bytes) -> None:
    """The status code of /healthz says whether the learner is healthy."""
    with serving(Hooks(serving=is_serving)) as site:
        answer = site.ask("/healthz")
    assert (answer.status, answer.body) == (code, text)


def test_history() -> None:
    """Curves are sent whole or from a time on, with gaps as null."""
    hooks = Hooks()
    for second in range(5):
        hooks.history_.add(NAME, float(second), {"mean_return": None if second < 2 else second * 10.0})
    with serving(hooks) as site:
        whole = site.ask(f"/api/history?behavior={NAME}").json
        assert whole["interval_seconds"] == 1.0
        assert list(whole["columns"]) == list(COLUMNS)
        assert whole["columns"]["mean_return"] == [None, None, 20.0, 30.0, 40.0]
        assert site.ask(f"/api/history?behavior={NAME}&since=3").json["columns"]["t"] == [4.0]
        assert site.ask("/api/history?behavior=%3Cb%3E").reason == "NO_SUCH_BEHAVIOR"
        assert site.ask("/api/history").reason == "NO_BEHAVIOR"
        for since in ("soon", "nan", "inf", ""):
            assert site.ask(f"/api/history?behavior={NAME}&since={since}").reason == "BAD_SINCE"


@pytest.mark.parametrize(("path", "call"), ACTIONS.items())
def test_operators_act(path: str, call: str) -> None:
    """With the token, which can be checked without an action, the learner executes the request."""
    with serving() as site:
        assert site.ask("/api/operator", "POST", OPERATOR).json == {"operator": True}
        assert site.hooks.calls == []
        answer = site.ask(path, "POST", OPERATOR)
        assert answer.status == 200
        assert site.hooks.calls == [call]
    assert site.hooks.calls != ["checkpoint"] or answer.json == {"path": "/there/within/120"}


def test_operators_release_actors() -> None:
    """The actor and its principal are named in the address; without a name nothing happens."""
    with serving() as site:
        assert site.ask("/api/release?actor=a%26b&principal=lab", "POST", OPERATOR).json == {
            "released": "a&b",
            "count": 1,
        }
        assert site.ask("/api/release?actor=x&principal=", "POST", OPERATOR).status == 200
        assert site.ask("/api/release", "POST", OPERATOR).reason == "NO_ACTOR"
        assert site.hooks.calls == ["release a&b of lab", "release x of "]


def test_operators_change_settings() -> None:
    """Each setting is named once, with its value; the answer has the changes, and a refusal is the learner's."""
    with serving() as site:
        assert site.ask("/api/set?beta=0.1&A.max_steps=1e6", "POST", OPERATOR).json == {
            "changes": [
                {"name": "beta", "old": None, "new": "0.1", "text": "beta is 0.1, was null"},
                {"name": "A.max_steps", "old": None, "new": "1e6", "text": "A.max_steps is 1e6, was null"},
            ]
        }
        assert site.ask("/api/undo", "POST", OPERATOR).json == {"changes": []}
        for query in ("", "?beta=1&beta=2", "?" + "&".join(f"x{number}=1" for number in range(33))):
            assert site.ask(f"/api/set{query}", "POST", OPERATOR).reason == "BAD_CHANGE"
        assert site.hooks.calls == [
            "change {'beta': '0.1', 'A.max_steps': '1e6'} by operator",
            "change {} by operator",
        ]
        site.hooks.error = SettingRefused("there is no setting 'beto'; did you mean 'beta'?")
        answer = site.ask("/api/set?beto=1", "POST", OPERATOR)
        assert (answer.status, answer.reason) == (409, "SETTING_REFUSED")


@pytest.mark.parametrize("path", [*ACTIONS, "/api/operator", "/api/release?actor=x"])
def test_others_do_not(path: str) -> None:
    """A missing token is 401 and a wrong one 403, and nothing is executed."""
    with serving() as site:
        answer = site.ask(path, "POST")
        assert (answer.status, answer.reason) == (401, "NO_TOKEN")
        assert answer.headers["www-authenticate"] == "Bearer"
        wrong = ["Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", TOKEN, "Bearer \xe4\xf6\xfc"]
        for header in wrong:
            refused = site.ask(path, "POST", {"Authorization": header})
            assert (refused.status, refused.reason) == (403, "WRONG_TOKEN"), header
        assert (
            site.ask(f"{path}{'&' if '?' in path else '?'}token={TOKEN}", "POST", {"Cookie": f"token={TOKEN}"}).status
            == 401
        )
        assert site.ask(path, "POST", body=TOKEN.encode()).status == 401
        assert site.hooks.calls == []


@pytest.mark.parametrize("path", ACTIONS)
def test_actions_are_no_links(path: str) -> None:
    """Actions need a POST of the same origin."""
    with serving() as site:
        answer = site.ask(path, "GET", OPERATOR)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        preflight = site.ask(
            path, "OPTIONS", {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
        )
        assert preflight.status == 405
        assert not any(name.startswith("access-control") for name in preflight.headers)
        assert site.hooks.calls == []


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (NothingToSave("no actor has come"), 409, "NOTHING_TO_SAVE"),
        (CheckpointFailed("the disk is full"), 409, "CHECKPOINT_FAILED"),
        (TimeoutError(), 504, "CHECKPOINT_LATE"),
    ],
)
def test_what_cannot_be_done_says_why(error: Exception, code: int, reason: str) -> None:
    """A refused action has a reason for programs and a message for people."""
    with serving(Hooks(error=error)) as site:
        answer = site.ask("/api/checkpoint", "POST", OPERATOR)
        assert (answer.status, answer.reason) == (code, reason)
        assert str(error) in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["/api/checkpoint", "/api/pause"])
def test_a_storm_of_requests_does_not_hold_up_readers(path: str) -> None:
    """While an update lasts, reading and a drain work, too many requests are refused, and many saves are two checkpoints."""
    hooks = Hooks(go_on=threading.Event())
    assert hooks.go_on is not None
    with serving(hooks) as site, ThreadPoolExecutor(MAX_WAITING + 8) as pool:
        first = pool.submit(site.ask, path, "POST", OPERATOR)
        assert hooks.entered.wait(20)
        storm = [pool.submit(site.ask, path, "POST", OPERATOR) for _ in range(MAX_WAITING + 7)]
        done, _ = wait(storm, 60, return_when=FIRST_COMPLETED)
        assert {(each.result().status, each.result().reason) for each in done} == {(409, "BUSY")}
        assert site.ask("/api/status").status == 200
        assert site.ask("/api/drain", "POST", OPERATOR).status == 200
        assert site.ask("/api/release?actor=x", "POST", OPERATOR).status == 200
        hooks.go_on.set()
        codes = Counter([first.result(60).status, *(each.result(60).status for each in storm)])
    assert codes == {200: MAX_WAITING, 409: 8}
    assert hooks.calls.count("checkpoint" if path == "/api/checkpoint" else "pause") == (
        2 if path == "/api/checkpoint" else MAX_WAITING
    )


@pytest.mark.parametrize("query", ["final=2", "final=", "final=yes"])
def test_a_drain_of_no_known_kind_is_refused(query: str) -> None:
    """Nothing ends if it is not clear how."""
    with serving() as site:
        assert site.ask(f"/api/drain?{query}", "POST", OPERATOR).reason == "BAD_FINAL"
        assert site.hooks.calls == []


def test_many_viewers_cost_what_one_does() -> None:
    """A status is computed once per half second for all viewers, and again after an action; so are the metrics."""
    with serving() as site, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: site.ask("/api/status").body, range(40)))
        assert site.hooks.views < 40
        assert len(set(answers)) == site.hooks.views
        assert list(pool.map(lambda _: site.ask("/metrics").status, range(40))) == [200] * 40
        assert site.hooks.scrapes < 40
        assert all(name.startswith("web") for name in site.hooks.scrape_threads)
        before = site.hooks.views
        site.ask("/api/pause", "POST", OPERATOR)
        site.ask("/api/status")
        assert site.hooks.views == before + 1


TEXT = load_page().body.decode()


def test_it_needs_nothing_else() -> None:
    """The page loads nothing from other sites, and only data from this one."""
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", TEXT))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of a namespace, which nobody fetches"
    assert re.findall(r"<link[^>]*href=\"(?!data:)", TEXT) == []
    assert re.findall(r"\bsrc\s*=|@import|url\(|import\(|new Worker|eval\(|Function\(", TEXT) == []


def test_texts_never_become_markup() -> None:
    """The script never makes markup from a text."""
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|createContextualFragment|setHTML"
    assert re.findall(sinks, TEXT) == []
    assert re.findall(r"\son[a-z]+\s*=\s*\"|javascript:|\sstyle=\"", TEXT) == [], "the policy would stop those"


def test_the_policy_lets_this_script_and_style_run_and_no_other() -> None:
    """The content security policy allows only this script and style, by their hashes."""
    policy = dict(part.split(" ", 1) for part in load_page().policy.split("; "))
    for kind in ("script", "style"):
        (block,) = re.findall(rf"<{kind}>(.*?)</{kind}>", TEXT, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in load_page().policy


def test_it_knows_the_columns() -> None:
    """The script uses only columns that the history has."""
    (listed,) = re.findall(r"const COLUMNS = \[(.*?)\];", TEXT)
    assert set(re.findall(r"\"(\w+)\"", listed)) <= set(COLUMNS)


def luminance(color: str) -> float:
    """Returns the relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Returns the contrast ratio of two colors (WCAG 2.2), 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_every_text_stands_out(theme: str) -> None:
    """Text has a contrast of at least 4.5 and curves of 3, in both color schemes."""
    (block,) = re.findall(rf"^{re.escape(theme)} {{(.*?)^}}", TEXT, flags=re.DOTALL | re.MULTILINE)
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", block))
    texts = [(text, back) for text in ("text", "soft", "faint") for back in ("page", "card")]
    texts += [(name, "card") for name in ("good", "warn", "bad", "calm")] + [
        ("accent-text", "accent"),
        ("soft", "raised"),
    ]
    texts += [(name, f"{name}-back") for name in ("good", "warn", "bad", "calm")]
    weak = {pair: contrast(colors[pair[0]], colors[pair[1]]) for pair in texts}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}
    curves = {name: contrast(colors[name], colors["card"]) for name in ("curve", "trained", "dropped", "lost")}
    assert {name: ratio for name, ratio in curves.items() if ratio < 3.0} == {}


def test_who_asks_meanwhile_shares_the_answer() -> None:
    """Concurrent requests, and those within half a second, share a response."""
    clock, made, go_on = Clock(), list[str](), threading.Event()

    def make() -> bytes:
        assert go_on.wait(20)
        made.append(threading.current_thread().name)
        return str(len(made)).encode()

    async def ask() -> None:
        with ThreadPoolExecutor(4, thread_name_prefix="own") as threads:
            shared = SharedAnswer(make, threads, clock)
            waiting = [asyncio.create_task(shared.get()) for _ in range(10)]
            await asyncio.sleep(0)
            go_on.set()
            assert set(await asyncio.gather(*waiting)) == {b"1"}
            clock.now += FRESH_SECONDS / 2
            assert await shared.get() == b"1"
            clock.now += FRESH_SECONDS
            assert await shared.get() == b"2"
            shared.expire()
            assert await shared.get() == b"3"

    asyncio.run(ask())
    assert all(name.startswith("own") for name in made)


def test_a_quick_answer_is_shared_for_a_short_time() -> None:
    """With a rest, an answer is fresh for a multiple of the time that it took, and never longer than others."""
    clock, made = Clock(), list[float]()
    took = 0.01

    def make() -> bytes:
        clock.now += took
        made.append(clock.now)
        return str(len(made)).encode()

    async def ask() -> None:
        nonlocal took
        with ThreadPoolExecutor(1) as threads:
            shared = SharedAnswer(make, threads, clock, rest=10.0)
            assert await shared.get() == b"1"
            clock.now += 0.09
            assert await shared.get() == b"1"
            clock.now += 0.02
            took = 60.0
            assert await shared.get() == b"2"
            clock.now += FRESH_SECONDS + 0.01
            assert await shared.get() == b"3"

    asyncio.run(ask())


def test_a_failure_is_not_kept() -> None:
    """A failed response is not cached."""
    answers: Iterator[bytes | ValueError] = iter([ValueError("no"), b"yes"])

    def make() -> bytes:
        answer = next(answers)
        if isinstance(answer, bytes):
            return answer
        raise answer

    async def ask() -> None:
        with ThreadPoolExecutor(1) as threads:
            shared = SharedAnswer(make, threads)
            with pytest.raises(ValueError, match="no"):
                await shared.get()
            assert await shared.get() == b"yes"

    asyncio.run(ask())


BOOKS = LedgerNumbers(
    received=10, trained=4, dropped={"stale": 1}, duplicate=2, queued=3, lost={"restart": 2}, unknown=1
)


def test_the_status() -> None:
    """The status document has the bottleneck, the books and whether they balance."""
    behavior = BehaviorState("CartPole", version=3, mean_return_100=20.5, target_return=475.0, books=BOOKS)
    behavior = replace(behavior, env_steps_taken=BOOKS["received"])
    actor = ActorView(
        "rig", 4, connected=True, last_seen_seconds=1.0, books=ActorBooksView(produced=5, acked=4, open=1)
    )
    bottleneck = Bottleneck("learner", "the trainer is busy", 0.9, 0.2, 0.0)
    run = RunView("run", RunState.PAUSED, 2, 60.0, "127.0.0.1:1", 1, "an error", (behavior,), bottleneck)
    document = json.loads(to_json(status_document(StatusView(run, (actor,), "0.1"))))
    assert {"run_id", "state", "generation", "uptime_seconds", "address", "version", "last_error"} < document.keys()
    assert (document["state"], document["last_error"]) == ("paused", "an error")
    assert document["verdict"] == {
        "name": "learner", "text": "the trainer is busy", "learner_busy": 0.9, "actor_busy": 0.2, "network_share": 0.0,
    }  # fmt: skip
    (row,) = document["behaviors"]
    assert (row["name"], row["version"], row["mean_return"], row["target_return"]) == ("CartPole", 3, 20.5, 475.0)
    assert "mean_return_100" not in row
    assert row["books"] == {**BOOKS, "balanced": True}
    (actor_row,) = document["actors"]
    assert (actor_row["name"], actor_row["index"], actor_row["lag"], actor_row["wait_share"]) == ("rig", 4, None, None)
    assert actor_row["books"]["balanced"]
    invented = replace(behavior, env_steps_taken=BOOKS["received"] + 1)
    document = status_document(StatusView(replace(run, behaviors=(invented,)), (actor,), ""))
    assert not document["behaviors"][0]["books"]["balanced"], "a step was taken and is nowhere"
    behavior = replace(behavior, books={**BOOKS, "trained": 5})
    actor = replace(actor, books=ActorBooksView(produced=5))
    document = status_document(StatusView(replace(run, behaviors=(behavior,)), (actor,), ""))
    assert not document["behaviors"][0]["books"]["balanced"]
    assert not document["actors"][0]["books"]["balanced"]


def test_what_is_no_number_is_null() -> None:
    """NaN is null."""
    text = to_json({"a": [math.nan, {"b": math.inf, "c": -math.inf}], "d": 1.5, "e": "<b>\u2028</b>"})
    assert json.loads(text) == {"a": [None, {"b": None, "c": None}], "d": 1.5, "e": "<b>\u2028</b>"}
    assert text.isascii()
