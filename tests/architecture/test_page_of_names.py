"""Tests that the page of other systems' names gives names that exist here."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
from rollcast.console import whole_parser
from rollcast.parsers import walk

from learner.shared.settings.base import Value
from learner.shared.settings.hyperparameters import built_trainers
from learner.shared.settings.options import RunOptions
from learner.shared.settings.slots import slot_at
from tests.documents import text_of

PAGE = "deploy/examples/NAMES.md"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|", flags=re.MULTILINE)
NOTHING = {"none", "not yet"}
ROWS = [(name, here) for name, here in ROW.findall(text_of(PAGE)) if here != "here"]
NAMES = sorted({name for _, here in ROWS for name in re.findall(r"`([^`]+)`", here)})
OURS = {"rollcast", "learner", "actor_client"}
COMMANDS = {parser.prog: set(parser._option_string_actions) for parser in walk(whole_parser())}


def has_python_name(name: str) -> bool:
    """Returns whether a name, such as ``module:Class.attribute``, exists; an instance may have the last part."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        owner, found = found, getattr(found, part, None)
        if found is None:
            kinds = [kind for kind in getattr(owner, "__mro__", ()) if kind.__module__.partition(".")[0] in OURS]
            return any(re.search(rf"self\.{part}\b[^()\n]*= ", inspect.getsource(kind)) for kind in kinds)
    return True


def has_command(line: str) -> bool:
    """Returns whether a command exists, and has the flags."""
    words = line.split()
    flags = {word for word in words if word.startswith("--")}
    prog = " ".join(word for word in words if word not in flags)
    return prog in COMMANDS and flags <= COMMANDS[prog]


def has_setting(path: str) -> bool:
    """Returns whether a run file has a key, of its own or in the block of a behavior."""
    keys = tuple(path.split("."))
    if slot_at(RunOptions, {}, keys) is not None:
        return True
    runs: list[Value] = [
        {"behaviors": {"B": {"trainer_type": each, "hyperparameters": {}}}} for each in built_trainers()
    ]
    return any(slot_at(RunOptions, run, ("behaviors", "B", *keys)) is not None for run in runs)


def exists(name: str) -> bool:
    """Returns whether a name of the page exists."""
    if ":" in name:
        return has_python_name(name)
    return has_command(name) if " " in name else has_setting(name)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_exists(name: str) -> None:
    """Each name can be imported, is a command with these flags, or is a key of run files."""
    assert exists(name)


@pytest.mark.parametrize(
    "name",
    [
        "learner.training.trainers.base:Trainer.gone",
        "learner.training.trainers.base:Gone",
        "rollcast:gone",
        "rollcast gone",
        "rollcast serve --gone",
        "rollcast.gone",
        "hyperparameters.gone",
        "gone",
    ],
)
def test_a_name_that_is_gone_is_seen(name: str) -> None:
    """The test of the names sees one that does not exist."""
    assert not exists(name)


def test_each_row_gives_a_name_or_says_that_there_is_none() -> None:
    """No row is empty, and one without a name says why."""
    assert [name for name, here in ROWS if "`" not in here and here not in NOTHING] == []
    without = re.findall(r"^\| [^|]+ \| (?:none|not yet) \|([^|]*)\|", text_of(PAGE), flags=re.MULTILINE)
    assert len(without) == sum(here in NOTHING for _, here in ROWS)
    assert all(reason.strip() for reason in without)
