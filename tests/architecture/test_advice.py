"""Tests that each flag and key that a message names exists for the command that prints it."""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from actor_client.cli import build_parser as actor_parser
from actor_client.settings.agents import PettingZooSettings
from actor_client.settings.boards import BoardsSettings, PlaySettings
from actor_client.settings.commands import GymSettings, UnitySettings
from actor_client.settings.conform import ConformSettings
from actor_client.settings.dm_env_rpc import DmEnvRpcSettings
from actor_client.settings.godot import GodotSettings
from actor_client.unity.dropin.flags import build_parser as unity_parser
from learner.cli.cli import build_parser as learner_parser
from learner.shared.settings.service import ServiceSettings
from tests.architecture.tree import ROOT, nodes

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"rollcast(?: act|-\w+)?(?: [a-z][a-z-]+)?")
CLAUSE = re.compile(r"[,;:()]")
OTHERS = frozenset({"--mlagents-port", "--config", "--version", "--help", "--standalone", "--rdzv-backend"})
"""Flags of players, of torchrun, and of every command."""


def _flags(parser: argparse.ArgumentParser) -> dict[str, frozenset[str]]:
    """Returns the flags of each command, and of the program under its own name."""
    found = {parser.prog: frozenset(parser._option_string_actions)}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found[f"{parser.prog} {name}"] = frozenset().union(*_flags(command).values())
    return found


