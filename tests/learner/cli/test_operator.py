"""Tests the operator's client against a service on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.server
import json
import os
import platform
import re
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest
import rollcast.console
from rollcast.addresses import split_address
from rollcast.auth import Role, proof_of, token_hash
from rollcast.errors import CheckpointFailed, MalformedChunk, SettingRefused
from rollcast.tls import ClientSecurity

from learner.cli.cli import build_parser, main
from learner.cli.operator import Operator, find_running, page_link
from learner.service.identity.access import Access, own_row
from learner.service.identity.setup import Identity
from learner.service.ingest.quarantine import MAX_FAULTS
from learner.service.web.operator_token import TOKEN_FILE, token_of_run
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import (
    ADDRESS_FILE,
    STARTS_AGAIN,
    AwaitedAddress,
    BoundAddresses,
    read_addresses,
    write_addresses,
    write_awaited,
)
from learner.shared.observe.journal import JOURNAL_FILE
from learner.shared.observe.terminal import render_status
from learner.shared.observe.view import RunState
from learner.shared.runfolder import lock as lock_module
from learner.shared.runfolder.lock import LOCK_NAME, FolderLock
from learner.start.list_runs import list_runs
from tests.learner.service.calls.harness import PAGE_TOKEN, Actor, Learner, running
from tests.learner.service.calls.samples import make_chunk
from tests.learner.start.run_folders import run_folder

T = TypeVar("T")
NOBODY = "127.0.0.1:1"
KNOWING = Identity(Access(own=[own_row("operator", Role.OPERATOR, PAGE_TOKEN)]))
"""Knows the token of the page."""


async def call(learner: Learner, folder: Path, method: Callable[[Operator], T]) -> T:
    """Calls the service from a thread, as a command does."""
    address, token = await learner.operators(), folder / "token"
    token.write_text(PAGE_TOKEN)

    def use() -> T:
        return method(Operator(address, security=ClientSecurity(token_file=token)))

    return await asyncio.to_thread(use)


async def test_every_command_reaches_the_learner(tmp_path: Path) -> None:
    """Each method is one request with its arguments."""
    async with running(identity=KNOWING) as learner:
        await call(learner, tmp_path, Operator.pause)
        await call(learner, tmp_path, Operator.resume)
        assert await call(learner, tmp_path, Operator.save_checkpoint) == "/checkpoint after True"
        await call(learner, tmp_path, lambda operator: operator.drain(final=True))
        await call(learner, tmp_path, lambda operator: operator.drain(final=False))
        assert learner.hooks.calls == ["pause", "resume", "save", "drain True", "drain False"]
        assert await call(learner, tmp_path, Operator.accepts_actors)


def test_a_folder_of_another_user_names_no_token_of_this_one(tmp_path: Path) -> None:
    """A planted address.json with the attacker's address and authority and this user's token gets no token."""
    token, own = tmp_path / "token", tmp_path.stat().st_uid
    token.write_text("t" * 32)
    planted = BoundAddresses(NOBODY, NOBODY, tls=True, token=str(token), owner=own + 1)
    with pytest.raises(UserError, match="of another user, names the token") as caught:
        Operator.of(planted)
    assert caught.value.exit_code is ExitCode.NOT_ALLOWED
    for given, addresses in (
        (ClientSecurity(), replace(planted, owner=own)),
        (ClientSecurity(token_file=token), planted),  # by the user's own word
        (ClientSecurity(), replace(planted, token=str(tmp_path / "none"))),
    ):
        assert Operator.of(addresses, given).address == NOBODY


def test_the_owner_of_an_address_file_is_known(tmp_path: Path) -> None:
    """The owner is the file's, whatever the file says."""
    write_addresses(tmp_path, BoundAddresses(NOBODY, NOBODY, token=ADDRESS_FILE))
    found = read_addresses(tmp_path)
    assert found is not None
    assert found.owner == tmp_path.stat().st_uid


