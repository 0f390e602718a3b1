"""Tests the recipes of SECURITY.md: a learner behind nginx, and behind an SSH tunnel, with the real programs."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from rollcast.auth import Role
from rollcast.tls import ClientSecurity

from actor_client.exits import ExitCode
from learner.cli.operator import Operator
from learner.service.identity.authority import save_server
from learner.shared.observe.address import read_addresses
from tests.documents import commands, section
from tests.e2e.processes import LearnerProcess, Processes, wait_until
from tests.e2e.runs import small, write_run
from tests.learner.service.identity.certificates import Folder
from tests.nightly.stack.machine import ROOT
from tests.ports import reserve_ports

pytestmark = pytest.mark.timeout(600)

NAME = "CartPole"
HOST = "learner.example"
CONFIGURATION = ROOT / "deploy" / "nginx" / "rollcast.conf"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns certificates of a learner that is known by one name only, and the token of an actor."""
    made = Folder.make(tmp_path / "certs", lab=Role.ACTOR)
    save_server(made.path, made.authority, [HOST])
    shutil.copy(made.path / "lab.token", made.path / "token")
    return made


def program(name: str) -> str:
    """Returns the path of a program that `.ci/install stack` installs."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert found is not None, f"{name} is not installed; `.ci/install stack` installs it (as root, on Debian)"
    return found


def answers(port: int) -> bool:
    """Returns whether a program listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def trains(learner: LearnerProcess, processes: Processes, address: str, *flags: str) -> None:
    """Checks that an actor that dials an address trains."""
    actor = processes.actor(address, "CartPole-v1", *flags)
    learner.wait_for_version(NAME, 3, actor)
    learner.operator.drain(final=True)
    assert actor.wait() == ExitCode.OK, actor.said()


def test_nginx_ends_tls(processes: Processes, folder: Folder, tmp_path: Path) -> None:
    """With deploy/nginx/rollcast.conf, nginx has the certificate, the learner the tokens, and actors train."""
    outside = reserve_ports()
    run_file = write_run(tmp_path, {NAME: small()})
    learner = processes.learner(run_file, "--token-file", str(folder.path / "tokens"))
    text = CONFIGURATION.read_text()
    for before, after in {
        "listen 50051": f"listen 127.0.0.1:{outside}",
        "127.0.0.1:50052": learner.address,
        "/etc/rollcast/": f"{folder.path}/",
    }.items():
        assert before in re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
        text = text.replace(before, after)
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/nginx.pid; error_log stderr; {'user root;' if os.geteuid() == 0 else ''}\n"
        f"events {{}}\nhttp {{ access_log off; client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy;\n"
        f"fastcgi_temp_path {tmp_path}/fastcgi; uwsgi_temp_path {tmp_path}/uwsgi; scgi_temp_path {tmp_path}/scgi;\n{text}\n}}\n"
    )
    nginx = subprocess.Popen([program("nginx"), "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    try:
        wait_until(lambda: answers(outside), "nginx listens")
        flags = ("--certs", str(folder.path), "--server-name", HOST)
        (folder.path / "none").write_text("a-token-that-nobody-knows\n")
        stranger = processes.actor(
            f"127.0.0.1:{outside}", "CartPole-v1", *flags, "--token-file", str(folder.path / "none"), name="stranger"
        )
        assert stranger.wait() == ExitCode.UNAUTHENTICATED, stranger.said()
        trains(learner, processes, f"127.0.0.1:{outside}", *flags)
    finally:
        nginx.terminate()
        nginx.wait(60)


def tunnel_command(page: str, heading: str) -> list[str]:
    """Returns the words of the `ssh` command of a page that forwards ports."""
    found = [words for words in commands(section(page, heading)) if words[0] == "ssh" and "-L" in words]
    (words,) = found
    return words


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    """Starts an SSH server, and returns the options with which a client reaches it."""
    port = reserve_ports()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "authorized").write_bytes((tmp_path / "client.pub").read_bytes())
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/authorized\n"
        f"PidFile none\nStrictModes no\nPermitRootLogin prohibit-password\nUsePAM no\nAllowTcpForwarding local\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it confines its unprivileged process
    server = subprocess.Popen([program("sshd"), "-D", "-e", "-f", str(tmp_path / "sshd_config")])
    options = ["-p", str(port), "-i", str(tmp_path / "client"), "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes"]
    options += ["-o", f"UserKnownHostsFile={tmp_path / 'known'}", "-F", "none"]
    try:
        wait_until(lambda: answers(port), "sshd listens")
        yield options
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def tunnel(options: list[str], words: list[str], places: Mapping[str, str], port: int) -> Iterator[None]:
    """Opens a tunnel by a command of a page, with places of this machine, until a port listens; closes it after the block."""
    program_, *rest = words
    foreground = {"-fN": "-N"}  # so that it can be ended
    line = [places.get(word, foreground.get(word, word)) for word in rest]
    process = subprocess.Popen([program_, *options, *line])
    try:
        wait_until(lambda: answers(port), "the tunnel listens")
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_an_ssh_tunnel(processes: Processes, folder: Folder, ssh: list[str], tmp_path: Path) -> None:
    """Through a tunnel, the name in the certificate is given with `--server-name`; without it the actor says what is wrong."""
    learner = processes.learner(write_run(tmp_path, {NAME: small()}), "--certs", str(folder.path))
    inside = reserve_ports()
    places = {"LEARNER": f"{getpass.getuser()}@127.0.0.1", "50051:127.0.0.1:50051": f"{inside}:{learner.address}"}
    with tunnel(ssh, tunnel_command("SECURITY.md", "Through a tunnel or a proxy"), places, inside):
        wrong = processes.actor(f"127.0.0.1:{inside}", "CartPole-v1", "--certs", str(folder.path), name="wrong")
        assert wrong.wait() == ExitCode.UNTRUSTED, wrong.said()
        assert "other names than" in wrong.said()
        flags = ("--certs", str(folder.path), "--server-name", HOST)
        bound = read_addresses(learner.folder)
        assert bound is not None
        learner._operator = Operator.of(bound, ClientSecurity(server_name=HOST))
        trains(learner, processes, f"127.0.0.1:{inside}", *flags)


def test_an_operator_s_tunnel(processes: Processes, ssh: list[str], tmp_path: Path) -> None:
    """The printed tunnel carries the commands of an operator and the page, in plain text too; its port has equal numbers."""
    http, away = reserve_ports(), "127.0.0.3"  # another address of this machine stands for the learner's machine
    learner = processes.learner(
        write_run(tmp_path, {NAME: small()}),
        "--http-address",
        f"{away}:{http}",
    )
    assert learner.address
    token = tmp_path / "copied"
    token.write_bytes((learner.folder / "operator_token").read_bytes())
    token.chmod(0o600)
    words = tunnel_command("deploy/README.md", "Operate from another machine")
    places = {
        "LEARNER": f"{getpass.getuser()}@127.0.0.1",
        "9464:127.0.0.1:9464": f"{http}:{away}:{http}",
    }
    assert set(places) < set(words)
    with tunnel(ssh, words, places, http):
        asked = ("--control", f"127.0.0.1:{http}", "--token-file", str(token))
        for command in ("status", "pause", "resume"):
            child = processes.python(
                command, "-m", "rollcast", command, *asked, "--results-dir", str(tmp_path / "none")
            )
            assert child.wait() == 0, child.said()
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/healthz", timeout=60) as answer:
            assert answer.status == 200
