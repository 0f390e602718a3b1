"""Splits test files into shards of about equal recorded cost."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.tools.suite.tiers import ROOT

COSTS = Path(__file__).with_name("costs.txt")
HEADER = """\
# The processor seconds of test files, by tier; files below a second are left out. Written by `make costs`.
"""
LEAST_SECONDS = 1.0
TOGETHER = "tests/architecture/"
"""Tests below this folder share what they have parsed: one process runs them, one after the other."""


def read_costs(tier: str, path: Path = COSTS) -> dict[str, float]:
    """Returns the recorded seconds of the files of a tier."""
    lines = path.read_text().splitlines() if path.exists() else []
    words = (line.split() for line in lines if line and not line.startswith("#"))
    return {file: float(seconds) for name, seconds, file in words if name == tier}


def write_costs(tier: str, costs: Mapping[str, float], path: Path = COSTS) -> None:
    """Replaces the recorded seconds of files in a tier; other files keep theirs as long as they exist."""
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if line and not line.startswith("#") and _is_kept(line, tier, costs)]
    new = [f"{tier} {seconds:.0f} {file}" for file, seconds in costs.items() if seconds >= LEAST_SECONDS]
    path.write_text(HEADER + "".join(f"{line}\n" for line in sorted(kept + new, key=lambda line: line.split()[::2])))


def _is_kept(line: str, tier: str, costs: Mapping[str, float]) -> bool:
    name, _, file = line.split()
    return (ROOT / file).exists() and not (name == tier and file in costs)


def split(files: Sequence[str], number: int, costs: Mapping[str, float], seed: str = "") -> list[list[str]]:
    """Returns the files of each shard, in the order in which they run.

    The dearest file goes first, each to the shard with the least so far. Files of unknown cost count as half a second: those
    that are not recorded are cheap, or new. The files of `TOGETHER` count as one.

    Args:
        files: To be split.
        number: Of shards; there are fewer if there are fewer files.
        costs: Processor seconds of files.
        seed: Of the order; without one the order is that of the names.
    """
    order = sorted(files)
    if seed:
        random.Random(seed).shuffle(order)
    groups: dict[str, list[str]] = defaultdict(list)
    for file in order:
        groups[TOGETHER if file.startswith(TOGETHER) else file].append(file)
    cost = {name: sum(costs.get(file, LEAST_SECONDS / 2) for file in group) for name, group in groups.items()}
    shards: list[list[str]] = [[] for _ in range(min(number, len(groups)))]
    sums = [0.0] * len(shards)
    for name in sorted(groups, key=lambda name: -cost[name]):
        least = sums.index(min(sums))
        shards[least].append(name)
        sums[least] += cost[name]
    place = {name: index for index, name in enumerate(groups)}
    return [[file for name in sorted(shard, key=place.__getitem__) for file in groups[name]] for shard in shards]
