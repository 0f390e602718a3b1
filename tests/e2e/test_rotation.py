"""Tests that certificates and tokens are replaced while actors train, and that a revoked client ends."""

from __future__ import annotations

import json
import socket
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from rollcast.auth import Principal, Role, TokenRow, make_token, token_hash
from rollcast.channels import channel_options
from rollcast.errors import from_rpc_error
from rollcast.tls import ClientSecurity
from rollcast.v1 import policy_pb2, policy_pb2_grpc, session_pb2, session_pb2_grpc

from actor_client.exits import ExitCode
from learner.service.identity.audit import AUDIT_FILE
from learner.service.identity.authority import save_server, write
from learner.service.ingest.session_ids import short_id
from learner.shared.settings.addresses import TOKENS
from tests.e2e.books import by_reason
from tests.e2e.processes import LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.runs import small, write_run
from tests.learner.service.identity.certificates import HOSTS, Folder

NAME = "CartPole"
NEVER = 86400.0
"""A lease that no test outlives: a session then ends by revocation alone."""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns the certificates of a learner, and the tokens of two principals."""
    return Folder.make(tmp_path / "certs", lab=Role.ACTOR, silent=Role.ACTOR)


def started(processes: Processes, folder: Folder, **service: object) -> LearnerProcess:
    """Starts a learner with TLS and tokens that drops no step for its age."""
    run_file = write_run(processes.folder, {NAME: small()}, max_policy_lag=10**6, **service)
    return processes.learner(run_file, "--certs", str(folder.path))


def write_rows(folder: Folder, *tokens: str) -> None:
    """Replaces the token file by one in which the principal `lab` has these tokens, and `silent` its own."""
    rows = [TokenRow(Principal("lab", Role.ACTOR), token_hash(token)) for token in tokens]
    rows.append(TokenRow(Principal("silent", Role.ACTOR), token_hash(folder.tokens["silent"])))
    write(folder.path / TOKENS, "".join(f"{row.line()}\n" for row in rows).encode(), private=True)


def serial(learner: LearnerProcess, folder: Folder) -> str:
    """Returns the serial number of the certificate that a new connection gets."""
    host, _, port = learner.address.rpartition(":")
    context = ssl.create_default_context(cafile=str(folder.ca))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname=host) as secure,
    ):
        found = secure.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


@pytest.mark.nightly
def test_a_rotation_under_load_drops_nothing(processes: Processes, folder: Folder) -> None:
    """While two actors train, certificate and token are replaced: they keep their sessions and every step; the old token ends."""
    learner = started(processes, folder, lease_seconds=NEVER)
    token_file, old = folder.path / "lab.token", folder.tokens["lab"]
    flags = ("--tls-ca", str(folder.ca), "--token-file", str(token_file), "--num-envs", "2")
    actors = [processes.actor(learner.address, "CartPole-v1", *flags, name=f"actor-{n}") for n in range(2)]
    learner.wait_for_version(NAME, 2, *actors)
    sessions = {actor.session_id for actor in learner.status().actors}
    assert len(sessions) == 2
    first = serial(learner, folder)

    new = make_token()
    write_rows(folder, old, new)
    learner.wait_for(lambda: learner.events("token_file_read"), "both tokens are valid", *actors)
    write(token_file, new.encode(), private=True)
    save_server(folder.path, folder.authority, HOSTS)
    learner.wait_for(lambda: serial(learner, folder) != first, "the new certificate", *actors)
    before = learner.behavior(NAME).version
    write_rows(folder, new)
    learner.wait_for(lambda: len(learner.events("token_file_read")) == 2, "the old token is revoked", *actors)
    learner.wait_for(lambda: len(learner.events("actor_resumed")) >= 2, "both are back with the new token", *actors)
    learner.wait_for_version(NAME, before + 3, *actors)

    status = learner.status()
    assert {actor.session_id for actor in status.actors} == sessions
    assert not learner.events("actor_lost")
    for behavior in status.behaviors:
        assert (by_reason(behavior.books.dropped), by_reason(behavior.books.lost)) == ({}, {})
    for actor in status.actors:
        assert [(by_reason(books.dropped), by_reason(books.discarded)) for books in actor.books] == [({}, {})]
    token_file.write_text(old)
    late = processes.actor(learner.address, "CartPole-v1", *flags, name="late")
    assert late.wait() == ExitCode.UNAUTHENTICATED, late.said()
    token_file.write_text(new)
    learner.operator.drain(final=True)
    for child in actors:
        assert child.wait() == ExitCode.OK, child.said()
    assert learner.wait() == 0, learner.said()
    ledger = json.loads((learner.folder / "summary.json").read_text())["ledger"]
    assert not any(ledger["dropped"].values())
    assert not any(ledger["lost"].values())


def test_a_client_that_never_renews_ends_when_it_is_revoked(processes: Processes, folder: Folder) -> None:
    """Its session and its open stream end by revocation, although its lease would last for a day; `audit.jsonl` says so."""
    learner = started(processes, folder, lease_seconds=NEVER)
    security = ClientSecurity(folder.ca, token_file=folder.path / "silent.token")
    metadata = security.metadata()
    with security.sync_channel(learner.address, channel_options()) as channel:
        opening = session_pb2.OpenSessionRequest(
            protocol_revision=1, actor_name="silent", instance_id=str(uuid.uuid4())
        )
        opened = session_pb2_grpc.SessionServiceStub(channel).OpenSession(opening, metadata=metadata, timeout=20)
        subscription = policy_pb2_grpc.PolicyServiceStub(channel).Subscribe(
            policy_pb2.SubscribeRequest(session_id=opened.session_id, epoch=opened.epoch), metadata=metadata
        )
        wait_until(lambda: len(learner.status().actors) == 1, "its session")
        write(folder.path / TOKENS, b"", private=True)
        with pytest.raises(grpc.RpcError) as caught:
            for _ in subscription:
                pass
        assert from_rpc_error(caught.value).reason == "UNAUTHENTICATED"
        wait_until(lambda: not learner.status().actors, "its session ends")
    (line,) = [json.loads(text) for text in (learner.folder / AUDIT_FILE).read_text().splitlines()]
    assert (line["action"], line["principal"], line["session"]) == ("revoke", "silent", short_id(opened.session_id))
