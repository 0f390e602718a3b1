"""Tests statistics as CSV."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from learner.shared.observe.csvfile import COLUMNS, STATS_FILE, CsvWriter
from learner.shared.observe.stats import Aggregation, StatsReporter
from tests.clock import Clock
from tests.learner.shared.observe.disk import no_larger_than

REWARD = "Environment/Cumulative Reward"


def rows(folder: Path) -> list[list[str]]:
    """Returns the rows below the header."""
    with (folder / "Walker" / STATS_FILE).open(newline="") as file:
        header, *found = csv.reader(file)
    assert header == list(COLUMNS)
    return found


def written(folder: Path, *steps: int, restart: int | None = None, clock: Clock | None = None) -> CsvWriter:
    """Writes a summary at each of some steps, ten seconds apart."""
    clock = clock or Clock()
    writer = CsvWriter(folder, clock=clock)
    stats = StatsReporter("Walker", [writer])
    if restart is not None:
        stats.restart(restart)
    stats.write_text("Hyperparameters", "")
    for step in steps:
        clock.now += 10
        stats.add_stat(REWARD, step)
        stats.write_stats(step)
    return writer


def test_a_row_for_each_statistic(tmp_path: Path) -> None:
    """Each row has step, seconds, name, number, count and spread."""
    clock = Clock()
    writer = CsvWriter(tmp_path, clock=clock)
    stats = StatsReporter("Walker", [writer])
    stats.write_text("Hyperparameters", "")
    clock.now += 1.5
    stats.add_stats(REWARD, np.array([1.0, 3.0]), Aggregation.HISTOGRAM)
    stats.set_stat("Is Training", 1.0)
    stats.write_stats(500)
    stats.add_stat('odd, "key"\nof an environment', math.nan)
    stats.write_stats(1000)
    writer.close()
    assert rows(tmp_path) == [
        ["500", "1.500", REWARD, "2.0", "2", "1.0"],
        ["1000", "1.500", 'odd, "key"\\nof an environment', "", "0", ""],
    ]
    assert len((tmp_path / "Walker" / STATS_FILE).read_text().splitlines()) == 3


def test_a_resumed_run_has_no_row_twice(tmp_path: Path) -> None:
    """A resume removes rows after the checkpoint, and time continues."""
    written(tmp_path, 500, 1000, 1500, 2000).close()
    written(tmp_path, restart=500).close()
    assert len(rows(tmp_path)) == 4, "nothing is removed before a new row"
    written(tmp_path, 1500, 2500, restart=1200).close()
    assert [(int(step), float(seconds)) for step, seconds, *_ in rows(tmp_path)] == [
        (500, 10.0),
        (1000, 20.0),
        (1500, 30.0),
        (2500, 40.0),
    ]
    written(tmp_path, 250).close()
    assert [row[0] for row in rows(tmp_path)] == ["250"], "a start without a checkpoint replaces the file"


def test_steps_only_grow(tmp_path: Path) -> None:
    """Remaining statistics at the end are not written under an existing step."""
    written(tmp_path, 500, 500, 400, 600).close()
    assert [row[0] for row in rows(tmp_path)] == ["500", "600"]


@pytest.mark.parametrize("damage", [b"500,10.0,half", b"\xff\xfe,,\n", b"nonsense\n\n", b"nan,inf,a,b,c,d\n"])
def test_a_damaged_file_is_gone_on_with(tmp_path: Path, damage: bytes) -> None:
    """New rows follow a damaged file, each on its own line."""
    written(tmp_path, 100).close()
    path = tmp_path / "Walker" / STATS_FILE
    path.write_bytes(path.read_bytes() + damage)
    written(tmp_path, 500, restart=200).close()
    assert path.read_bytes().splitlines()[-1].startswith(b"500,20.000,Environment/Cumulative Reward,500.0,1,0.0")


def test_a_full_disk_costs_rows_and_no_training(tmp_path: Path) -> None:
    """On a full disk whole rows are left out with one warning; later rows follow."""
    clock = Clock()
    writer = CsvWriter(tmp_path, clock=clock)
    stats = StatsReporter("Walker", [writer])
    stats.add_stat(REWARD, 1)
    stats.write_stats(1)
    with capture_logs() as logs, no_larger_than((tmp_path / "Walker" / STATS_FILE).stat().st_size + 5):
        for step in (2, 3):
            stats.add_stat(REWARD, step)
            stats.write_stats(step)
    assert [line["event"] for line in logs] == ["stats_not_written"]
    stats.add_stat(REWARD, 4)
    stats.write_stats(4)
    writer.close()
    assert [row[0] for row in rows(tmp_path)] == ["1", "4"]
