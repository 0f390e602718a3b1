"""Tests of the identity of actors and operators, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rollcast.auth import Principal, Role, TokenRow, authorization, make_token, token_hash
from rollcast.errors import BadRequest, from_rpc_error
from rollcast.server_tls import ServerSecurity
from rollcast.v1 import session_pb2

from learner.service.calls.identity import IdentityGuard
from learner.service.identity.access import Access, own_row
from learner.service.identity.setup import Identity
from tests.learner.service.calls.harness import Actor, ask, eventually, failure, running
from tests.learner.service.calls.samples import make_options, make_spec
from tests.learner.service.identity.certificates import Folder

OPERATOR_TOKEN = make_token()


def identity(folder: Folder, *, tls: bool = False, client_ca: bool = False, tokens: bool = True) -> Identity:
    """Returns the identity of a learner whose files are looked at all the time."""
    access = Access(
        folder.path / "tokens" if tokens else None,
        takes_certificates=client_ca,
        own=[own_row("operator", Role.OPERATOR, OPERATOR_TOKEN)],
        poll_seconds=0,
    )
    security = ServerSecurity(*folder.server, folder.ca if client_ca else None, poll_seconds=0) if tls else None
    return Identity(access, security)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns a folder with two actors, a viewer and an operator."""
    return Folder.make(tmp_path, lab=Role.ACTOR, other=Role.ACTOR, eyes=Role.VIEWER, ops=Role.OPERATOR)


def age(path: Path) -> None:
    """Makes a file one that was written some seconds ago."""
    os.utime(path, (time.time() - 5, time.time() - 5))


async def test_only_actors_with_a_token_join(folder: Folder) -> None:
    """No token and a wrong one are UNAUTHENTICATED, another role PERMISSION_DENIED; each is counted."""
    async with running(identity=identity(folder)) as learner:
        for token, reason in (
            (None, "UNAUTHENTICATED"),
            (make_token(), "UNAUTHENTICATED"),
            (folder.tokens["eyes"], "NOT_ALLOWED"),
        ):
            async with Actor(learner.server.port, token=token) as actor:
                error = await failure(actor.open())
                assert error.reason == reason
                assert token is None or token not in error.message
                assert (await failure(actor.subscribe().read())).reason == reason
                upload = await actor.upload()
                assert (await failure(upload.read())).reason == reason
        async with Actor(learner.server.port, token=folder.tokens["lab"]) as actor:
            await actor.join()
            assert learner.sessions.live()[0].principal == "lab"
        assert learner.metric("rollcast_learner_errors_total", reason="unauthenticated") == 6


async def test_a_refused_call_reads_nothing(folder: Folder) -> None:
    """A request that no handler could parse is refused for its caller, because it is not read."""
    async with (
        running(identity=identity(folder)) as learner,
        grpc.aio.insecure_channel(f"127.0.0.1:{learner.server.port}") as channel,
    ):
        call: Any = cast("Any", channel.unary_unary("/rollcast.v1.SessionService/OpenSession"))(b"\xff" * 1000)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert from_rpc_error(caught.value).reason == "UNAUTHENTICATED"


async def test_sessions_belong_to_their_principal(folder: Folder) -> None:
    """Another principal can neither use, resume, replace nor settle a session, and its name has its own place."""
    async with (
        running(identity=identity(folder)) as learner,
        Actor(learner.server.port, token=folder.tokens["lab"]) as mine,
        Actor(learner.server.port, token=folder.tokens["other"]) as thief,
    ):
        await mine.join()
        thief.session_id, thief.epoch, thief.instance_id = mine.session_id, mine.epoch, mine.instance_id
        for attempt in (thief.renew(), thief.declare(), thief.close(), thief.subscribe().read()):
            assert (await failure(attempt)).reason == "NOT_ALLOWED"
        upload = await thief.upload()
        assert (await failure(upload.read())).reason == "NOT_ALLOWED"
        resume = session_pb2.ResumeSession(session_id=mine.session_id, epoch=mine.epoch, generation=1)
        error = await failure(thief.open(resume=resume))
        assert error.reason == "NOT_ALLOWED"
        assert "lab" not in f"{error.message} {error.metadata}"
        await thief.open()  # with the same name and instance
        assert thief.session_id != mine.session_id
        await mine.renew()
        assert {session.actor_index for session in learner.sessions.live()} == {0, 1}


async def test_limits_of_a_token(folder: Folder) -> None:
    """A token limits the sessions of its principal and the behaviors that it may declare."""
    limited = Principal("few", Role.ACTOR, 1, frozenset({"Other"}))
    token = make_token()
    (folder.path / "tokens").write_text(TokenRow(limited, token_hash(token)).line())
    async with (
        running(identity=identity(folder)) as learner,
        Actor(learner.server.port, token=token) as first,
        Actor(learner.server.port, token=token) as second,
    ):
        await first.open()
        assert (await failure(first.declare(make_spec()))).reason == "NOT_ALLOWED"
        error = await failure(second.open())
        assert (error.reason, error.metadata["max_sessions"]) == ("TOO_MANY_SESSIONS", "1")


