"""Tests that each flag and key that a message names exists for the command that prints it."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from actor_client.cli import build_parser as actor_parser
from actor_client.unity.dropin.flags import build_parser as unity_parser
from learner.cli import build_parser as learner_parser
from tests.architecture.tree import ROOT

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"rollcast(?: act|-\w+)?(?: [a-z][a-z-]+)?")
CLAUSE = re.compile(r"[,;:()]")
OTHERS = frozenset({"--mlagents-port", "--config", "--version", "--help"})
"""Flags of players, and of every command."""


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
ACTORS = tuple(f"rollcast act {kind}" for kind in ("gym", "unity", "pettingzoo", "boards"))
SERVERS = ("rollcast serve", "rollcast train", "rollcast unity")
READERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("actor_client/boards/play", ("rollcast play",)),
    ("actor_client/boards", ("rollcast act boards",)),
    ("actor_client/pettingzoo", ("rollcast act pettingzoo",)),
    ("actor_client/unity/dropin", ("rollcast unity",)),
    ("actor_client/unity", ("rollcast act unity", "rollcast unity")),
    ("actor_client/envs", ("rollcast act gym",)),
    ("actor_client/connection", ACTORS),
    ("actor_client/rollout/agents/scripts.py", ("rollcast act boards", "rollcast act pettingzoo")),
    ("actor_client/rollout/vector", ("rollcast act gym",)),
    ("actor_client/rollout", ACTORS),
    ("actor_client/policy", ACTORS),
    ("learner/checkpoints", SERVERS),
    ("learner/settings/service.py", ()),  # tells of other commands
    ("learner/settings", SERVERS),
    ("learner/run", SERVERS),
    ("learner/trainers", SERVERS),
    ("learner/rewards", SERVERS),
    ("learner/front", SERVERS),
    ("learner/observe/curves.py", ("rollcast compare",)),
    ("learner/commands/preflight.py", SERVERS),
    ("learner/commands/initial.py", SERVERS),
    ("learner/commands/compare.py", ("rollcast compare",)),
)
"""The commands that print the messages of a module: each flag must exist for all of them."""


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the texts of a module that are no docstrings; the values in them as ``{}``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(map(str, values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docs:
            yield node.lineno, node.value


def _wrong(text: str, readers: tuple[str, ...]) -> Iterator[str]:
    """Yields the flags in a text that its readers lack; after the name of a command, that command reads."""
    if " " not in text:  # a flag by itself is one that the module defines or passes on
        return
    for match in FLAG.finditer(text):
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
