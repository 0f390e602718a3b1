"""Tests that the commands with which pages show a run over a network work as they are written."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from actor_client.unity.dropin.flags import build_parser as unity_parser
from learner.shared.observe.address import read_addresses
from learner.shared.settings.load import load_run_options
from tests.documents import blocks, commands, section
from tests.e2e.processes import SECONDS, Child, Processes, command_environment, processes_in, wait_until
from tests.e2e.runs import small, write_run
from tests.ports import reserve_ports
from tests.tools.players.build import make_build

PLAYERS = "actor_client/unity/README.md"
OPERATORS = "deploy/README.md"
WINDOWS = "C:\\rollcast\\certs"
ELSEWHERE = "elsewhere"
"""The folder that stands for another machine."""
GAME = "C:\\Builds\\My Game\\Game.exe"


class Site:
    """A folder in which documented commands run.

    Attributes:
        folder: The folder.
        port: The learner's port, in place of 50051.
        python: Starts an interpreter.
        said: What the newest command printed.
    """

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder
        self.port = reserve_ports()
        self.said = ""
        self.python = processes.python
        (folder / ELSEWHERE).mkdir()
        write_run(folder, {"CartPole": small()}).rename(folder / "run.yaml")

    def words(self, line: list[str]) -> list[str]:
        """Returns a command with the places of this machine."""
        places = {
            "learner.example": "localhost",
            "0.0.0.0:50051": f"127.0.0.1:{self.port}",
            WINDOWS: str(self.folder / "windows"),
            GAME: str(self.folder / "My Game" / "Game.exe"),
        }
        rollcast, *found = (places.get(word, word) for word in line)
        assert rollcast == "rollcast"
        return found

    def does(self, line: list[str], *more: str, words: str = "", where: str = "", code: int = 0) -> None:
        """Runs a command to its end, with words as its input, in a folder within the folder."""
        done = subprocess.run(
            [sys.executable, "-m", "rollcast", *self.words(line), *more],
            input=words,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd=self.folder / where,
            env=command_environment(),
        )
        assert done.returncode == code, (line, done.stdout, done.stderr)
        self.said = done.stdout + done.stderr

    def starts(self, line: list[str], *more: str, where: str = "") -> Child:
        """Starts a command in a folder within the folder."""
        command = ("-m", "rollcast", *self.words(line), *more)
        return self.python("-".join(line[1:3]), *command, cwd=self.folder / where)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Returns a folder for commands, whose processes end with the test."""
    with processes_in(tmp_path, cwd=tmp_path) as processes:
        yield Site(tmp_path, processes)


def windows_commands() -> list[list[str]]:
    """Returns the commands for Windows, whose shell leaves backslashes alone."""
    (block,) = blocks(section(PLAYERS, "With TLS"), "powershell")
    quoted = (line.replace(f'"{GAME}"', GAME.replace(" ", "\0")).split() for line in block.splitlines())
    return [[word.replace("\0", " ") for word in words] for words in quoted if words[0] == "rollcast"]


def says(child: Child, words: str) -> bool:
    """Returns whether a command that runs has logged some words."""
    assert child.is_running, child.said()
    return words in child.err()


def ends(child: Child) -> None:
    """Ends a command as Ctrl-C does."""
    child.signal(signal.SIGINT)
    assert child.wait() == 0, child.said()


def test_players_join_over_tls(site: Site) -> None:
    """Certificates, a join code, a learner, an editor and builds on two systems: all train with the printed commands."""
    init, serve, join, editor, build, token, own, unity = (
        words for words in commands(section(PLAYERS, "With TLS")) if words[0] == "rollcast"
    )
    site.does(init, "--port", str(site.port))
    code = site.said.splitlines()[-1]
    learner = site.starts(serve, "--http-address", "127.0.0.1:0")
    site.does(join, words=f"{code}\n", where=ELSEWHERE)
    windows_join, windows_editor, windows_build = windows_commands()
    site.does(token)
    (token_code,) = (word for word in site.said.split() if len(word) > 100)
    site.does(windows_join, words=f"{token_code}\n", where=ELSEWHERE)
    make_build(site.folder, "--agents", "2")
    make_build(site.folder / ELSEWHERE, "--agents", "2")
    make_build(site.folder / "My Game", "--agents", "2", name="Game")
    for number, line in enumerate((editor, windows_editor, build, windows_build)):
        ports = reserve_ports(4)
        more = ("--base-port", str(ports), "--metrics-address", "off", "--name", f"player-{number}")
        gateway = site.starts(line, *more, where=ELSEWHERE)
        if "--env" not in line:
            play = ("-m", "tests.tools.players", "--mlagents-port", str(ports), "--decisions", "100", "--wait", "60")
            assert site.python(f"editor-{number}", *play).wait() == 0, gateway.said()
        wait_until(partial(says, learner, f"actor=player-{number} "), "it joins", said=gateway.said)
        ends(gateway)
    ends(learner)
    site.does(own, words=f"{code}\n")
    line = [*unity, "--resume", "--http-address", "127.0.0.1:0", "--base-port", str(reserve_ports())]
    both = site.starts(line, "--metrics-address", "off")
    wait_until(lambda: says(both, " connected "), "its gateway is let in", said=both.said)
    ends(both)