async def test_a_principal_that_loses_its_role_ends(folder: Folder) -> None:
    """A token that becomes one of another role ends what only its old role may do; an operator's view stays a viewer's."""
    async with (
        running(identity=identity(folder)) as learner,
        Actor(learner.server.port, token=folder.tokens["lab"]) as demoted,
        grpc.aio.insecure_channel(f"127.0.0.1:{learner.server.port}") as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
        watches = [
            stub.Watch(health_pb2.HealthCheckRequest(), metadata=authorization(folder.tokens[name]))
            for name in ("eyes", "ops")
        ]
        upload = await demoted.join()
        for watch in watches:
            await watch.read()
        folder.write_tokens(lab=Role.VIEWER, eyes=Role.ACTOR, ops=Role.VIEWER)
        assert (await failure(upload.until("drain"))).reason == "UNAUTHENTICATED"
        await eventually(lambda: not learner.sessions.live())
        assert (await failure(watches[0].read())).reason == "UNAUTHENTICATED"
        assert not watches[1].done()
        assert (await failure(demoted.open())).reason == "NOT_ALLOWED"


async def test_a_token_is_replaced_without_losing_the_session(folder: Folder) -> None:
    """While a principal has another token, its session stays, and its streams on the old one end."""
    new = make_token()
    async with (
        running(identity=identity(folder)) as learner,
        Actor(learner.server.port, token=folder.tokens["lab"]) as old,
    ):
        upload = await old.join()
        rows = [TokenRow(Principal("lab", Role.ACTOR), token_hash(token)) for token in (folder.tokens["lab"], new)]
        (folder.path / "tokens").write_text("".join(f"{row.line()}\n" for row in rows))
        await old.renew()
        await eventually(lambda: learner.server._identity.access.is_valid(new, Role.ACTOR))
        (folder.path / "tokens").write_text(f"{rows[1].line()}\n")
        assert (await failure(upload.until("drain"))).reason == "UNAUTHENTICATED"
        async with Actor(learner.server.port, token=new) as again:
            again.instance_id = old.instance_id
            resume = session_pb2.ResumeSession(session_id=old.session_id, epoch=old.epoch, generation=1)
            assert (await again.open(resume=resume)).resumed


def test_a_token_of_this_start_alone_keeps_its_sessions(folder: Folder) -> None:
    """The sessions of actors that the command itself starts continue, although no line of the file is theirs."""
    access = Access(folder.path / "tokens", own=(own_row("local", Role.ACTOR, "of-this-start"),))
    assert access.knows("local")
    assert not access.knows("stranger")


def test_a_file_that_is_being_written_changes_nothing(folder: Folder) -> None:
    """A file counts a second after its last change, also a replaced one; a wrong or missing one and a pipe change nothing."""
    tokens = folder.path / "tokens"
    access = Access(tokens, poll_seconds=0)
    valid = tokens.read_text()
    for text in ("", valid.splitlines()[1] + "\n"):
        tokens.write_text(text)
        assert not access.poll()
        assert access.knows("lab")
    tokens.write_text(valid)
    age(tokens)
    assert not access.poll()
    tokens.with_name("new").write_text(valid.splitlines()[1] + "\n")
    tokens.with_name("new").replace(tokens)
    assert not access.poll()
    age(tokens)
    assert access.poll()
    assert not access.knows("lab")
    tokens.write_text("lab king sha256:0")
    age(tokens)
    assert not access.poll()
    tokens.unlink()
    assert not access.poll()
    os.mkfifo(tokens)
    assert not access.poll()
    assert access.knows("other")


def test_a_mounted_token_file_is_read_when_its_link_changes(folder: Folder, tmp_path: Path) -> None:
    """Kubernetes mounts a secret as links, and replaces it by renaming one: the content decides, not the file."""
    mounted, data = tmp_path / "mounted", tmp_path / "mounted" / "..data"
    for name, principal in (("first", "lab"), ("second", "other")):
        (mounted / name).mkdir(parents=True)
        row = TokenRow(Principal(principal, Role.ACTOR), token_hash(folder.tokens[principal]))
        (mounted / name / "tokens").write_text(f"{row.line()}\n")
    data.symlink_to("first")
    (mounted / "tokens").symlink_to("..data/tokens")
    access = Access(mounted / "tokens", poll_seconds=0)
    assert not access.poll()
    (mounted / "..new").symlink_to("second")
    (mounted / "..new").replace(data)
    age(data / "tokens")
    assert access.poll()
    assert access.knows("other")
    assert not access.knows("lab")


async def test_roles_of_operators(folder: Folder) -> None:
    """Viewers see the status, operators change the run, and actors do neither."""
    async with running(identity=identity(folder)) as learner:
        expected = {
            None: ("NO_TOKEN", "NO_TOKEN"),
            folder.tokens["lab"]: ("NOT_ALLOWED", "NOT_ALLOWED"),
            folder.tokens["eyes"]: (None, "NOT_ALLOWED"),
            folder.tokens["ops"]: (None, None),
            OPERATOR_TOKEN: (None, None),
        }
        for token, reasons in expected.items():
            for (path, method), reason in zip((("status", "GET"), ("drain?final=0", "POST")), reasons, strict=True):
                answer = await ask(learner, f"/api/{path}", method, token=token)
                assert answer.status == 200 if reason is None else answer.reason == reason
        assert learner.hooks.calls == ["drain False"] * 2


async def test_only_the_operators_token_changes_a_run_without_tokens() -> None:
    """Without a token file any local process reads the status, and only one with the run's token ends the run (R19)."""
    access = Access(own=[own_row("operator", Role.OPERATOR, OPERATOR_TOKEN)])
    async with running(identity=Identity(access)) as learner, Actor(learner.server.port) as actor:
        await actor.join()
        assert (await ask(learner, "/api/status", "GET", token=None)).status == 200
        for name in ("pause", "resume", "checkpoint", "drain", "release?actor=x"):
            assert (await ask(learner, f"/api/{name}", token=None)).reason == "NO_TOKEN"
            assert (await ask(learner, f"/api/{name}", token=make_token())).reason == "WRONG_TOKEN"
        assert learner.metric("rollcast_learner_errors_total", reason="unauthenticated") == 5
        assert learner.metric("rollcast_learner_errors_total", reason="not_allowed") == 5
        assert (await ask(learner, "/api/pause")).status == 200
        assert learner.hooks.calls == ["pause"]


async def test_health_is_open_and_its_watch_is_not(folder: Folder) -> None:
    """Anyone may check the health; watching it needs a viewer's token."""
    async with (
        running(identity=identity(folder)) as learner,
        grpc.aio.insecure_channel(f"127.0.0.1:{learner.server.port}") as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        assert (await failure(stub.Watch(health_pb2.HealthCheckRequest()).read())).reason == "UNAUTHENTICATED"
        watch = stub.Watch(health_pb2.HealthCheckRequest(), metadata=authorization(folder.tokens["eyes"]))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


async def test_certificates_name_principals(folder: Folder) -> None:
    """With client certificates alone, the certificate names the principal and its role."""
    options = make_options()
    async with running(options, identity=identity(folder, tls=True, client_ca=True, tokens=False)) as learner:
        port = learner.server.port
        async with Actor(port, security=folder.client(certificate=Principal("cam", Role.ACTOR))) as actor:
            await actor.join()
            assert learner.sessions.live()[0].principal == "cam"
        async with Actor(port, security=folder.client(certificate=Principal("eye", Role.VIEWER))) as viewer:
            assert (await failure(viewer.open())).reason == "NOT_ALLOWED"


async def test_certificate_and_token_agree(folder: Folder) -> None:
    """With both, they must name one principal."""
    async with running(identity=identity(folder, tls=True, client_ca=True)) as learner:
        port = learner.server.port
        async with Actor(port, security=folder.client("lab", Principal("lab", Role.ACTOR))) as actor:
            await actor.join()
        async with Actor(port, security=folder.client("lab", Principal("other", Role.ACTOR))) as thief:
            error = await failure(thief.open())
            assert error.reason == "NOT_ALLOWED"
        async with Actor(port, security=folder.client(None, Principal("lab", Role.ACTOR))) as bare:
            assert (await failure(bare.open())).reason == "UNAUTHENTICATED"


async def test_a_client_that_leaves_while_its_stream_fails_leaves_no_error(folder: Folder) -> None:
    """If a stream ends with an error in the moment in which its client leaves, the event loop reports nothing."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
    entered, fails = asyncio.Event(), asyncio.Event()

    async def inner(_request: object, _context: object) -> None:
        entered.set()
        await fails.wait()
        raise BadRequest("a fault of form")

    guard = IdentityGuard(Access(folder.path / "tokens"), lambda _: Role.ACTOR)
    stream = asyncio.ensure_future(guard._writer(inner, lambda _: None, None, Role.ACTOR)(None, None))
    await entered.wait()
    fails.set()
    stream.cancel()
    assert (await asyncio.wait({stream}))[0].pop().cancelled()
    del stream
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []
