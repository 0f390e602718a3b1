"""What the HTTP port answers, and to whom, over real connections."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from rollcast.errors import CheckpointFailed, NothingToSave

from learner.observe.history import COLUMNS
from tests.learner.web.site import NAME, OPERATOR, TOKEN, Hooks, serving

ACTIONS = {"/api/pause": "pause", "/api/resume": "resume", "/api/checkpoint": "checkpoint"}


def test_what_can_be_read() -> None:
    """The page, the metrics, the health and the status are there for whoever asks; errors of the lag are null."""
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


def test_nothing_that_can_be_read_holds_the_token() -> None:
    """A reader does not become an operator by reading."""
    with serving() as site:
        site.hooks.history_.add(NAME, 1.0, {})
        for path in ("/", "/metrics", "/healthz", "/api/status", f"/api/history?behavior={NAME}"):
            answer = site.ask(path)
            assert answer.status == 200
            assert TOKEN not in answer.body.decode() + str(answer.headers)


@pytest.mark.parametrize(("is_serving", "code", "text"), [(True, 200, b"serving\n"), (False, 503, b"not serving\n")])
def test_health(is_serving: bool, code: int, text: bytes) -> None:
    """The code alone says whether the learner is well."""
    with serving(Hooks(serving=is_serving)) as site:
        answer = site.ask("/healthz")
    assert (answer.status, answer.body) == (code, text)


def test_history() -> None:
    """Curves come whole, or from a time on; gaps are null."""
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
    """With the token in the header the learner does what it is asked."""
    with serving() as site:
        answer = site.ask(path, "POST", OPERATOR)
        assert answer.status == 200
        assert site.hooks.calls == [call]
    assert site.hooks.calls != ["checkpoint"] or answer.json == {"path": "/there/within/120"}


@pytest.mark.parametrize("path", [*ACTIONS, "/api/operator"])
def test_others_do_not(path: str) -> None:
    """No token is 401, a wrong one 403, wherever it is put; nothing is done."""
    with serving() as site:
        answer = site.ask(path, "POST")
        assert (answer.status, answer.reason) == (401, "NO_TOKEN")
        assert answer.headers["www-authenticate"] == "Bearer"
        wrong = ["Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", TOKEN, "Bearer \xe4\xf6\xfc"]
        for header in wrong:
            refused = site.ask(path, "POST", {"Authorization": header})
            assert (refused.status, refused.reason) == (403, "WRONG_TOKEN"), header
        assert site.ask(f"{path}?token={TOKEN}", "POST", {"Cookie": f"token={TOKEN}"}).status == 401
        assert site.ask(path, "POST", body=TOKEN.encode()).status == 401
        assert site.hooks.calls == []


def test_an_operator_is_known_before_he_acts() -> None:
    """The page can try a token without doing anything."""
    with serving() as site:
        assert site.ask("/api/operator", "POST", OPERATOR).json == {"operator": True}
        assert site.hooks.calls == []


@pytest.mark.parametrize("path", ACTIONS)
def test_actions_are_no_links(path: str) -> None:
    """What changes something cannot be reached by a link, nor from a page of another site."""
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
        (TimeoutError(), 504, "LATE"),
    ],
)
def test_what_cannot_be_done_says_why(error: Exception, code: int, reason: str) -> None:
    """The reason is for programs, the message for people."""
    with serving(Hooks(error=error)) as site:
        answer = site.ask("/api/checkpoint", "POST", OPERATOR)
        assert (answer.status, answer.reason) == (code, reason)
        assert str(error) in answer.json["error"]["message"]


def test_one_action_at_a_time() -> None:
    """While a pause waits for an update, another request is refused at once, and reading goes on."""
    hooks = Hooks(go_on=threading.Event())
    assert hooks.go_on is not None
    with serving(hooks) as site, ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.ask, "/api/pause", "POST", OPERATOR)
        assert hooks.entered.wait(20)
        second = site.ask("/api/checkpoint", "POST", OPERATOR)
        assert (second.status, second.reason) == (409, "BUSY")
        assert site.ask("/api/status").status == 200
        hooks.go_on.set()
        assert first.result(20).status == 200
        assert site.ask("/api/resume", "POST", OPERATOR).status == 200
    assert hooks.calls == ["pause", "resume"]


def test_many_viewers_cost_what_one_does() -> None:
    """A picture is drawn once for all who ask within half a second, and anew after an operator did something."""
    with serving() as site, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: site.ask("/api/status").body, range(40)))
        assert site.hooks.views < 40
        assert len(set(answers)) == site.hooks.views
        before = site.hooks.views
        site.ask("/api/pause", "POST", OPERATOR)
        site.ask("/api/status")
        assert site.hooks.views == before + 1


def test_many_scrapers_cost_what_one_does() -> None:
    """The metrics are made once for all who ask within half a second, in a thread that the learner does not need."""
    with serving() as site, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: site.ask("/metrics").status, range(40)))
        assert answers == [200] * 40
        assert site.hooks.scrapes < 40
        assert all(name.startswith("web") for name in site.hooks.scrape_threads)