def opener(trusted: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Returns what opens links without a proxy."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted))


@pytest.mark.parametrize("tls", [False, True])
def test_an_operator_works_from_another_machine(site: Site, tls: bool) -> None:
    """`status` and `pause` work with the port of the page, a copied token and, with TLS, the authority; without the token, `pause` does not."""
    page = section(OPERATORS, "Operate from another machine")
    serve, install, copy, tunnel, status, link = commands(page)
    assert install[:3] == ["pip", "install", "."]
    port = str(reserve_ports())
    assert f"{serve[serve.index('--http-address') + 1]}" == "127.0.0.1:9464"
    assert tunnel.count("9464:127.0.0.1:9464") == 1, "a token in plain text is proved for one port"
    (item,) = (each.split()[1] for each in page.split("`") if each.startswith("--set "))
    assert unity_parser().parse_args(["--set", item]).set == [item]
    assert item.partition("=")[2] in serve
    assert load_run_options(None, set_items=["behaviors.A.trainer_type=ppo", item]).sources[item.partition("=")[0]]

    def here(words: list[str]) -> list[str]:
        return [word.replace("9464", port).replace("RUN.yaml", "run.yaml") for word in words]

    certs: tuple[str, ...] = ()
    if tls:
        site.does(["rollcast", "certs", "init", "certs"])
        (made,) = (each for each in page.split("`") if each.startswith("rollcast certs token"))
        site.does(made.replace("NAME", "me").split())
        certs = ("--certs", "certs")
    learner = site.starts(here(serve), "--address", "127.0.0.1:0", *certs)
    folder = site.folder / "results" / "walker"
    wait_until(lambda: learner.is_running and read_addresses(folder), "it listens", said=learner.said)
    mine = site.folder / ELSEWHERE  # without `results`, in which commands would find the learner's own token
    program, source, target = copy
    assert (program, source.partition(":")[0]) == ("scp", "LEARNER")
    source = "token" if tls else source.partition(":DIR/")[2]
    (mine / target).write_bytes((site.folder / source).read_bytes())
    authority: tuple[str, ...] = ()
    if tls:
        assert "copy the learner's `certs/ca.pem` too, add `--tls-ca ca.pem`" in page
        (mine / "ca.pem").write_bytes((site.folder / "certs" / "ca.pem").read_bytes())
        authority = ("--tls-ca", "ca.pem")
    line = here(status)
    site.does(line, *authority, where=ELSEWHERE)
    assert "walker" in site.said
    for command in ("pause", "resume"):
        assert command in page
        site.does([line[0], command, *line[2:]], *authority, where=ELSEWHERE)
    site.does([line[0], "pause", "--control", f"127.0.0.1:{port}"], *authority, where=ELSEWHERE, code=22)
    assert "token" in site.said
    assert link[:2] == ["ssh", "LEARNER"]
    assert link[2] == "DIR/.venv/bin/rollcast"
    site.does(["rollcast", *(word.replace("DIR", str(site.folder)) for word in link[3:])], where=ELSEWHERE)
    assert "#token=" in site.said
    url = site.said.partition("#")[0].split()[-1]
    assert url.startswith("https://" if tls else "http://")
    trusted = ssl.create_default_context(cafile=mine / "ca.pem") if tls else None
    with opener(trusted).open(f"{url}healthz", timeout=SECONDS) as answer:
        assert answer.status == 200
    ends(learner)
