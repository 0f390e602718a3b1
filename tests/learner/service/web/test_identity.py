"""Tests who may read and act through the HTTP port of a learner with TLS and tokens."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from rollcast.auth import Principal, Role, make_token
from rollcast.server_tls import ServerSecurity

from learner.service.identity.access import Access
from learner.service.identity.setup import Identity
from learner.service.web import routes
from learner.service.web.operator_token import COMMAND_HEADER
from learner.service.web.routes import is_on_this_machine
from tests.learner.service.identity.certificates import Folder
from tests.learner.service.web.site import NAME, OPERATOR, SECONDS, Answer, Site, serving

READ = ("/api/status", f"/api/history?behavior={NAME}", "/metrics")
OPEN = ("/", "/healthz")
ACT = (
    *("/api/pause", "/api/resume", "/api/checkpoint", "/api/operator", "/api/drain", "/api/release?actor=x"),
    *("/api/set?learning_rate=1", "/api/undo"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns a folder with a principal of each role."""
    return Folder.make(tmp_path, lab=Role.ACTOR, eyes=Role.VIEWER, ops=Role.OPERATOR, farm=Role.TRAINER)


@pytest.fixture
def site(folder: Folder) -> Iterator[Site]:
    """Serves with TLS and tokens, whose files are looked at all the time."""
    access = Access(folder.path / "tokens", poll_seconds=0)
    with serving(identity=Identity(access, ServerSecurity(*folder.server, poll_seconds=0))) as started:
        started.hooks.history_.add(NAME, 1.0, {})
        yield started


