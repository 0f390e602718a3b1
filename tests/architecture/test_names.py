"""Tests that algorithms are identified by traits, not by names."""

import re

from tests.architecture.tree import PACKAGES, files, shown

ALGORITHM = re.compile(r"\b(?:ppo|appo|impala|sac|poca)\b")
FOLDERS = (
    "link",
    "service",
    "shared",
    "training/callbacks",
    "training/curriculum",
    "training/lockstep",
    "training/run",
)
EXCEPT = frozenset(
    {
        "learner/shared/settings/hyperparameters.py",  # has the table
        "learner/shared/settings/README.md",  # the page of every key, made from the table
        "learner/shared/settings/environment.py",  # the run id that ML-Agents gives to runs without one
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
