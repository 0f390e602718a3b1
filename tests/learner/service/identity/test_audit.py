"""Tests the record of who changed a run, over real HTTP."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rollcast.auth import Principal, Role
from rollcast.errors import CheckpointFailed

from learner.service.identity.access import Access
from learner.service.identity.audit import AUDIT_FILE, Audit, Requester, grpc_address
from learner.service.identity.setup import Identity
from learner.service.ingest.session_ids import short_id
from tests.learner.service.calls.harness import Actor, ask, eventually, running
from tests.learner.service.identity.certificates import Folder
from tests.learner.service.web.site import OPERATOR, Hooks, serving


def lines_in(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of a folder's record."""
    return [json.loads(line) for line in (folder / AUDIT_FILE).read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns a folder with an actor, a viewer and an operator."""
    return Folder.make(tmp_path, lab=Role.ACTOR, eyes=Role.VIEWER, ops=Role.OPERATOR)


@pytest.fixture
def identity(folder: Folder) -> Iterator[Identity]:
    """Returns the identity of a learner with tokens, whose file is looked at all the time."""
    audit = Audit(folder.path)
    yield Identity(Access(folder.path / "tokens", poll_seconds=0), audit=audit)
    audit.close()


async def test_operators_calls_are_recorded(folder: Folder, identity: Identity) -> None:
    """Each call that changes the run has a line with caller, address and result, and nothing else has."""
    async with running(identity=identity) as learner:
        token = folder.tokens["ops"]
        assert (await ask(learner, "/api/status", "GET", token=token)).status == 200
        assert (await ask(learner, "/api/drain", token=folder.tokens["eyes"])).reason == "NOT_ALLOWED"
        for name in ("pause", "resume", "checkpoint"):
            assert (await ask(learner, f"/api/{name}", token=token)).status == 200
        learner.hooks.error = CheckpointFailed("no space")
        assert (await ask(learner, "/api/checkpoint", token=token)).reason == CheckpointFailed.default_reason
        assert (await ask(learner, "/api/drain", token=token)).status == 200
        lines = lines_in(folder.path)
    assert [(line["action"], line["result"]) for line in lines] == [
        ("pause", "ok"),
        ("resume", "ok"),
        ("save", "ok"),
        ("save", CheckpointFailed.default_reason),
        ("drain", "ok"),
    ]
    for line in lines:
        assert (line["principal"], line["role"], line["via"]) == ("ops", "operator", "http")
        assert line["peer"].startswith("127.0.0.1:")
        assert line["time"].endswith("+00:00")
    assert lines[2]["path"].startswith("/checkpoint")
    assert lines[-1]["final"] is True
    assert stat.S_IMODE((folder.path / AUDIT_FILE).stat().st_mode) == 0o600


def test_requests_of_the_page_are_recorded(folder: Folder, identity: Identity) -> None:
    """Each button of the page has a line, for the operator of the run's token and for those of the token file."""
    ops = {"Authorization": f"Bearer {folder.tokens['ops']}"}
    eyes = {"Authorization": f"Bearer {folder.tokens['eyes']}"}
    with serving(Hooks(), identity=identity) as site:
        assert site.ask("/api/pause", "POST", eyes).status == 403
        for action, caller in (("pause", ops), ("resume", ops), ("checkpoint", OPERATOR)):
            assert site.ask(f"/api/{action}", "POST", caller).status == 200
        site.hooks.error = TimeoutError()
        assert site.ask("/api/pause", "POST", ops).status == 504
    lines = lines_in(folder.path)
    assert [(line["action"], line["principal"], line["result"]) for line in lines] == [
        ("pause", "ops", "ok"),
        ("resume", "ops", "ok"),
        ("save", "operator", "ok"),
        ("pause", "ops", "LATE"),
    ]
    for line in lines:
        assert (line["role"], line["via"]) == ("operator", "http")
        assert line["peer"].startswith("127.0.0.1:")
    assert lines[2]["path"].startswith("/there")


async def test_revoked_sessions_are_recorded(folder: Folder, identity: Identity) -> None:
    """A session that ends because its principal lost its token has a line; one that its actor closes has none."""
    async with (
        running(identity=identity) as learner,
        Actor(learner.server.port, "walker", token=folder.tokens["lab"]) as actor,
        Actor(learner.server.port, token=folder.tokens["lab"]) as leaves,
    ):
        await actor.join()
        await leaves.open()
        await leaves.close()
        folder.write_tokens(ops=Role.OPERATOR)
        await eventually(lambda: not learner.sessions.live())
        (line,) = lines_in(folder.path)
    assert (line["action"], line["principal"], line["role"], line["via"]) == ("revoke", "lab", "actor", "token_file")
    assert (line["actor"], line["session"], line["result"]) == ("walker", short_id(actor.session_id), "ok")
    assert line["peer"].startswith("127.0.0.1:")


def test_a_record_is_private_from_its_first_byte(tmp_path: Path) -> None:
    """A file that others could read is restricted before a line is added; an earlier line stays."""
    path = tmp_path / AUDIT_FILE
    path.write_text('{"action": "earlier"}\n')
    path.chmod(0o644)
    audit = Audit(tmp_path)
    audit.note("drain", Requester("grpc", "127.0.0.1:1", Principal("ops", Role.OPERATOR)))
    audit.close()
    assert [line["action"] for line in lines_in(tmp_path)] == ["earlier", "drain"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:10.0.0.1:5", "10.0.0.1:5"), ("ipv6:%5B::1%5D:5", "[::1]:5"), ("unix:/run/x", "unix:/run/x")],
)
def test_addresses_of_peers(peer: str, address: str) -> None:
    """Addresses have no scheme and no escapes."""
    assert grpc_address(peer) == address
