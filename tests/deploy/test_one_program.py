"""Tests that images, compose files, Kubernetes, Slurm and systemd start the one program, with command lines that it knows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollcast.console import whole_parser
from rollcast.parsers import subparsers_of

from tests.architecture.tree import ROOT, own_files, shown

DEPLOY = ROOT / "deploy"
COMPOSE = [ROOT / "docker-compose.yml", *sorted((DEPLOY / "compose").glob("*.yml"))]
COMMANDS = [*subparsers_of(whole_parser()), *subparsers_of(subparsers_of(whole_parser())["act"])]
ALIAS = re.compile(rf"\brollcast-(?:actor|learner|unity) +(?:--\w|(?:{'|'.join(COMMANDS)})\b)")


def entry_points() -> dict[str, list[str]]:
    """Returns the entry points of the images."""
    found = {}
    for name in ("learner", "actor"):
        text = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()
        (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, flags=re.MULTILINE)
        found[name] = json.loads(entry)
    return found


def default_commands() -> Iterator[list[str]]:
    """Yields what the images run by themselves."""
    for name, entry in entry_points().items():
        text = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()
        (command,) = re.findall(r"^CMD (.*)$", text, flags=re.MULTILINE)
        yield [*entry, *json.loads(command)]


def compose_commands() -> Iterator[list[str]]:
    """Yields what the services run, and their health checks."""
    for path in COMPOSE:
        for name, service in yaml.safe_load(path.read_text())["services"].items():
            image = "learner" if name == "learner" else "actor"
            if name in {"learner", "actor", "unity"}:
                if "command" in service:
                    yield [*entry_points()[image], *service["command"]]
                if "healthcheck" in service:
                    yield service["healthcheck"]["test"][1:]


def containers(document: Any) -> Iterator[dict[str, Any]]:
    """Yields the containers of a document of Kubernetes."""
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in parts:
        if key == "containers":
            yield from value
        else:
            yield from containers(value)


def pod_commands() -> Iterator[list[str]]:
    """Yields what the containers of Kubernetes run, and their probes."""
    paths = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
    for container in containers([[*yaml.safe_load_all(path.read_text())] for path in paths]):
        if "args" in container:
            yield [*entry_points()["learner" if "learner" in container["name"] else "actor"], *container["args"]]
        for key, probe in container.items():
            if key.endswith("Probe") and "exec" in probe:
                yield probe["exec"]["command"]


def unit_commands() -> Iterator[list[str]]:
    """Yields what the units of systemd start of Rollcast."""
    for path in sorted((DEPLOY / "systemd").iterdir()):
        for line in re.findall(r"^Exec\w*=(.*)$", path.read_text(), flags=re.MULTILINE):
            words = shlex.split(line)
            if "rollcast" in Path(words[0]).name:
                yield [Path(words[0]).name, *words[1:]]


@pytest.mark.parametrize("commands", [default_commands, compose_commands, pod_commands, unit_commands])
def test_every_command_line_is_known(commands: Any) -> None:
    """Each command line is one of `rollcast`, which parses it."""
    found = list(commands())
    assert len(found) >= 2
    for program, *words in found:
        assert program == "rollcast", words
        whole_parser().parse_args(words)


def test_an_actor_s_image_takes_the_commands_of_an_actor() -> None:
    """`docker compose run actor gym --env ID` works as it always did."""
    parser = whole_parser()
    for command in ("gym", "unity", "pettingzoo", "godot", "boards", "healthcheck"):
        program, *entry = entry_points()["actor"]
        assert program == "rollcast"
        assert parser.parse_args([*entry, command]).command == command


def test_no_page_or_file_starts_an_alias() -> None:
    """Pages, examples and files of the deployment call the one program; the aliases are for scripts of others."""
    found = []
    for path in own_files():
        if path.suffix in {".md", ".yml", ".yaml", ".Dockerfile", ".service", ".timer", ".sbatch", ".sh"}:
            lines = path.read_text(encoding="utf-8").splitlines() if "fuzz" not in path.parts else []
            found += [f"{shown(path)}: {line}" for line in lines if ALIAS.search(line)]
    assert found == []
