"""Tests that each wrong address that a user may give is answered by what was found there."""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rollcast.tls import ClientSecurity

from learner.cli.operator import Operator
from learner.service.identity.setup import Identity
from learner.shared.exits import UserError
from learner.shared.introduction import Introduction, RefusedError
from learner.shared.observe.address import read_addresses
from learner.start.rank_handshake import RankHandshake
from learner.start.remote_dial import dial_front
from tests.e2e.processes import LearnerProcess, Processes
from tests.servers import serving

SECONDS = 300.0
KINDS = ("actors", "page", "trainers", "Prometheus", "Grafana", "a web server", "ssh")
"""What may answer at an address."""
PAGE = "the learner's status page answers there; its address for actors is 127.0.0.1:"
WEB = "answers there, over HTTP; give the address in the learner's line learner_started"
SSH = "another service answers there, with 'SSH-2.0-OpenSSH_9.2'"
TRAINERS = "this is the learner's address for trainers"
PLACES = {"Prometheus": "/query", "Grafana": "/login", "a web server": "/elsewhere"}


@contextmanager
def web_server(place: str) -> Iterator[str]:
    """Serves a redirect, as Prometheus and Grafana do for their first page."""

    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", place)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Redirects)) as address:
        yield address


@contextmanager
def ssh() -> Iterator[str]:
    """Serves the first line of SSH."""

    class Greets(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            self.request.recv(1000)

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greets)) as address:
        yield address


@pytest.fixture
def addresses(shared_learner: LearnerProcess) -> Iterator[dict[str, str]]:
    """Returns an address of each kind."""
    shared_learner.status()
    bound = read_addresses(shared_learner.folder)
    assert bound is not None
    with ExitStack() as served:
        door = RankHandshake("127.0.0.1:0", Identity(), 1, "1")
        served.callback(door.close)
        found = {"actors": bound.address, "page": bound.http, "trainers": door.address}
        found |= {name: served.enter_context(web_server(place)) for name, place in PLACES.items()}
        yield {**found, "ssh": served.enter_context(ssh())}


def test_what_an_actor_finds(addresses: dict[str, str], processes: Processes) -> None:
    """An actor ends with 30 and one line that names what answers at --learner."""
    expected = {"page": PAGE, "trainers": TRAINERS, "ssh": SSH}
    actors = {
        kind: processes.actor(addresses[kind], "CartPole-v1", name=f"at-{number}")
        for number, kind in enumerate(KINDS)
        if kind != "actors"
    }
    for kind, actor in actors.items():
        said = expected.get(kind, f"{kind} {WEB}")
        assert said in actor.fails_with(30), kind


def test_what_an_operator_finds(addresses: dict[str, str]) -> None:
    """An operator's command says what answers at --control."""
    expected = {
        "actors": "is no address of a learner's status page, but perhaps its address for actors",
        "trainers": TRAINERS,
        "ssh": SSH,
    }
    for kind in KINDS:
        if kind == "page":
            continue
        with pytest.raises(UserError) as caught:
            Operator(addresses[kind]).status()
        assert expected.get(kind, f"{kind} {WEB}") in caught.value.message, kind
        assert "\n" not in caught.value.message


def test_what_a_trainer_finds(addresses: dict[str, str]) -> None:
    """A trainer of another machine says what answers at --front, and does not try again."""
    grpc_words = "gRPC answers there: a learner's address for actors; give its --trainer-address"
    expected = {"actors": grpc_words, "page": PAGE, "ssh": SSH}
    introduction = Introduction(release="1", rank=0, ranks=1)
    for kind in KINDS:
        if kind == "trainers":
            continue
        with pytest.raises(RefusedError) as caught:
            dial_front(addresses[kind], ClientSecurity(), introduction, 20.0, lambda _: None)
        assert expected.get(kind, f"{kind} {WEB}") in str(caught.value), kind


def test_nothing_is_found_where_it_is_right_or_nothing_answers(addresses: dict[str, str]) -> None:
    """A service of gRPC, a silent server and a free port have no other service."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert ClientSecurity().other_service("127.0.0.1", port) == ""
    assert ClientSecurity().other_service("127.0.0.1", port) == ""
    assert ClientSecurity().other_service("127.0.0.1", int(addresses["actors"].rpartition(":")[2])) == ""
