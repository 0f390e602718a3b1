"""Tests the split of files into shards, and their recorded costs."""

from __future__ import annotations

from pathlib import Path

from tests.tools.suite.shards import COSTS, TOGETHER, read_costs, split, write_costs
from tests.tools.suite.tiers import ROOT, files_below

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


def test_files_that_share_what_they_parsed_stay_together() -> None:
    """They are in one shard, one after the other, in whatever order the files are."""
    together = [f"{TOGETHER}test_{number}.py" for number in range(3)]
    for seed in ("", "a", "b"):
        (shard,) = (shard for shard in split(FILES + together, 2, SECONDS, seed) if set(together) <= set(shard))
        first = min(map(shard.index, together))
        assert sorted(shard[first : first + 3]) == together


def test_there_is_no_empty_shard() -> None:
    """There are no more shards than files."""
    assert split(FILES[:2], 8, {}) == [[FILES[0]], [FILES[1]]]
    assert split([], 8, {}) == []


def test_costs_are_recorded_by_tier(tmp_path: Path) -> None:
    """Recording replaces what was measured in one tier, and leaves out what is cheap or no longer exists."""
    path = tmp_path / "costs.txt"
    one, two, three = files_below("tests/tools/suite")[:3]
    path.write_text(f"# seconds\nunits 9 tests/test_gone.py\nci 40 {one}\nunits 9 {one}\nunits 7 {three}\n")
    write_costs("units", {one: 3.4, two: 0.2}, path)
    assert read_costs("units", path) == {one: 3.0, three: 7.0}
    assert read_costs("ci", path) == {one: 40.0}


def test_recorded_files_exist() -> None:
    """The recorded costs name files of this tree; `make costs` writes them anew."""
    assert [file for tier in ("units", "ci") for file in read_costs(tier, COSTS) if not (ROOT / file).exists()] == []