async def test_an_actor_that_is_shut_out_is_shown_and_released(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status names the actor and its last fault without control characters; the command releases it."""
    async with running(identity=KNOWING) as learner:
        for _ in range(MAX_FAULTS):
            learner.sessions.quarantine.note(("", "rig 7"), MalformedChunk("column \x1b[2J"))
        learner.hooks.view = learner.run_status.run_view(learner.hooks.view.state, "127.0.0.1:1")
        said = render_status(await call(learner, tmp_path, Operator.status))
        assert "shut out: rig 7 for 0:" in said
        assert "column \\x1b[2J" in said
        known = ("--control", await learner.operators(), "--token-file", str(tmp_path / "token"))
        release = build_parser().parse_args(["release", "rig 7", *known])
        assert await asyncio.to_thread(release.run, release) == ExitCode.OK
        assert capsys.readouterr().out.endswith("released 1 actor\n")
        with pytest.raises(UserError, match="no actor 'rig 7' is shut out") as caught:
            await asyncio.to_thread(release.run, release)
        assert caught.value.exit_code is ExitCode.NOT_ALLOWED
        assert learner.sessions.quarantine.view() == ()


async def test_settings_are_changed_and_set_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`set` sends what is given and prints the changes in words; what it cannot mean is a wrong command line."""
    async with running(identity=KNOWING) as learner:
        await call(learner, tmp_path, Operator.status)
        known = ("--control", await learner.operators(), "--token-file", str(tmp_path / "token"))

        async def run(*words: str) -> int:
            parsed = build_parser().parse_args(["set", *words, *known])
            code: int = await asyncio.to_thread(parsed.run, parsed)
            return code

        assert await run("beta=0.1", " A.lambd = 0.9=") == ExitCode.OK
        assert await run("--undo") == ExitCode.OK
        assert learner.hooks.calls == ["{'beta': '0.1', 'A.lambd': '0.9='} by operator", "undo by operator"]
        said = capsys.readouterr().out.splitlines()  # with the learner's log
        assert [line for line in said if " was " in line or "nothing" in line] == [
            "beta is 0.1, was 1",
            "A.lambd is 0.9=, was 1",
            "nothing changed: these are the values already",
        ]
        for words in ((), ("beta=1", "beta=2"), ("=1",), ("beta=1", "--undo"), ("run", "beta")):
            with pytest.raises(UserError, match="KEY=VALUE") as caught:
                await run(*words)
            assert caught.value.exit_code is ExitCode.USAGE
        learner.hooks.error = SettingRefused("batch_size cannot change while the run trains")
        with pytest.raises(UserError, match="batch_size cannot change") as caught:
            await run("batch_size=1")
        assert caught.value.exit_code is ExitCode.USAGE


async def test_an_actor_that_is_away_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Status names the actors that went away, and says for how long."""
    async with running() as learner, Actor(learner.server.port, name="rig 7") as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk())
        learner.end_lease(actor)
        learner.hooks.view = learner.run_status.run_view(RunState.TRAINING, NOBODY)
        control = await learner.operators()
        assert await ended("status", "--control", control) == (ExitCode.OK, "")
        assert re.search(r"actor rig 7 away for 0:\d\d:\d\d, may return to its session", capsys.readouterr().out)
        assert await ended("status", "--json", "--control", control) == (ExitCode.OK, "")
        assert json.loads(capsys.readouterr().out)["away"][0]["actor_name"] == "rig 7"


async def test_what_the_learner_refuses_is_told(tmp_path: Path) -> None:
    """A refused command shows the learner's message."""
    async with running(identity=KNOWING) as learner:
        learner.hooks.error = CheckpointFailed("the disk is full")
        with pytest.raises(UserError, match="the disk is full") as caught:
            await call(learner, tmp_path, Operator.save_checkpoint)
        assert caught.value.exit_code is ExitCode.NOT_SAVED


async def test_a_port_that_is_not_for_operators() -> None:
    """The actors' address refuses operators' commands."""
    async with running() as learner:
        address = f"127.0.0.1:{learner.server.port}"
        with pytest.raises(UserError, match=address) as caught:
            await asyncio.to_thread(Operator(address).pause)
        assert caught.value.exit_code is ExitCode.PROTOCOL_MISMATCH


def test_a_learner_that_is_not_there() -> None:
    """An address without a learner fails soon and is named."""
    said = f"no learner answers at {NOBODY}; if it was killed, start it again with the learner's --resume"
    with pytest.raises(UserError, match=said) as caught:
        Operator(NOBODY).pause()
    assert caught.value.exit_code is ExitCode.UNREACHABLE


class Stranger(http.server.ThreadingHTTPServer):
    """Holds the port of a killed learner, and answers every request.

    Args:
        prove: Returns its answer to a nonce and a claim.

    Attributes:
        heard: Path and headers of each request.
    """

    def __init__(self, prove: Callable[[bytes, bytes], bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.heard: list[tuple[str, dict[str, str]]] = []
        self.prove = prove


class _Answers(http.server.BaseHTTPRequestHandler):
    server: Stranger

    def do_GET(self) -> None:
        """Answers a request."""
        parts = urlsplit(self.path)
        self.server.heard.append((parts.path, {name.lower(): value for name, value in self.headers.items()}))
        document = {}
        if parts.path == "/api/prove":
            nonce, claim = (bytes.fromhex(parse_qs(parts.query)[name][0]) for name in ("nonce", "claim"))
            document = {"proof": self.server.prove(nonce, claim).hex()}
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name is that of the library

    def log_message(self, *_arguments: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def holding(prove: Callable[[bytes, bytes], bytes]) -> Iterator[tuple[Stranger, int]]:
    """Lets a stranger hold a port."""
    with Stranger(prove) as stranger:
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        try:
            yield stranger, stranger.server_address[1]
        finally:
            stranger.shutdown()
            thread.join()


COMMANDS: dict[str, Callable[[Operator], object]] = {
    "status": Operator.status,
    "healthcheck": Operator.accepts_actors,
    "pause": Operator.pause,
    "resume": Operator.resume,
    "save": Operator.save_checkpoint,
    "drain": lambda operator: operator.drain(final=True),
    "release": lambda operator: operator.release("rig 7", None),
    "set": lambda operator: operator.set({"learning_rate": "1"}),
    "page": Operator.prove,
}


def test_each_command_to_a_learner_meets_strangers() -> None:
    """`COMMANDS` has every command that watches or steers a learner that runs."""
    group = rollcast.console.COMMANDS["pause"].group
    assert {name for name, each in rollcast.console.COMMANDS.items() if each.group == group} == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("prove", [lambda _nonce, _claim: b"", lambda _nonce, claim: claim], ids=["silent", "echo"])
def test_a_stranger_at_the_port_gets_no_token(
    tmp_path: Path, command: Callable[[Operator], object], prove: Callable[[bytes, bytes], bytes]
) -> None:
    """No command sends the token to whoever does not prove that it knows it."""
    token_of_run(tmp_path)
    with holding(prove) as (stranger, port):
        bound = BoundAddresses("127.0.0.1:1", f"127.0.0.1:{port}", token=str(tmp_path / TOKEN_FILE))
        with pytest.raises(UserError, match="does not know the token") as caught:
            command(Operator.of(bound))
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    assert [path for path, _ in stranger.heard] == ["/api/prove"]
    assert all("authorization" not in headers for _, headers in stranger.heard)


async def test_only_the_learner_of_the_port_proves_itself(tmp_path: Path) -> None:
    """A learner gets the token that it knows, refuses others, and proves nothing for a stranger at another port."""
    token = token_of_run(tmp_path).reveal()
    access = Access(own=[own_row("operator", Role.OPERATOR, token)])
    async with running(identity=Identity(access)) as learner:
        own = ClientSecurity(token_file=tmp_path / TOKEN_FILE)
        address = await learner.operators()

        def pause(where: str, security: ClientSecurity) -> None:
            Operator(where, security=security).pause()

        def relay(nonce: bytes, claim: bytes) -> bytes:
            with contextlib.closing(HTTPConnection(*split_address(address))) as connection:
                connection.request("POST", f"/api/prove?nonce={nonce.hex()}&claim={claim.hex()}")
                return bytes.fromhex(json.loads(connection.getresponse().read()).get("proof", ""))

        await asyncio.to_thread(pause, address, own)
        assert learner.hooks.calls == ["pause"]
        (tmp_path / "other").write_text("x" * 32)
        with pytest.raises(UserError, match="the token is unknown") as caught:
            await asyncio.to_thread(pause, address, ClientSecurity(token_file=tmp_path / "other"))
        assert caught.value.exit_code is ExitCode.NOT_ALLOWED
        with holding(relay) as (stranger, port), pytest.raises(UserError, match="does not know the token"):
            await asyncio.to_thread(pause, f"127.0.0.1:{port}", own)
        assert [path for path, _ in stranger.heard] == ["/api/prove"]
        assert learner.hooks.calls == ["pause"]


@pytest.fixture
def hold() -> Iterator[Callable[[Path], None]]:
    """Takes folders as their learners do, until the end of the test."""
    with contextlib.ExitStack() as held:

        def take(folder: Path) -> None:
            held.callback(FolderLock(folder).release)

        yield take


@pytest.fixture
def results(tmp_path: Path, hold: Callable[[Path], None]) -> Path:
    """Makes a folder with two runs, the second of which has a learner."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    hold(tmp_path / "second")
    write_addresses(tmp_path / "second", BoundAddresses("127.0.0.1:10", "127.0.0.1:11"))
    return tmp_path


def test_the_address_is_found(results: Path) -> None:
    """The address is the given one, that of the run's folder, or that of the only learner."""
    assert Operator.find(NOBODY, "first", results).address == NOBODY
    assert Operator.find(None, "second", results).address == "127.0.0.1:11"
    assert Operator.find(None, None, results).address == "127.0.0.1:11"
    assert Operator.find(None, str(results / "second"), Path("elsewhere")).address == "127.0.0.1:11"


@pytest.mark.parametrize("which", [["first"], []], ids=["named", "only"])
def test_a_learner_that_waits_for_its_trainers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], which: list[str], hold: Callable[[Path], None]
) -> None:
    """Status and health check say that it runs, so that nothing kills it; other commands fail with the same line."""
    (tmp_path / "first").mkdir()
    hold(tmp_path / "first")
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        write_awaited(tmp_path / "first", AwaitedAddress("name", address))
        line = ["--results-dir", str(tmp_path)]
        said = f"the learner of {tmp_path / 'first'} runs and waits for its trainers at {address}"
        for command in ("status", "healthcheck"):
            assert main([command, *which, *line]) == ExitCode.OK
            assert said in capsys.readouterr().out
        for other in (["pause", *which], ["status", "--json", *which]):
            assert main([*other, *line]) == ExitCode.UNREACHABLE
            assert said in capsys.readouterr().err
    assert main(["healthcheck", *which, *line]) == ExitCode.UNREACHABLE
    assert "no learner answers at" in capsys.readouterr().err


def test_a_learner_that_starts_its_trainers_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status and health check say so while a learner has the folder; what a killed one left says nothing."""
    write_addresses(tmp_path, BoundAddresses("127.0.0.1:10", "127.0.0.1:11"))
    write_awaited(tmp_path, STARTS_AGAIN)
    lock = FolderLock(tmp_path)
    for command, code in (("status", 0), ("healthcheck", 0), ("save", 21), ("drain", 21)):
        assert main([command, str(tmp_path)]) == code
        assert "runs and starts its trainers again" in "".join(capsys.readouterr())
    lock.release()
    assert main(["healthcheck", str(tmp_path)]) == ExitCode.UNREACHABLE
    assert "was killed: no process has the folder" in capsys.readouterr().err


class TwoRuns:
    """A killed run ``a`` and a run ``b`` in one folder.

    Args:
        results: Folder of all runs.
        http: Address of the page that both had.
        token: File with the token that both had.
        host: Machine of the killed run.
    """

    def __init__(self, results: Path, http: str, host: str, token: str = "") -> None:
        for name in "ab":
            (results / name).mkdir()
            here = host if name == "a" else platform.node()
            where = BoundAddresses(NOBODY, http, token=token, run_id=name, host=here)
            write_addresses(results / name, where)
        FolderLock(results / "a").release()  # the system does so for a killed process
        (results / "a" / LOCK_NAME).write_text(f"\n{os.getpid()}\n")  # its id has another process
        self.lock = FolderLock(results / "b")


async def ended(*words: str) -> tuple[int, str]:
    """Runs a command in a thread, while the loop serves; returns its exit code and its error."""
    parsed = build_parser().parse_args(words)
    try:
        return await asyncio.to_thread(parsed.run, parsed), ""
    except UserError as error:
        return error.exit_code, error.message


@asynccontextmanager
async def second_run(results: Path) -> AsyncIterator[None]:
    """Serves run ``b`` at the addresses of a killed run ``a``."""
    token = results / "token"
    token.write_text(PAGE_TOKEN)
    async with running(identity=KNOWING) as learner:
        learner.hooks.view = replace(learner.run_status.run_view(learner.hooks.view.state, NOBODY), run_id="b")
        both = TwoRuns(results, await learner.operators(), platform.node(), str(token))
        yield
        both.lock.release()


async def test_a_killed_run_is_not_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose learner was killed is named as such by all commands, also if another learner has its port."""
    line = ["--results-dir", str(tmp_path)]
    async with second_run(tmp_path):
        for command in ("status", "healthcheck", "page", "pause"):
            assert await ended(command, *line) == (ExitCode.OK, "")
        assert "run b" in capsys.readouterr().out
        for command in ("status", "healthcheck", "page", "pause", "drain"):
            code, said = await ended(command, "a", *line)
            assert code == ExitCode.UNREACHABLE
            assert "was killed: no process has the folder" in said


def without_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the lock of a folder as on a file system that has none."""
    look = lock_module._open_to_look

    def fails(path: Path) -> int:
        if path.parent == folder:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        return look(path)

    monkeypatch.setattr(lock_module, "_open_to_look", fails)


@pytest.mark.parametrize("ignored", [(), (".*",)], ids=["all", "without hidden files"])
async def test_a_copy_does_not_steer_the_run_it_was_copied_from(tmp_path: Path, ignored: tuple[str, ...]) -> None:
    """The addresses in a copy are those of the original, which commands that name the copy must not reach."""
    line = ["--results-dir", str(tmp_path)]
    async with second_run(tmp_path):
        shutil.copytree(tmp_path / "b", tmp_path / "copy", ignore=shutil.ignore_patterns(*ignored))
        for command in ("status", "healthcheck", "page", "pause", "drain"):
            code, said = await ended(command, "copy", *line)
            assert code == ExitCode.UNREACHABLE
            assert "was copied or moved here, and no learner has had it in this place" in said
        assert await ended("status", *line) == (ExitCode.OK, "")


async def test_a_folder_without_locks_is_judged_by_the_run_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lock says nothing, the learner at the port must have the run."""
    line = ["--results-dir", str(tmp_path)]
    async with second_run(tmp_path):
        without_lock(tmp_path / "a", monkeypatch)
        for command in ("status", "healthcheck", "pause", "drain"):
            code, said = await ended(command, "a", *line)
            assert code == ExitCode.UNREACHABLE
            assert "has run b, not a" in said
        assert await ended("status", *line) == (ExitCode.OK, "")


@pytest.mark.parametrize("has_lock", [True, False], ids=["lock", "no lock"])
def test_a_run_of_another_machine(
    tmp_path: Path, has_lock: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner that another machine started in a shared folder is not sought on this one."""
    both = TwoRuns(tmp_path, "127.0.0.1:12", "far-away")
    if not has_lock:
        without_lock(tmp_path / "a", monkeypatch)
    assert find_running(None, tmp_path)[0] == tmp_path / "b", "it is known to run"
    for command in ("status", "page"):
        assert main([command, "a", "--results-dir", str(tmp_path)]) == ExitCode.UNREACHABLE
        assert "was started on far-away and its status page is reached only there" in capsys.readouterr().err
    write_addresses(tmp_path / "a", BoundAddresses(NOBODY, "far.example:11", run_id="a", host="far-away"))
    assert find_running("a", tmp_path)[1].http == "far.example:11"
    both.lock.release()


@pytest.mark.parametrize("command", ["status", "pause", "healthcheck", "page"])
def test_a_learner_that_does_not_listen_yet_is_starting(
    tmp_path: Path, command: str, hold: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A learner has its folder before it listens and after it has stopped to; commands say so, by name or without."""
    run = run_folder(tmp_path, "run", events=[{"event": "finished", "reason": "signal", "generation": 1}])
    os.utime(run / JOURNAL_FILE, (1.0, 1.0))
    hold(run)
    for which in ([], ["run"]):
        assert main([command, *which, "--results-dir", str(tmp_path)]) == ExitCode.UNREACHABLE
        assert f"the learner of {run} is starting and does not listen yet" in capsys.readouterr().err
    assert list_runs(tmp_path)[0].state == "starting"
    os.utime(run / JOURNAL_FILE)
    assert main([command, "--results-dir", str(tmp_path)]) == ExitCode.UNREACHABLE
    assert "is ending and no longer listens" in capsys.readouterr().err
    assert list_runs(tmp_path)[0].state == "ending"


def test_no_address_is_found(results: Path, hold: Callable[[Path], None]) -> None:
    """Without a learner, or with several, the error says what to give."""
    with pytest.raises(UserError, match="first") as caught:
        Operator.find(None, "first", results)
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    write_addresses(results / "first", BoundAddresses("127.0.0.1:12", "127.0.0.1:13"))
    (results / "damaged").mkdir()
    hold(results / "first")
    hold(results / "damaged")
    (results / "damaged" / ADDRESS_FILE).write_text("no JSON")
    end = {"event": "finished", "reason": "target_return", "generation": 1}
    run_folder(results / "ended", "cartpole", events=[end])
    for run, folder, said, code in (
        (None, results, "3 running learners .*: damaged, first, second; name one of them as", ExitCode.USAGE),
        (None, results / "empty", "no running learner .* rollcast serve RUN.yaml", ExitCode.UNREACHABLE),
        (None, results / "ended", r"\(the newest run, cartpole, is finished: target_return\)", ExitCode.UNREACHABLE),
        ("first", results / "..", "neither first nor .* is a folder", ExitCode.NOTHING_TO_RESUME),
        ("third", results, "there is no run 'third'", ExitCode.NOTHING_TO_RESUME),
        ("damaged", results, "damaged", ExitCode.UNREACHABLE),
    ):
        with pytest.raises(UserError, match=said) as caught:
            Operator.find(None, run, folder)
        assert caught.value.exit_code is code


@pytest.mark.parametrize("command", ["status", "pause", "resume", "save", "drain", "healthcheck", "page"])
def test_a_command_takes_the_folder_of_a_run(results: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command accepts a path or an id below --results-dir."""
    for run in (str(results / "second"), "second"):
        write_addresses(results / "second", BoundAddresses("127.0.0.1:10", NOBODY))
        assert main([command, run, "--results-dir", str(results)]) == ExitCode.UNREACHABLE
        assert NOBODY in capsys.readouterr().err
    assert main([command, str(results / "first")]) == ExitCode.UNREACHABLE
    assert "first/address.json does not exist" in capsys.readouterr().err
    assert main([command, "second", "--run-id", "second", "--results-dir", str(results)]) == ExitCode.USAGE
    assert "give only one" in capsys.readouterr().err


@pytest.fixture
def listening() -> Iterator[str]:
    """Returns an address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def folder_of(hold: Callable[[Path], None]) -> Callable[..., Path]:
    """Returns a function that makes a run folder with the address of the status page."""

    def make(results: Path, address: str, name: str = "run") -> Path:
        folder = results / name
        folder.mkdir()
        hold(folder)
        write_addresses(folder, BoundAddresses("127.0.0.1:1", address))
        return folder

    return make


def test_the_link_has_the_token(
    tmp_path: Path, listening: str, folder_of: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The token is in the link's fragment, which browsers do not send; one that cannot be read is mentioned.

    For a learner on all addresses the link has a loopback address.
    """
    folder = folder_of(tmp_path, f"0.0.0.0:{listening.rpartition(':')[2]}")
    assert page_link(None, tmp_path) == f"http://{listening}/", "the page asks for it"
    token = token_of_run(folder).reveal()
    with pytest.raises(UserError, match="did not answer in time"):
        page_link(None, tmp_path)

    def prove(nonce: bytes, _claim: bytes) -> bytes:
        return proof_of("learner", token_hash(token), nonce, port)

    with holding(prove) as (_, port):
        where = BoundAddresses("127.0.0.1:1", f"0.0.0.0:{port}", token=str(folder / TOKEN_FILE))
        write_addresses(folder, where)
        assert page_link(None, tmp_path) == page_link("run", tmp_path) == f"http://127.0.0.1:{port}/#token={token}"
        assert main(["page", "--results-dir", str(tmp_path)]) == ExitCode.OK
        assert capsys.readouterr().out == f"http://127.0.0.1:{port}/#token={token}\n"
        write_addresses(folder, replace(where, page="0.0.0.0:18464"))
        assert page_link(None, tmp_path) == f"http://127.0.0.1:18464/#token={token}", "the published port"
        (folder / TOKEN_FILE).chmod(0o644)
        with pytest.raises(UserError, match="readable only by the user who runs the learner"):
            page_link(None, tmp_path)


def test_who_cannot_be_found(tmp_path: Path, folder_of: Callable[..., Path]) -> None:
    """No learner, several, one without a page and a stopped one have distinct messages."""
    with pytest.raises(UserError, match="no running learner"):
        page_link(None, tmp_path)
    with pytest.raises(UserError, match="there is no run 'run'") as unknown:
        page_link("run", tmp_path)
    assert unknown.value.exit_code is ExitCode.NOTHING_TO_RESUME
    folder_of(tmp_path, "", "silent")
    with pytest.raises(UserError, match=r"rollcast\.http: true"):
        page_link(None, tmp_path)
    folder_of(tmp_path, "127.0.0.1:1", "gone")
    with pytest.raises(UserError, match="--resume") as caught:
        page_link("gone", tmp_path)
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    with pytest.raises(UserError, match="gone, silent; name one of them"):
        page_link(None, tmp_path)


def test_a_terminal_obeys_no_text_of_a_folder(
    tmp_path: Path, hold: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines about a run whose files hold escapes are printable."""
    folder = tmp_path / "r\x1bun"
    folder.mkdir()
    hold(folder)
    write_awaited(folder, STARTS_AGAIN)
    assert main(["status", "--results-dir", str(tmp_path)]) == ExitCode.OK
    assert "r\\x1bun runs" in capsys.readouterr().out
