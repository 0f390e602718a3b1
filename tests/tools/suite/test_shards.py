"""Tests the split of files into shards, and their recorded costs."""

from __future__ import annotations

from pathlib import Path

from tests.tools.suite.shards import COSTS, read_costs, split, write_costs
from tests.tools.suite.tiers import ROOT

FILES = [f"tests/test_{number:02}.py" for number in range(40)]
SECONDS = {file: float(number) for number, file in enumerate(FILES)}


def test_shards_cost_about_the_same() -> None:
    """Each file is in one shard, and the sums differ by less than the cheapest recorded file."""
    shards = split(FILES, 3, SECONDS, "seed")
    assert sorted(file for shard in shards for file in shard) == FILES
    sums = [sum(SECONDS[file] for file in shard) for shard in shards]
    assert max(sums) - min(sums) <= 2.0


def test_a_seed_shuffles_the_same_way_again() -> None:
    """Equal seeds give equal shards in equal order, other seeds another order, and no seed that of names."""
    assert split(FILES, 2, SECONDS, "a") == split(FILES, 2, SECONDS, "a") != split(FILES, 2, SECONDS, "b")
    assert all(shard == sorted(shard) for shard in split(FILES, 2, SECONDS))
    assert any(shard != sorted(shard) for shard in split(FILES, 2, SECONDS, "a"))


def test_there_is_no_empty_shard() -> None:
    """There are no more shards than files."""
    assert split(FILES[:2], 8, {}) == [[FILES[0]], [FILES[1]]]
    assert split([], 8, {}) == []


def test_costs_are_recorded_by_tier(tmp_path: Path) -> None:
    """Recording one tier keeps the others, and leaves out what is cheap."""
    path = tmp_path / "costs.txt"
    write_costs("units", {"b.py": 3.4, "a.py": 12.0, "c.py": 0.2}, path)
    write_costs("ci", {"a.py": 40.0}, path)
    write_costs("units", {"b.py": 2.0}, path)
    assert read_costs("units", path) == {"b.py": 2.0}
    assert read_costs("ci", path) == {"a.py": 40.0}


def test_recorded_files_exist() -> None:
    """The recorded costs name files of this tree; `make costs` writes them anew."""
    assert [file for tier in ("units", "ci") for file in read_costs(tier, COSTS) if not (ROOT / file).exists()] == []