FLAGS = {
    name: flags
    for build, progs in (
        (actor_parser, ("rollcast act", "rollcast", "rollcast-actor")),
        (learner_parser, ("rollcast", "rollcast-learner")),
        (unity_parser, ("rollcast unity", "rollcast unity")),
    )
    for prog in progs
    for name, flags in _flags(build(prog)).items()
}
FLAGS["rollcast act"] = frozenset().union(*(FLAGS[each] for each in FLAGS if each.startswith("rollcast act")))
ACTORS = tuple(f"rollcast act {kind}" for kind in ("gym", "unity", "pettingzoo", "godot", "boards", "dm-env-rpc"))
SERVERS = ("rollcast serve", "rollcast train", "rollcast unity")
TRAINER = ("rollcast trainer",)
COMPARE = ("rollcast compare",)
TOURNAMENT = ("rollcast tournament",)
EVALUATE = ("rollcast evaluate",)
OPERATORS = tuple(f"rollcast {name}" for name in ("status", "pause", "resume", "save", "set", "drain", "release"))
OWNERS = {"learner": ("rollcast serve",), "actor": ACTORS}
"""Whose flag it is where a message says so: "the learner's --address"; one of these commands must have it."""
OWNER = re.compile(r"\b(learner|actor)'s (?:\w+ )?$")
READERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("actor_client/boards/play", ("rollcast play",)),
    ("actor_client/boards", ("rollcast act boards",)),
    ("actor_client/pettingzoo", ("rollcast act pettingzoo",)),
    ("actor_client/conform", ("rollcast act conform",)),
    ("actor_client/dm_env_rpc", ("rollcast act dm-env-rpc",)),
    ("actor_client/godot", ("rollcast act godot",)),
    ("actor_client/builds", ("rollcast act godot", "rollcast act unity", "rollcast unity")),
    ("actor_client/unity/dropin", ("rollcast unity",)),
    ("actor_client/unity", ("rollcast act unity", "rollcast unity")),
    ("actor_client/envs", ("rollcast act gym",)),
    ("actor_client/connection", ACTORS),
    (
        "actor_client/rollout/agents/scripts.py",
        ("rollcast act boards", "rollcast act godot", "rollcast act pettingzoo"),
    ),
    ("actor_client/rollout/vector", ("rollcast act gym",)),
    ("actor_client/rollout", ACTORS),
    ("actor_client/policy", ACTORS),
    ("learner/shared/runfolder", SERVERS),
    ("learner/shared/settings/service.py", ()),  # tells of other commands
    ("learner/shared/settings", SERVERS),
    ("learner/training/run", SERVERS),
    ("learner/training/trainers", SERVERS),
    ("learner/training/rewards", SERVERS),
    ("learner/service/run", SERVERS),
    ("learner/shared/observe/curves.py", COMPARE),
    ("learner/start/preflight.py", SERVERS),
    ("learner/start/preflight.py", SERVERS),
    ("learner/cli/compare.py", COMPARE),
    ("learner/cli/compare_runs.py", COMPARE),
    ("learner/cli/comparison_report.py", COMPARE),
    ("learner/cli/run_groups.py", COMPARE),
    ("learner/start/evaluate_run.py", EVALUATE),
    ("learner/start/own_actor.py", EVALUATE),
    ("learner/start/finished_run.py", EVALUATE),
    ("learner/start/old_runs.py", ("rollcast runs",)),
    ("learner/shared/introduction.py", TRAINER),
    ("learner/cli/operator.py", OPERATORS),
    ("learner/start/rank_handshake.py", TRAINER),
    ("learner/cli/trainer.py", TRAINER),
    ("learner/start/tournament_run.py", TOURNAMENT),
    ("learner/start", ()),  # help, and whole commands
    ("learner/training/matches/players.py", TOURNAMENT),
    ("learner/training/matches/tournament.py", TOURNAMENT),
    ("learner/training/matches/policies.py", TOURNAMENT),
    ("learner/training/matches/game_records.py", TOURNAMENT),
    ("learner/training/matches/journal.py", TOURNAMENT),
    ("learner/training/matches/frozen_trainer.py", (*SERVERS, *EVALUATE)),
    ("learner/training/matches/round.py", (*SERVERS, *EVALUATE)),
    ("learner/training/matches/during_training.py", (*SERVERS, *EVALUATE)),
    ("learner/training/matches/result.py", (*SERVERS, *EVALUATE)),
    ("learner/training/matches/opponents.py", (*SERVERS, *EVALUATE)),
    ("learner/training/matches/best.py", (*SERVERS, *EVALUATE)),
    ("learner/training/matches", SERVERS),
    ("learner/service/ingest", ACTORS),
    ("learner/service/calls/listening.py", SERVERS),
    ("learner/service/calls", ACTORS),
    ("learner/service/identity/authority.py", ("rollcast certs",)),
    ("learner/service/identity/access.py", (*ACTORS, *OPERATORS, *TRAINER)),
    ("learner/link", TRAINER),
    ("learner/shared/observe/terminal.py", SERVERS),
    ("learner/shared/observe", ()),  # whole commands for others
    ("learner", ()),
    ("actor_client/gym", ("rollcast act gym",)),
    ("actor_client/adapters.py", ("rollcast act gym", "rollcast act boards")),
    ("actor_client/demos/players.py", ACTORS),
    ("actor_client/demos", ("rollcast act gym",)),
    ("actor_client/heartbeat.py", ("rollcast act healthcheck",)),
    ("actor_client/joining.py", ACTORS),
    ("actor_client/settings/agents.py", ("rollcast act pettingzoo",)),
    ("actor_client/settings/godot.py", ("rollcast act godot",)),
    ("actor_client/settings/boards.py", ("rollcast act boards",)),
    ("actor_client/settings/dm_env_rpc.py", ("rollcast act dm-env-rpc",)),
    ("actor_client/serving.py", ACTORS),
    ("actor_client", ()),
    ("protos/rollcast/tls.py", (*ACTORS, *TRAINER)),
    ("protos", ()),
)
"""The commands that print the messages of a module: each flag must exist for all of them."""


