"""Tests that algorithms are identified by traits, not by names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.tree import PACKAGES, files, nodes, shown, sources

ALGORITHM = re.compile(r"\b(?:ppo|appo|impala|sac|poca)\b")
FOLDERS = (
    "callbacks",
    "curriculum",
    "ingest",
    "link",
    "observe",
    "run",
    "service",
    "settings",
    "front",
    "web",
)
EXCEPT = frozenset(
    {
        "learner/settings/hyperparameters.py",  # has the table
        "learner/settings/README.md",  # the page of every key, made from the table
        "learner/settings/environment.py",  # the run id that ML-Agents gives to runs without one
    }
)


def test_algorithms_are_not_named() -> None:
    """No module or page outside the trainers names an algorithm."""
    named = [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in files(*(PACKAGES["learner"] / folder for folder in FOLDERS))
        if path.suffix in {".py", ".md"} and shown(path) not in EXCEPT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if ALGORITHM.search(line)
    ]
    assert named == []


LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


def events_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines and events of the calls of a module's log."""
    for node in nodes(path):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
            continue
        of = node.func.value
        name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
        if name.lstrip("_") == "log" and node.args and isinstance(node.args[0], ast.Constant):
            yield node.lineno, str(node.args[0].value)


def test_log_events_are_names() -> None:
    """A log event is a name, and its details are fields."""
    found = [(f"{shown(path)}:{line}", event) for path in sources() for line, event in events_of(path)]
    assert len(found) > 50
    assert [each for each in found if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", each[1])] == []
