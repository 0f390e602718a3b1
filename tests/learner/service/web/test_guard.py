"""Tests the common rules of all responses of the HTTP port."""

from __future__ import annotations

import socket

import pytest
import structlog
from rollcast.errors import CheckpointFailed

from tests.learner.service.web.site import OPERATOR, Hooks, serving


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/api/status", "/nothing", "/api/history"])
def test_headers_of_every_answer(path: str) -> None:
    """No response may be cached, framed or sniffed, or names its software, including errors."""
    with serving() as site:
        headers = site.ask(path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["server"] == "rollcast"


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/api", "/api/", "/..%2f..%2fetc%2fpasswd", "//", "/%00"])
def test_unknown_paths(path: str) -> None:
    """An unknown path is a JSON error."""
    with serving() as site:
        answer = site.ask(path)
    assert (answer.status, answer.reason) == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", ["/api/status", "/nothing"])
def test_an_expectation_that_cannot_be_met(path: str) -> None:
    """An `Expect` header other than 100-continue is a JSON error with the safe headers, on unknown paths too."""
    with serving() as site:
        answer = site.ask(path, headers={"Expect": "100-c\xf6ntinue"})
        assert site.ask("/api/status", headers={"Expect": "100-Continue"}).status == 200
    assert (answer.status, answer.reason) == (417, "EXPECTATION_FAILED")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_another_name_reads_nothing() -> None:
    """A request with another host name (DNS rebinding) is refused, even with the token."""
    with serving() as site:
        for path, method in (("/", "GET"), ("/api/status", "GET"), ("/api/pause", "POST")):
            answer = site.ask(path, method, {**OPERATOR, "Host": "evil.example"})
            assert (answer.status, answer.reason) == (403, "WRONG_HOST")
        assert site.hooks.calls == []


def test_a_port_for_other_machines_refuses_foreign_names() -> None:
    """A port for other machines answers to addresses, its own names and those of the run file, and to no other name."""
    with serving(address="0.0.0.0:0", hosts=("learner", "Train.example")) as site:
        for host in (
            "learner:9464",
            "train.example.",
            "192.168.1.5:9464",
            "[fe80::1]",
            "localhost",
            socket.gethostname(),
        ):
            assert site.ask("/metrics", "GET", {"Host": host}).status == 200, host
        for host in ("evil.example:9464", "learner.evil.example", "0.0.0.0", ""):  # noqa: S104
            answer = site.ask("/metrics", "GET", {**OPERATOR, "Host": host})
            assert (answer.status, answer.reason) == (403, "WRONG_HOST"), host
            assert "rollcast.http_hosts" in answer.json["error"]["message"]


def test_a_loopback_port_answers_to_names_of_the_run_file() -> None:
    """A proxy on the learner's machine may pass on the name that people use."""
    with serving(hosts=("train.example",)) as site:
        assert site.ask("/healthz", "GET", {"Host": "train.example"}).status == 200
        assert site.ask("/healthz", "GET", {"Host": "10.0.0.1"}).reason == "WRONG_HOST"


def test_bodies_are_not_wanted() -> None:
    """A large body, or one of unknown size, is refused before it is read."""
    with serving() as site:
        assert site.ask("/api/pause", "POST", OPERATOR, body=b"x" * 1025).reason == "BODY_TOO_LARGE"
        assert (
            site.ask("/api/pause", "POST", {**OPERATOR, "Transfer-Encoding": "chunked"}).reason
            == "BODY_OF_UNKNOWN_SIZE"
        )
        assert site.ask("/api/pause", "POST", OPERATOR, body=b"{}").status == 200
        assert site.hooks.calls == ["pause"]


@pytest.mark.parametrize("path", ["/metrics", "/api/status"])
def test_an_error_nobody_foresaw(path: str) -> None:
    """An unexpected error has an incident number, and its traceback is only logged."""
    with serving(Hooks(error=RuntimeError("a secret thing"))) as site, structlog.testing.capture_logs() as lines:
        answer = site.ask(path)
    assert (answer.status, answer.reason) == (500, "INTERNAL")
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    (line,) = lines
    assert line["event"] == "http_request_failed"
    assert line["incident"] in answer.json["error"]["message"]
    assert "secret" in str(line["exc_info"])


def test_refused_callers_are_counted() -> None:
    """Wrong tokens, missing ones of requests that change the run, and failures are; a page that nobody signed in to is not."""
    with serving(Hooks(error=CheckpointFailed("no space"))) as site:
        site.ask("/api/pause", "POST")
        site.ask("/api/pause", "POST", {"Authorization": "Bearer wrong-token-of-any"})
        site.ask("/api/checkpoint", "POST", OPERATOR)
        site.ask("/nothing")
        site.ask("/", headers={"Host": "elsewhere.example"})
        site.hooks.error = ValueError("a defect")
        assert site.ask("/api/status").status == 500
        counted = ["UNAUTHENTICATED", "NOT_ALLOWED", "CHECKPOINT_FAILED", "NOT_ALLOWED", "UNEXPECTED"]
        assert site.hooks.errors == counted
