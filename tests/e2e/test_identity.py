"""Tests training with TLS and tokens, with processes: what a user does in two commands, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rollcast.auth import Role

from actor_client.exits import ExitCode
from learner.shared.exits import ExitCode as LearnerCode
from learner.shared.observe.address import BoundAddresses, read_addresses
from tests.e2e.processes import Child, command_environment, wait_until
from tests.learner.service.identity.certificates import Folder

RUN = """\
behaviors:
  CartPole:
    trainer_type: ppo
    max_steps: {steps}
rollcast:
  http_address: 127.0.0.1:0
"""


def command(*arguments: str, words: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        input=words,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=command_environment(),
    )


def started(folder: Path, certs: Path, *, steps: int) -> tuple[Child, BoundAddresses]:
    """Starts a learner with certificates."""
    (folder / "run.yaml").write_text(RUN.format(steps=steps))
    arguments = [
        "serve",
        str(folder / "run.yaml"),
        "--run-id",
        "run",
        "--results-dir",
        str(folder),
        "--certs",
        str(certs),
    ]
    learner = Child(
        "learner", ["-m", "learner", *arguments, "--address", "127.0.0.1:0", "--log-format", "json"], folder
    )
    found = wait_until(lambda: read_addresses(folder / "run"), "the learner listens")
    assert found is not None
    return learner, found


def gym(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs an actor to its end."""
    return command(
        "actor_client", "gym", "--env", "CartPole-v1", "--metrics-address", "off", "--learner", address, *arguments
    )


def test_two_commands_train(tmp_path: Path) -> None:
    """`certs init` and `join` are all that a run over TLS with tokens needs, also to evaluate it, and no secret is in any output or file."""
    certs, joined = tmp_path / "certs", tmp_path / "joined"
    made = command("learner", "certs", "init", str(certs))
    assert command("actor_client", "join", str(joined), words=made.stdout.splitlines()[-1] + "\n").returncode == 0
    token = (joined / "token").read_text().strip()
    learner, addresses = started(tmp_path, certs, steps=6000)
    try:
        operator = (tmp_path / "run" / "operator_token").read_text().strip()
        status = command("learner", "status", str(tmp_path / "run"))
        checked = command("learner", "check-config", str(tmp_path / "run.yaml"), "--certs", str(certs))
        actor = gym(addresses.address, "--certs", str(joined), "--num-envs", "4")
        assert actor.returncode == ExitCode.OK, actor.stderr
        assert learner.process.wait(60) == LearnerCode.OK
        evaluates = ("learner", "evaluate", str(tmp_path / "run"), "--env", "CartPole-v1", "--episodes", "2")
        evaluated = command(*evaluates)
        shared = command(*evaluates, "--address", "127.0.0.1:0")  # over TLS, where others may join
        for done in (status, checked, evaluated, shared):
            assert done.returncode == LearnerCode.OK, done.stderr
    finally:
        learner.process.kill()
    outputs = [each.stdout + each.stderr for each in (status, checked, evaluated, shared, actor)]
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != "operator_token"]
    outputs += [path.read_bytes().decode("latin1") for path in (*kept, *tmp_path.glob("learner.*"), certs / "tokens")]
    assert not [text for text in outputs if token in text or operator in text]
    lines = map(json.loads, (tmp_path / "run" / "logs" / "learner.jsonl").read_text().splitlines())
    advice = [line["start"] for line in lines if line["event"] == "waiting_for_actors" and "start" in line]
    assert "--certs DIR" in advice[0], "a bare address would be refused"


def test_what_is_refused(tmp_path: Path) -> None:
    """Each fault has its exit code and its words, and the token is in no process list."""
    folder, other = Folder.make(tmp_path / "certs", watcher=Role.VIEWER), Folder.make(tmp_path / "other")
    token, viewer = tmp_path / "token", folder.path / "watcher.token"
    token.write_text("a-token-that-nobody-knows\n")
    learner, addresses = started(tmp_path, folder.path, steps=10**6)
    try:
        faults = {
            (): (ExitCode.UNTRUSTED, "the learner uses TLS"),
            ("--tls-ca", str(other.ca)): (ExitCode.UNTRUSTED, "authority that is not in --tls-ca"),
            ("--tls-ca", str(folder.ca), "--server-name", "elsewhere"): (ExitCode.UNTRUSTED, "other names than"),
            ("--tls-ca", str(folder.ca)): (ExitCode.UNAUTHENTICATED, "requires a token"),
            ("--tls-ca", str(folder.ca), "--token-file", str(token)): (ExitCode.UNAUTHENTICATED, "one just made"),
            ("--tls-ca", str(folder.ca), "--token-file", str(viewer)): (ExitCode.NOT_ALLOWED, "watcher is a viewer"),
            ("--tls-ca", str(tmp_path / "none")): (ExitCode.USAGE, "cannot be read"),
        }
        for arguments, (code, words) in faults.items():
            actor = gym(addresses.address, *arguments)
            assert (actor.returncode, words in actor.stderr) == (code, True), actor.stderr
        drain = command(
            "learner", "drain", "--control", addresses.http, "--tls-ca", str(folder.ca), "--token-file", str(token)
        )
        assert drain.returncode == LearnerCode.NOT_ALLOWED
        assert command("learner", "drain", str(tmp_path / "run")).returncode == LearnerCode.OK
        learner.process.wait(60)
    finally:
        learner.process.kill()


def test_an_expired_certificate_is_named(tmp_path: Path) -> None:
    """Once the certificate of a running learner is one that has expired, a new actor ends and says so."""
    folder = Folder.make(tmp_path / "certs")
    token = tmp_path / "token"
    token.write_text("a-token-that-nobody-knows\n")
    learner, addresses = started(tmp_path, folder.path, steps=10**6)
    try:
        folder.renew(days=-1)
        while True:
            actor = gym(addresses.address, "--tls-ca", str(folder.ca), "--token-file", str(token))
            if (
                actor.returncode != ExitCode.UNAUTHENTICATED
            ):  # this token's answer while the former certificate is served
                break
        assert (actor.returncode, "has expired" in actor.stderr) == (ExitCode.UNTRUSTED, True), actor.stderr
    finally:
        learner.process.kill()
        learner.process.wait(60)