def ask(folder: Folder, site: Site, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
    """Sends a request over a new connection, which must prove that it is the learner."""
    return ask_with(ssl.create_default_context(cafile=str(folder.ca)), site, path, method, headers)


def ask_with(
    context: ssl.SSLContext, site: Site, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Answer:
    """Sends a request over a new connection of a context."""
    connection = http.client.HTTPSConnection("127.0.0.1", site.port, timeout=SECONDS, context=context)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


def bearer(token: str) -> dict[str, str]:
    """Returns the header of a token."""
    return {"authorization": f"Bearer {token}"}


def test_readers_need_the_token_of_a_viewer(folder: Folder, site: Site) -> None:
    """Viewers and operators read, with the page's token or one of the file; actors and strangers do not."""
    for path in OPEN:
        assert ask(folder, site, path).status == 200
    for path in READ:
        assert ask(folder, site, path).reason == "NO_TOKEN"
        assert ask(folder, site, path, headers=bearer(make_token())).reason == "WRONG_TOKEN"
        for name, role in (("lab", "an actor"), ("farm", "a trainer")):
            answer = ask(folder, site, path, headers=bearer(folder.tokens[name]))
            assert answer.reason == "NOT_ALLOWED"
            assert f"token of {role}, and only viewers and operators" in answer.json["error"]["message"]
        bare = ask(folder, site, path, headers={"authorization": folder.tokens["eyes"]})
        assert bare.reason == "WRONG_TOKEN"
        assert "Authorization: Bearer TOKEN" in bare.json["error"]["message"]
        for header in (bearer(folder.tokens["eyes"]), bearer(folder.tokens["ops"]), OPERATOR):
            assert ask(folder, site, path, headers=header).status == 200


def test_a_revoked_token_reads_nothing(folder: Folder, site: Site) -> None:
    """A viewer whose line is removed from the token file is refused."""
    assert ask(folder, site, READ[0], headers=bearer(folder.tokens["eyes"])).status == 200
    folder.write_tokens(ops=Role.OPERATOR)
    assert site.server is not None
    assert poll(site)
    assert ask(folder, site, READ[0], headers=bearer(folder.tokens["eyes"])).reason == "WRONG_TOKEN"


def poll(site: Site) -> bool:
    """Looks at the token file, as the learner does when it is some seconds old; returns whether it has changed."""
    access = site.server._identity.access
    assert access._path is not None
    os.utime(access._path, (time.time() - 5, time.time() - 5))
    return access.poll()


@pytest.mark.parametrize("path", ACT)
def test_only_a_header_makes_an_operator(folder: Folder, site: Site, path: str) -> None:
    """A POST without the header is refused, whatever a browser adds by itself: there is nothing for CSRF to use."""
    token = folder.tokens["ops"]
    elsewhere = {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
    for headers in ({}, {"Cookie": f"authorization=Bearer {token}; token={token}"}, elsewhere):
        assert ask(folder, site, path, "POST", headers).reason == "NO_TOKEN"
        assert (
            ask(
                folder,
                site,
                f"{path}{'&' if '?' in path else '?'}token={token}&authorization=Bearer+{token}",
                "POST",
                headers,
            ).status
            == 401
        )
    for name, role in (("eyes", "a viewer"), ("lab", "an actor"), ("farm", "a trainer")):
        answer = ask(folder, site, path, "POST", bearer(folder.tokens[name]))
        assert answer.reason == "NOT_ALLOWED"
        assert f"token of {role}, and only operators" in answer.json["error"]["message"]
    assert site.hooks.calls == []
    assert ask(folder, site, path, "POST", bearer(token)).status == 200


def test_each_request_of_operators_is_tried_by_strangers(site: Site) -> None:
    """`ACT` names every route that a POST reaches, but the one that proves the learner to strangers."""
    app = web.Application()
    assert site.server._routes is not None
    site.server._routes.add_to(app)
    posts = {route.resource.canonical for route in app.router.routes() if route.method == "POST" and route.resource}
    assert posts - {"/api/prove"} == {path.partition("?")[0] for path in ACT}


def test_no_answer_sets_a_cookie(folder: Folder, site: Site) -> None:
    """No answer of any route, method or caller has a cookie, and none lets another site read it."""
    callers = [{}, OPERATOR, bearer(folder.tokens["eyes"]), {"Cookie": "a=b"}]
    for path in (*OPEN, *READ, *ACT, "/nothing"):
        for method in ("GET", "POST", "OPTIONS"):
            for caller in callers:
                answer = ask(folder, site, path, method, {**caller, "Origin": "https://elsewhere.example"})
                assert "set-cookie" not in answer.headers
                assert not any(name.startswith("access-control") for name in answer.headers)


def test_client_certificates_alone_guard_the_port(folder: Folder) -> None:
    """With client certificates and no token file, a connection without a certificate reads nothing."""
    access = Access(takes_certificates=True)
    identity = Identity(access, ServerSecurity(*folder.server, folder.ca, poll_seconds=0))
    lab = folder.client(certificate=Principal("lab", Role.VIEWER))
    with serving(identity=identity) as site:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(folder, site, "/api/status")
        context = ssl.create_default_context(cafile=str(folder.ca))
        context.load_cert_chain(str(lab.cert), str(lab.key))
        assert ask_with(context, site, "/healthz").status == 200


def test_a_removed_authority_is_forgotten_without_a_restart(folder: Folder, tmp_path: Path) -> None:
    """New connections with the certificate of an authority that was removed from the file read nothing."""
    other = Folder.make(tmp_path / "other")
    both = tmp_path / "both.pem"
    both.write_bytes(folder.ca.read_bytes() + other.ca.read_bytes())
    access = Access(takes_certificates=True)
    security = ServerSecurity(*folder.server, both, poll_seconds=0)
    clients = [each.client(certificate=Principal("lab", Role.VIEWER)) for each in (folder, other)]
    contexts = [replace(each, ca=folder.ca).context() for each in clients]
    with serving(identity=Identity(access, security)) as site:

        def health(context: ssl.SSLContext) -> int:
            context.set_alpn_protocols(["http/1.1"])
            return ask_with(context, site, "/healthz").status

        assert [health(context) for context in contexts] == [200, 200]
        both.write_bytes(folder.ca.read_bytes())
        security.poll()
        assert health(contexts[0]) == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            health(contexts[1])


def test_plain_text_gets_no_answer(site: Site) -> None:
    """A request in plain text on the TLS port reads nothing."""
    with socket.create_connection(("127.0.0.1", site.port), SECONDS) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        try:
            while data := plain.recv(4096):
                received += data
        except ConnectionError:
            pass
    assert b"serving" not in received
    assert b"HTTP/1.1 200" not in received


def commanded(token: str | None = None) -> dict[str, str]:
    """Returns the headers of a command."""
    return {COMMAND_HEADER: "1", **({} if token is None else bearer(token))}


def test_a_certificate_alone_names_an_operator_where_there_are_no_tokens(folder: Folder) -> None:
    """A command with an operator's certificate acts, a viewer's reads; a request without the command's header does neither."""
    identity = Identity(Access(takes_certificates=True), ServerSecurity(*folder.server, folder.ca, poll_seconds=0))

    def context(role: Role) -> ssl.SSLContext:
        made = folder.client(certificate=Principal(f"my-{role}", role)).context()
        made.set_alpn_protocols(["http/1.1"])
        return made

    operator, viewer, actor = map(context, (Role.OPERATOR, Role.VIEWER, Role.ACTOR))
    with serving(identity=identity) as site:
        for path in ("/api/pause", "/api/drain", "/api/release?actor=x"):
            assert ask_with(operator, site, path, "POST").reason == "NO_TOKEN", "a browser sends certificates by itself"
            assert ask_with(viewer, site, path, "POST", commanded()).reason == "NOT_ALLOWED"
            assert ask_with(actor, site, path, "POST", commanded()).reason == "NOT_ALLOWED"
            assert ask_with(operator, site, path, "POST", commanded()).status == 200
        for reader, reason in ((operator, None), (viewer, None), (actor, "NOT_ALLOWED")):
            answer = ask_with(reader, site, "/api/status", "GET", commanded())
            assert answer.status == 200 if reason is None else answer.reason == reason
        assert ask_with(viewer, site, "/api/status").reason == "NO_TOKEN"
        assert site.hooks.calls == ["pause", "drain True", "release x of None"]


def test_no_other_site_can_send_the_header_of_commands(site: Site, folder: Folder) -> None:
    """A browser asks before it sends such a header for another site, and gets no permission."""
    asked = {
        "Origin": "https://elsewhere.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": COMMAND_HEADER.lower(),
    }
    answer = ask(folder, site, "/api/drain", "OPTIONS", asked)
    assert answer.status == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_run_ends_by_a_token_of_the_certificate_s_principal(folder: Folder) -> None:
    """Where clients have certificates, a copied token ends no run, and neither does that of another principal."""
    access = Access(folder.path / "tokens", takes_certificates=True, poll_seconds=0)
    identity = Identity(access, ServerSecurity(*folder.server, folder.ca, poll_seconds=0))
    ops, other = (folder.client(certificate=Principal(name, Role.OPERATOR)).context() for name in ("ops", "other"))
    for context in (ops, other):
        context.set_alpn_protocols(["http/1.1"])
    token = folder.tokens["ops"]
    with serving(identity=identity) as site:
        assert ask(folder, site, "/api/drain", "POST", commanded(token)).reason == "UNAUTHENTICATED"
        assert ask_with(other, site, "/api/drain", "POST", commanded(token)).reason == "NOT_ALLOWED"
        assert ask_with(ops, site, "/api/drain", "POST", commanded()).reason == "NO_TOKEN"
        assert ask_with(ops, site, "/api/drain?final=0", "POST", commanded(token)).status == 200
        assert site.hooks.calls == ["drain False"]


@pytest.mark.parametrize(
    ("address", "is_here"),
    [
        *(("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("::ffff:127.0.0.1", True), ("::1%lo", True)),
        *(("10.0.0.7", False), ("fe80::1%eth0", False), ("::ffff:10.0.0.7", False), ("", False), ("localhost", False)),
        *(("::", False), ("172.17.0.1", False), ("127.0.0.1.example", False)),
    ],
)
def test_who_is_on_the_learner_s_machine(address: str, is_here: bool) -> None:
    """Only a loopback address is."""
    assert is_on_this_machine(address) is is_here


def test_a_token_in_plain_text_ends_no_run_from_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS a token on a network can be read, so that it may pause and save, and not end the run."""
    with serving() as site:
        assert site.ask("/api/drain", "POST", OPERATOR).status == 200
        monkeypatch.setattr(routes, "is_on_this_machine", lambda _: False)
        refused = site.ask("/api/drain", "POST", OPERATOR)
        assert (refused.status, refused.reason) == (403, "NOT_ALLOWED")
        assert "from the learner's own machine only" in refused.json["error"]["message"]
        assert site.ask("/api/pause", "POST", OPERATOR).status == 200
        assert site.hooks.calls == ["drain True", "pause"]


@pytest.mark.parametrize("query", ["", "?nonce=xx&claim=yy", "?nonce=00", f"?nonce={'0' * 600}&claim={'f' * 600}"])
def test_who_knows_no_token_gets_no_proof(site: Site, folder: Folder, query: str) -> None:
    """A claim that no token explains proves nothing, and is refused as a wrong token is."""
    assert ask(folder, site, f"/api/prove{query}", "POST").status in {400, 401}
    assert ask(folder, site, f"/api/prove{query}").status == 405
