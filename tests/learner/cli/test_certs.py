"""Tests of the commands that make certificates and tokens, and of joining with their codes."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rollcast.auth import JoinCode, Principal, Role, parse_tokens
from rollcast.server_tls import expiry

from actor_client import cli as actor_cli
from actor_client.exits import ExitCode as ActorCode
from learner.cli import certs
from learner.cli.certs_flags import add_certs
from learner.cli.cli import main
from learner.service.identity.authority import ALWAYS, hosts_of
from learner.shared.exits import ExitCode

DAY = 86400.0


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Returns a folder made by `certs init`."""
    assert main(["certs", "init", str(tmp_path / "certs"), "--host", "learner.example", "10.1.2.3"]) == ExitCode.OK
    return tmp_path / "certs"


def test_init_makes_everything(folder: Path) -> None:
    """The certificate has all names, secrets are private, and the token file has a hash."""
    assert {"learner.example", "10.1.2.3", *ALWAYS} <= set(hosts_of(folder))
    for name in ("server.key", "tokens", "authority/ca.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    rows = parse_tokens((folder / "tokens").read_text()).rows
    assert [row.principal for row in rows] == [Principal("actors", Role.ACTOR)]
    days = (expiry((folder / "server.pem").read_bytes()) - time.time()) / DAY
    assert 364 < days < 366


def test_init_replaces_no_authority(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second init is refused, because clients trust the first authority."""
    assert main(["certs", "init", str(folder)]) == ExitCode.USAGE
    assert "certs renew" in capsys.readouterr().err


def test_names_and_clients(folder: Path, tmp_path: Path) -> None:
    """Certificates have international names in their form, and names longer than an authority's; clients have a folder."""
    long = f"{'learner-' * 7}.cluster.local"
    assert main(["certs", "init", str(tmp_path / "c"), "--host", long, "bücher.example"]) == ExitCode.OK
    assert hosts_of(tmp_path / "c")[:2] == [long, "xn--bcher-kva.example"]
    assert main(["certs", "client", str(folder), "lab"]) == ExitCode.OK
    assert {path.name for path in (folder / "clients" / "lab").iterdir()} == {"ca.pem", "client.pem", "client.key"}
    assert stat.S_IMODE((folder / "clients" / "lab" / "client.key").stat().st_mode) == 0o600


def test_an_init_that_failed_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An init that could not write one of its files can be repeated."""
    folder = tmp_path / "certs"
    for name in ("server.key", "tokens", "ca.pem"):
        (folder / name).mkdir(parents=True)
        assert main(["certs", "init", str(folder)]) in {ExitCode.NOT_SAVED, ExitCode.USAGE}
        (folder / name).rmdir()
    assert main(["certs", "init", str(folder)]) == ExitCode.OK
    code = JoinCode.decode(capsys.readouterr().out.splitlines()[-1])
    assert parse_tokens((folder / "tokens").read_text()).find(code.token, time.time()) == Principal(
        "actors", Role.ACTOR
    )
    assert main(["certs", "renew", str(folder)]) == ExitCode.OK


def test_renew_keeps_the_names(folder: Path) -> None:
    """A renewed certificate has the old names and further ones, and a key of its own."""
    old_key, old_names = (folder / "server.key").read_bytes(), set(hosts_of(folder))
    assert main(["certs", "renew", str(folder), "--host", "second.example", "--days", "2"]) == ExitCode.OK
    assert set(hosts_of(folder)) == {*old_names, "second.example"}
    assert (folder / "server.key").read_bytes() != old_key
    assert expiry((folder / "server.pem").read_bytes()) < time.time() + 3 * DAY


def test_tokens_are_added(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A token is printed, or written to a private file, and the file holds only its hash."""
    capsys.readouterr()
    limits = ["--max-sessions", "2", "--behaviors", "A,B", "--not-after", "2999-01-01"]
    assert main(["certs", "token", str(folder), "lab", *limits]) == ExitCode.OK
    said = capsys.readouterr()
    printed = said.out.strip()
    assert said.err == "a running learner takes it within 6 s\n", "the token alone is on standard output"
    assert (
        main(["certs", "token", str(folder), "eyes", "--role", "viewer", "--output", str(tmp_path / "t")])
        == ExitCode.OK
    )
    written = (tmp_path / "t").read_text().strip()
    assert stat.S_IMODE((tmp_path / "t").stat().st_mode) == 0o600
    text = (folder / "tokens").read_text()
    table = parse_tokens(text)
    assert table.find(printed, time.time()) == Principal("lab", Role.ACTOR, 2, frozenset({"A", "B"}))
    assert table.find(written, time.time()) == Principal("eyes", Role.VIEWER)
    assert printed not in text
    assert written not in text + capsys.readouterr().out


def test_a_token_that_cannot_be_written_is_not_valid(folder: Path, tmp_path: Path) -> None:
    """A token that its command could not hand over is not in the token file."""
    before = (folder / "tokens").read_bytes()
    assert main(["certs", "token", str(folder), "lab", "--output", str(tmp_path / "none" / "x")]) == ExitCode.NOT_SAVED
    assert (folder / "tokens").read_bytes() == before


@pytest.mark.parametrize("held", ["viewer", "run file", "another learner's token", "key", "data after lines"])
def test_a_token_replaces_nothing_of_another(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], held: str
) -> None:
    """A file that holds anything but a token of the same principal is kept, and no token is added."""
    output = tmp_path / "t"
    texts = {"run file": "behaviors: {}\n", "another learner's token": "a-token-of-another-learner\n"}
    texts["data after lines"] = "\n" * 1024 + "data"
    if held == "key":
        output = folder / "server.key"
    elif held in texts:
        output.write_text(texts[held])
    else:
        eyes = ["certs", "token", str(folder), "eyes", "--role", "viewer", "--output", str(output)]
        assert main(eyes) == ExitCode.OK
    before = output.read_bytes(), (folder / "tokens").read_bytes()
    capsys.readouterr()
    assert main(["certs", "token", str(folder), "lab", "--output", str(output)]) == ExitCode.USAGE
    assert (output.read_bytes(), (folder / "tokens").read_bytes()) == before
    said = capsys.readouterr().err
    assert (
        f"error: --output {output} {'cannot be replaced' if held == 'data after lines' else 'exists and holds'}" in said
    )
    if held == "viewer":
        assert "the token of a viewer, eyes, which actor lab would replace" in said


def test_a_token_of_the_same_principal_is_replaced(folder: Path, tmp_path: Path) -> None:
    """A new token takes the place of the same principal's, also an expired one; an empty file is free."""
    output = tmp_path / "t"
    output.touch()
    for limits in ([], ["--not-after", "2999-01-01"], ["--max-sessions", "2"]):
        before = output.read_text()
        assert main(["certs", "token", str(folder), "lab", "--output", str(output), *limits]) == ExitCode.OK
        assert output.read_text() != before
        tokens = folder / "tokens"
        tokens.write_text(tokens.read_text().replace("2999-01-01", "2001-01-01"))


def test_a_certificate_replaces_none_of_another_role(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client's certificate is renewed in its folder, and not replaced by that of a principal of another role."""
    client = ["certs", "client", str(folder), "lab", "--role"]
    assert [main([*client, role]) for role in ("actor", "actor", "operator")] == [0, 0, ExitCode.USAGE]
    assert "has the certificate of an actor, lab, and --role is operator" in capsys.readouterr().err


def test_join_replaces_only_its_own(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join code replaces the folder of an earlier one of the same learner, and neither the learner's nor another's."""

    def code(certs: Path) -> str:
        capsys.readouterr()
        assert main(["certs", "token", str(certs), "lab", "--join"]) == ExitCode.OK
        return capsys.readouterr().out

    def join(target: Path, said: str) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(said))
        return actor_cli.main(["join", str(target)])

    mine = tmp_path / "mine"
    assert [join(mine, code(folder)), join(mine, code(folder))] == [ActorCode.OK, ActorCode.OK]
    before = {path: path.read_bytes() for base in (mine, folder) for path in base.rglob("*") if path.is_file()}
    said = code(folder)
    before[folder / "tokens"] = (folder / "tokens").read_bytes()
    assert join(folder, said) == ActorCode.USAGE
    assert f"{folder} is the folder of rollcast certs init" in capsys.readouterr().err
    assert main(["certs", "init", str(tmp_path / "other"), "--host", "second.example"]) == ExitCode.OK
    assert join(mine, code(tmp_path / "other")) == ActorCode.USAGE
    assert "is for the learner at learner.example:50051" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
    assert join(tmp_path / "mine-too", said) == ActorCode.OK


@pytest.mark.parametrize(
    "held",
    [
        ("token", "a-token-of-a-trainer\n", "token was not written by a join code of this actor"),
        ("token", "", "token was not written"),
        ("token", None, "token cannot be replaced (not a regular file)"),
        ("learner", "a file of mine", "learner was not written"),
        ("learner", None, "learner cannot be replaced (not a regular file)"),
        ("ca.pem", "-----BEGIN CERTIFICATE-----", "is of another authority"),
        ("ca.pem", None, "ca.pem cannot be replaced"),
        ("principal", "other\n", "is of the actor other, and the code of lab"),
    ],
)
def test_join_replaces_nothing_of_another(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    held: tuple[str, str | None, str],
) -> None:
    """A folder laid out for a trainer, another actor's, and a user's own files are kept, and a pipe is not waited for."""
    name, content, message = held
    assert main(["certs", "token", str(folder), "lab", "--join"]) == ExitCode.OK
    monkeypatch.setattr(sys, "stdin", io.StringIO(capsys.readouterr().out.splitlines()[-1]))
    target = tmp_path / "tr"
    target.mkdir()
    shutil.copy(folder / "ca.pem", target / "ca.pem")
    if content is None:
        (target / name).unlink(missing_ok=True)
        os.mkfifo(target / name)
    else:
        (target / name).write_text(content)
    before = {path: path.read_bytes() for path in target.iterdir() if path.is_file()}
    assert actor_cli.main(["join", str(target)]) == ActorCode.USAGE
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in target.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("address", [None, b"\xff\xfe", b"x" * 10**6])
def test_an_address_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: bytes | None
) -> None:
    """An actor ends with one line if the address in its folder is a pipe, no text, or too long."""
    path = tmp_path / "learner"
    os.mkfifo(path) if address is None else path.write_bytes(address)
    assert actor_cli.main(["gym", "--env", "CartPole-v1", "--certs", str(tmp_path)]) == ActorCode.USAGE
    said = capsys.readouterr().err
    assert f"{path} cannot be read" in said
    assert said.count("\n") == 1


def test_an_output_replaces_files_only(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A token replaces no pipe, no device, no folder and no link to one; of a link to a file, the file is replaced."""
    os.mkfifo(tmp_path / "pipe")
    targets = {"pipe-link": "pipe", "null": "/dev/null", "nowhere": "none", "loop": "loop", "file": "real"}
    for name, target in targets.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "real").touch()
    before = (folder / "tokens").read_bytes()
    for name in ("pipe", "pipe-link", "null", "nowhere", "loop", "certs"):
        kind = (tmp_path / name).lstat().st_mode
        assert main(["certs", "token", str(folder), "lab", "--output", str(tmp_path / name)]) == ExitCode.NOT_SAVED
        said = capsys.readouterr().err
        assert said.startswith(f"error: --output {tmp_path / name} cannot be replaced (")
        assert said.count("\n") == 1
        assert (tmp_path / name).lstat().st_mode == kind
    assert (folder / "tokens").read_bytes() == before
    assert main(["certs", "token", str(folder), "lab", "--output", str(tmp_path / "file")]) == ExitCode.OK
    assert (tmp_path / "file").is_symlink()
    assert (tmp_path / "real").read_text()


@pytest.mark.parametrize("kept", ["server.key", "server.pem", "tokens", "port", "authority/ca.key"])
def test_init_replaces_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: str) -> None:
    """A file that is there is kept, whatever it is: it may be a user's own key."""
    (tmp_path / "c" / "authority").mkdir(parents=True)
    (tmp_path / "c" / kept).write_text("mine")
    assert main(["certs", "init", str(tmp_path / "c")]) == ExitCode.USAGE
    assert f"{tmp_path / 'c' / kept} exists" in capsys.readouterr().err
    assert [path.read_text() for path in (tmp_path / "c").rglob("*") if path.is_file()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("client.pem", None, "has client.key without its certificate"),
        ("client.pem", "/dev/null", "client.pem cannot be read (not a regular file)"),
        ("client.pem", "/dev/zero", "client.pem cannot be read (not a regular file)"),
        ("client.pem", "pipe", "client.pem cannot be read (not a regular file)"),
        ("client.pem", "data", "has no certificate of a client in client.pem"),
        ("client.key", "pipe", "client.key cannot be read (not a regular file)"),
        ("ca.pem", "data", "has the certificate of another authority"),
    ],
)
def test_a_client_replaces_only_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, target: str | None, message: str
) -> None:
    """The files of a client are kept if one is missing, of another form, or of another authority."""
    assert main(["certs", "client", str(folder), "bob", "--role", "viewer"]) == ExitCode.OK
    held = folder / "clients" / "bob"
    os.mkfifo(folder / "pipe")
    (folder / "data").write_text("mine")
    key = (held / "client.key").read_bytes()
    (held / name).unlink()
    if target is not None:
        (held / name).symlink_to(folder / target)
    assert main(["certs", "client", str(folder), "bob", "--role", "operator"]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert (folder / "data").read_text() == "mine"
    assert name == "client.key" or (held / "client.key").read_bytes() == key


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("tokens", ["token", "{}", "lab"]),
        ("ca.pem", ["token", "{}", "lab", "--join"]),
        ("ca.pem", ["client", "{}", "lab"]),
        ("authority/ca.key", ["client", "{}", "lab"]),
        ("server.pem", ["renew", "{}"]),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_pipes_and_devices_end_no_command(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, command: list[str], kind: str
) -> None:
    """A pipe or device in the place of a file is one line, without waiting and without reading it."""
    os.mkfifo(folder / "pipe")
    (folder / file).unlink()
    (folder / file).symlink_to(folder / kind)
    assert main(["certs", *(word.format(folder) for word in command)]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert f"{folder / file} cannot be read" in said
    assert said.count("\n") == 1


def test_tokens_added_at_once(folder: Path) -> None:
    """Commands that run side by side lose no token."""
    names = [f"lab-{number}" for number in range(12)]
    parser = argparse.ArgumentParser()
    add_certs(parser, lambda _: 0)
    commands = [parser.parse_args(["token", str(folder), name]) for name in names]
    with ThreadPoolExecutor(len(names)) as pool:
        assert set(pool.map(certs.token, commands)) == {ExitCode.OK}
    rows = parse_tokens((folder / "tokens").read_text()).rows
    assert {row.principal.name for row in rows} == {"actors", *names}


def test_a_token_file_with_a_mark_of_the_byte_order(folder: Path) -> None:
    """A token is added to a file that an editor on Windows saved."""
    tokens = folder / "tokens"
    tokens.write_text(tokens.read_text(), encoding="utf-8-sig")
    assert main(["certs", "token", str(folder), "lab"]) == ExitCode.OK
    assert len(parse_tokens(tokens.read_text()).rows) == 2


def test_a_join_code_has_the_port_of_init(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A join code has the port that `certs init` was given, unless another one is given."""
    folder = str(tmp_path / "certs")
    assert main(["certs", "init", folder, "--host", "learner.example", "--port", "6000"]) == ExitCode.OK
    for further, port in (([], 6000), (["--port", "7000"], 7000)):
        assert main(["certs", "token", folder, "lab", "--join", *further]) == ExitCode.OK
        assert JoinCode.decode(capsys.readouterr().out.splitlines()[-1]).address == f"learner.example:{port}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["token", "{}", "a b"], "letters, digits"),
        (["token", "{}", "lab", "--not-after", "2001-01-01"], "in the past"),
        (["token", "{}", "actors", "--role", "viewer"], "two roles"),
        (["renew", "{}", "--host", "a:1"], "leave the port out"),
        (["client", "{}/none", "lab"], "cannot be read"),
        (["client", "{}", ".."], "not only dots"),
        (["token", "{}", "."], "not only dots"),
        (["token", "{}/none", "lab"], "cannot be read"),
        (["token", "{}", "eyes", "--role", "viewer", "--join"], "--join is for actors"),
        (["renew", "{}", "--days", "0"], "number of days"),
    ],
)
def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    """A mistake is one line and changes no file."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["certs", *(argument.format(folder) for argument in arguments)]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_joining(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join code makes a folder with address, authority and token, and the token is not shown."""
    assert main(["certs", "token", str(folder), "lab", "--join"]) == ExitCode.OK
    code = capsys.readouterr().out.splitlines()[-1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{code}\n"))
    joined = tmp_path / "joined"
    assert actor_cli.main(["join", str(joined)]) == ActorCode.OK
    token = JoinCode.decode(code).token
    said = capsys.readouterr()
    assert token not in said.out + said.err
    assert (joined / "token").read_text() == f"{token}\n"
    assert stat.S_IMODE((joined / "token").stat().st_mode) == 0o600
    assert (joined / "learner").read_text() == "learner.example:50051\n"
    assert (joined / "ca.pem").read_bytes() == (folder / "ca.pem").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{code[:-9]}\n"))
    assert actor_cli.main(["join", str(joined)]) == ActorCode.USAGE
    assert code[:-9] not in capsys.readouterr().err
