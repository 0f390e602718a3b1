"""All targets, by name."""

from __future__ import annotations

import importlib
from typing import Final

from tests.tools.fuzz.target import Target

PARTS: Final = ("wire", "unity", "web", "service", "trainers", "files")
"""Modules with targets, those that import least first."""
LONG: Final = frozenset({"open-session", "token-file", "http", "trainer-introduction"})
"""Decoders of bytes of callers that are not identified yet; they are fuzzed three times as long."""


def find(name: str) -> Target:
    """Returns a target; imports no more modules than it takes to find it."""
    for part in PARTS:
        for target in _targets(part):
            if target.name == name:
                return target
    raise KeyError(name)


def all_targets() -> dict[str, Target]:
    """Returns all targets, by name."""
    return {target.name: target for part in PARTS for target in _targets(part)}


def _targets(part: str) -> tuple[Target, ...]:
    found: tuple[Target, ...] = importlib.import_module(f"tests.tools.fuzz.{part}").TARGETS
    return found