@cache
def _texts(path: Path) -> Sequence[tuple[int, str]]:
    """Returns the texts of a module that are no docstrings, with their lines; the values in them as ``{}``."""
    left_out = {id(part) for node in nodes(path) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    left_out |= {
        id(node.body[0].value)
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            values = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            found.append((node.lineno, "".join(map(str, values))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            found.append((node.lineno, node.value))
    return found


def _wrong(text: str, readers: tuple[str, ...]) -> Iterator[str]:
    """Yields the flags in a text that its readers lack; after the name of a command, that command reads."""
    if " " not in text:  # a flag by itself is one that the module defines or passes on
        return
    for match in FLAG.finditer(text):
        owner = OWNER.search(text[: match.start()])
        if owner is not None:
            if not any(match.group() in FLAGS[command] for command in OWNERS[owner[1]]):
                yield f"{match.group()} is no flag of an {owner[1]}: {text[:100]!r}"
            continue
        named = [command for command in COMMAND.findall(CLAUSE.split(text[: match.start()])[-1]) if command in FLAGS]
        for reader in named[-1:] or readers:
            if match.group() not in FLAGS[reader] | OTHERS:
                yield f"{match.group()} is no flag of {reader}: {text[:100]!r}"


@pytest.mark.parametrize(("folder", "readers"), READERS, ids=[folder for folder, _ in READERS])
def test_each_advice_is_for_its_reader(folder: str, readers: tuple[str, ...]) -> None:
    """Flags in messages exist for every command that prints the message."""
    place = ROOT / folder
    wrong = []
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        nearest = next(known for known, _ in READERS if relative == known or relative.startswith(f"{known}/"))
        if readers and nearest == folder and not path.name.endswith(("cli.py", "flags.py")):
            wrong += [f"{relative}:{line}: {each}" for line, text in _texts(path) for each in _wrong(text, readers)]
    assert wrong == []


KEY = re.compile(
    r"(?<![\w`./])(rollcast|[a-z]+_settings|hyperparameters|self_play)\.([a-z][a-z_]*)(?!\.(?:py|json|v1))"
)
VARIABLE = re.compile(r"\bROLLCAST_[A-Z_]+")
DOCUMENT = re.compile(r"\b[\w/.-]+\.md(#[\w-]+)?")
SYSTEM_VARIABLES = frozenset(
    {"ROLLCAST_SECRETS_DIR", "ROLLCAST_HISTORY", "ROLLCAST_HISTORY_OWNER", "ROLLCAST_REVISION"}
)


def _messages() -> Iterator[tuple[str, str]]:
    """Yields the place and text of each message of all commands."""
    for package in ("learner", "actor_client", "protos/rollcast"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "_pb2" not in path.name:
                yield from (
                    (f"{path.relative_to(ROOT).as_posix()}:{line}", text) for line, text in _texts(path) if " " in text
                )


def _keys(block: str) -> frozenset[str]:
    """Returns the keys that a block of a run file may have, of all trainers."""
    schema = json.loads((ROOT / "learner/run_files/rollcast.schema.json").read_text(encoding="utf-8"))
    found: set[str] = set()
    pending: list[tuple[str, Any]] = [("", schema)]
    while pending:
        name, node = pending.pop()
        if isinstance(node, dict):
            reference = str(node.get("$ref", ""))
            if name == block and reference:
                pending.append((block, schema["$defs"][reference.rpartition("/")[2]]))
            if name == block:
                found |= node.get("properties", {}).keys()
            nested = ("anyOf", "oneOf", "allOf", "then", "else", "if")
            pending += [
                (name if key in nested else key if key != "properties" else "", each) for key, each in node.items()
            ]
        elif isinstance(node, list):
            pending += [(name, each) for each in node]
    return frozenset(found)


def test_each_key_in_a_message_is_one_of_a_run_file() -> None:
    """A key that a message names with its block is one that run files may have."""
    blocks = {block: _keys(block) for _, text in _messages() for block, _ in KEY.findall(text)}
    assert all(blocks.values()), blocks
    wrong = [
        (place, f"{block}.{key}")
        for place, text in _messages()
        for block, key in KEY.findall(text)
        if key not in blocks[block]
    ]
    assert wrong == []


def test_each_variable_in_a_message_is_read() -> None:
    """A variable is a setting of the learner or of an actor, or the beginning of their names."""
    actors = {
        name
        for kind in (
            BoardsSettings,
            ConformSettings,
            DmEnvRpcSettings,
            GodotSettings,
            GymSettings,
            PettingZooSettings,
            PlaySettings,
            UnitySettings,
        )
        for name in kind.model_fields
    }
    known = {f"ROLLCAST_{name.upper()}" for name in ServiceSettings.model_fields} | SYSTEM_VARIABLES
    known |= {f"ROLLCAST_ACTOR_{name.upper()}" for name in actors} | {"ROLLCAST_", "ROLLCAST_ACTOR_"}
    assert [(place, name) for place, text in _messages() for name in VARIABLE.findall(text) if name not in known] == []


def test_each_document_in_a_message_exists() -> None:
    """A page that a message names is there, with the section."""
    for package in ("learner", "actor_client", "protos/rollcast"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for _, text in _texts(path):
                for match in DOCUMENT.finditer(text):
                    page = ROOT / match.group().partition("#")[0]
                    assert page.is_file(), (path, match.group())
                    assert match[1] is None or match[1][1:] in _anchors(page), (path, match.group())


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
