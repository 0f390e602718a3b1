"""Tests the files of deploy/compose/tls.yml without a container engine; tests/nightly/stack/test_tls.py trains with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollcast.auth import JoinCode, Role, parse_tokens
from rollcast.tls import read_token

from actor_client.exits import ExitCode
from learner.shared.observe.address import read_addresses
from tests.architecture.tree import ROOT
from tests.e2e.processes import processes_in
from tests.e2e.runs import small, write_run

OVERLAY = ROOT / "deploy" / "compose" / "tls.yml"
SCRIPT = ROOT / "deploy" / "compose" / "secrets.sh"


def services(path: Path) -> dict[str, Any]:
    """Returns the services of a compose file."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())["services"]
    return found


def test_the_overlay_turns_plain_text_off() -> None:
    """The learner has certificates and tokens, actors an authority and a token file, and Grafana asks who comes."""
    found = services(OVERLAY)
    learner = found["learner"]["environment"]
    assert (learner["ROLLCAST_INSECURE"], learner["ROLLCAST_CERTS"]) == ("false", "/secrets")
    for name in ("actor", "unity"):
        environment = found[name]["environment"]
        assert environment["ROLLCAST_ACTOR_TLS_CA"] == "/secrets/ca.pem"
        assert environment["ROLLCAST_ACTOR_TOKEN_FILE"] == "/secrets/token"  # noqa: S105 - a path
        assert environment["ROLLCAST_ACTOR_METRICS_TOKEN_FILE"] == "/secrets/metrics_token"  # noqa: S105 - a path
        assert environment["ROLLCAST_ACTOR_INSECURE"] == "false"
    assert found["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_no_secret_is_in_an_environment() -> None:
    """Secrets come as read-only folders, each for one service; variables have only paths and switches."""
    for path in (ROOT / "docker-compose.yml", OVERLAY):
        for name, service in services(path).items():
            for key, value in service.get("environment", {}).items():
                if any(word in key for word in ("TOKEN", "PASSWORD", "KEY", "CERT", "SECRET")):
                    assert value.startswith("/"), (name, key)
    mounted = {
        name: [volume for volume in service.get("volumes", ()) if "/secrets:" in volume]
        for name, service in services(OVERLAY).items()
        if name != "grafana"
    }
    for name, volumes in mounted.items():
        place = "actor" if name == "unity" else name
        assert volumes == [f"${{ROLLCAST_SECRETS:-./deploy/secrets}}/{place}:/secrets:ro"]


def test_prometheus_reads_the_learner_as_a_viewer() -> None:
    """Both configurations have the same jobs; with TLS the learner's has an authority, and both ask with a token."""
    plain, tls = (
        yaml.safe_load((ROOT / "deploy" / "prometheus" / f"{name}.yml").read_text()) for name in ("prometheus", "tls")
    )
    jobs = {job["job_name"]: job for job in tls["scrape_configs"]}
    learner = jobs["learner"]
    assert learner.pop("scheme") == "https"
    assert learner.pop("authorization") == {"credentials_file": "/secrets/token"}
    assert learner.pop("tls_config") == {"ca_file": "/secrets/ca.pem"}
    assert jobs["actor"].pop("authorization") == {"credentials_file": "/secrets/metrics_token"}
    assert tls == plain


def test_every_service_is_limited() -> None:
    """Each service has limits of memory, processes and open files (R22)."""
    for service in services(ROOT / "docker-compose.yml").values():
        assert service["mem_limit"]
        assert service["pids_limit"] > 0
        assert service["ulimits"]["nofile"]["hard"] > 0


def made_by_script(tmp_path: Path) -> Path:
    """Returns a folder of secrets.sh, which this user owns; the file `chowned` has the owners that it would have."""
    folder = tmp_path / "secrets"
    done_by_shell(tmp_path, f"LEARNER='{sys.executable} -m learner' sh {SCRIPT} learner.example {folder}")
    return folder


def done_by_shell(tmp_path: Path, commands: str) -> str:
    """Runs commands; returns what they print.

    `sudo` gives no rights here, but forgets PATH, as the real one; `chown` writes into the file `chowned`.
    """
    tools, venv = tmp_path / "tools", tmp_path / "venv"
    programs = {
        tools / "chown": 'echo "$@" >>"$CHOWNED"',
        tools / "sudo": f'exec env PATH="{tools}:/usr/bin:/bin" "$@"',
        venv / "rollcast": f'exec "{sys.executable}" -m rollcast "$@"',
    }
    for path, text in programs.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{venv}:{os.environ['PATH']}",
        "CHOWNED": str(tmp_path / "chowned"),
    }
    done = subprocess.run(
        ["sh", "-euc", commands], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def documented(folder: Path) -> tuple[str, str]:
    """Returns the commands of deploy/README.md that make the secrets, and that renew them, for this folder."""
    page = (ROOT / "deploy" / "README.md").read_text().partition("## TLS and tokens")[2].partition("\n## ")[0]
    first, second = (block.partition("```")[0] for block in page.split("```sh\n")[1:])
    made = "".join(line for line in first.splitlines(keepends=True) if not line.startswith("docker"))
    return (
        made.replace("HOST\n", f"learner.example {folder}\n"),
        second.replace("deploy/secrets/", f"{folder}/").replace("HOST\n", f"learner.example {folder}\n"),
    )


def settings(service: str, replaced: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a service with the overlay: defaults for what the caller sets, and texts replaced."""
    found: dict[str, str] = {}
    for path in (ROOT / "docker-compose.yml", OVERLAY):
        found |= services(path)[service]["environment"]
    found = {key: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for key, value in found.items()}
    for before, after in replaced.items():
        found = {key: value.replace(before, after) for key, value in found.items()}
    return found


@pytest.mark.slow
def test_its_variables_train(tmp_path: Path) -> None:
    """A learner and an actor with the variables of the overlay, as processes, train over TLS with a token."""
    folder = made_by_script(tmp_path)
    run_file = write_run(tmp_path, {"CartPole": small()})
    ports = {":50051": ":0", ":9464": ":0", ":9465": ":0", "/results": str(tmp_path / "results")}
    with processes_in(tmp_path) as processes:
        variables = settings("learner", {"/secrets": str(folder / "learner"), **ports})
        learner = processes.learner(run_file, environment=variables)
        variables = settings("actor", {"/secrets": str(folder / "actor"), **ports})
        variables["ROLLCAST_ACTOR_HEARTBEAT_FILE"] = str(tmp_path / "heartbeat")
        for shown in ("ROLLCAST_ACTOR_LEARNER", "ROLLCAST_ACTOR_ENV", "ROLLCAST_ACTOR_NUM_ENVS"):
            del variables[shown]  # arguments here
        actor = processes.actor(learner.address, "CartPole-v1", environment=variables)
        learner.wait_for_version("CartPole", 2, actor)
        bound = read_addresses(learner.folder)
        assert bound is not None
        assert bound.tls
        token = {"ROLLCAST_ACTOR_TOKEN_FILE": str(folder / "prometheus" / "token")}  # a viewer's
        stranger = processes.actor(learner.address, "CartPole-v1", name="stranger", environment={**variables, **token})
        assert stranger.wait() == ExitCode.NOT_ALLOWED, stranger.said()


@pytest.mark.slow
def test_the_script_makes_what_the_containers_need(tmp_path: Path) -> None:
    """Each container's folder has its files, for its user alone; a second call keeps them."""
    made: list[dict[str, bytes]] = []
    for _ in range(2):
        folder = made_by_script(tmp_path)
        made.append({str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert made[0] == made[1]
    assert set(made[0]) == {
        "authority/ca.key",
        "learner/ca.pem", "learner/server.pem", "learner/server.key", "learner/tokens", "learner/port",
        "actor/ca.pem", "actor/token", "actor/metrics_token",
        "prometheus/ca.pem", "prometheus/token", "prometheus/metrics_token",
    }  # fmt: skip
    table = parse_tokens((folder / "learner" / "tokens").read_text())
    for name, role in (("actor", Role.ACTOR), ("prometheus", Role.VIEWER)):
        principal = table.find(read_token(folder / name / "token"), 0.0)
        assert principal is not None
        assert (principal.name, principal.role) == (name, role)
    assert read_token(folder / "actor" / "metrics_token") == read_token(folder / "prometheus" / "metrics_token")
    assert not [
        path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o004 and "key" in path.name
    ]
    chowned = (tmp_path / "chowned").read_text()
    assert f"10001:10001 {folder}/learner {folder}/actor" in chowned
    assert f"65534:65534 {folder}/prometheus" in chowned


@pytest.mark.slow
def test_the_documented_commands_make_and_renew_the_secrets(tmp_path: Path) -> None:
    """They say nothing that is wrong for containers; after a renewal the files have their owners, and the authority is away."""
    folder, chowned = tmp_path / "secrets", tmp_path / "chowned"
    make, renew = documented(folder)
    said = done_by_shell(tmp_path, make)
    assert JoinCode.decode(said.splitlines()[-1]).address == "learner.example:50051"
    assert f"keep {folder}/authority elsewhere" in said
    assert "serve" not in said
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    owners = chowned.read_text()
    chowned.unlink()
    done_by_shell(tmp_path, renew)
    assert chowned.read_text() == owners, "the last command gives all files to their owners"
    changed = {str(path.relative_to(folder)) for path, content in before.items() if path.read_bytes() != content}
    assert changed == {"learner/server.pem", "learner/server.key", "learner/tokens", "actor/token", "prometheus/token"}
    assert (folder / "authority" / "ca.key").exists()
    assert not (folder / "learner" / "authority").exists()
