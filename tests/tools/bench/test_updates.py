"""Tests the measurement of updates under a load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.bench.measurement import Figures, MeasurementFailed, Series
from tests.tools.bench.update_runs import (
    LOAD_BYTES,
    QUIET,
    TRAINERS_SHARE,
    UPDATES,
    Amount,
    UpdatesUnderLoad,
    figures_of,
)
from tests.tools.bench.update_table import render
from tests.tools.bench.workplace import Workplace


def test_rates_are_of_the_time_between_reports() -> None:
    """Ten versions in four seconds are 2.5 a second; pictures count over the time of their own generator."""
    before = ({"at": 1.0, "versions": 5}, {"at": 1.0, "acked_steps": 1000})
    after = ({"at": 5.0, "versions": 15}, {"at": 3.0, "acked_steps": 3000})
    figures = figures_of(before, after, service_share=0.5, trainers_seconds=2.0).values
    assert (figures[UPDATES], figures[TRAINERS_SHARE], figures[LOAD_BYTES]) == (2.5, 0.5, 7_056_000)
    with pytest.raises(MeasurementFailed, match="nothing was updated"):
        figures_of(before[:1], before[:1], 0.5, 2.0)
    with pytest.raises(MeasurementFailed, match="no picture was acked"):
        figures_of(before, (after[0], before[1]), 0.5, 2.0)


def test_the_table_compares_with_quiet() -> None:
    """The ratio is that of the rounds that both have."""
    quiet, loaded = Series(QUIET, "no load"), Series("updates-30", "load")
    for index, (one, other) in enumerate(((4.0, 3.0), (2.0, 2.0))):
        quiet.rounds.append(Figures({UPDATES: one}, round_index=index))
        loaded.rounds.append(Figures({UPDATES: other}, round_index=index))
    lines = render({each.name: each for each in (quiet, loaded)}).splitlines()
    assert "0.875 (0.750-1.000)" in lines[2]


@pytest.mark.slow
def test_a_load_arrives(tmp_path: Path) -> None:
    """Real sessions fill a replay memory while the other behavior is updated."""
    run = UpdatesUnderLoad(Workplace(tmp_path), Amount("updates-few", 5.0), sessions=3, seconds=2.0)
    run.prepare()
    figures = run.measure(0).values
    assert figures[UPDATES] > 0
    assert figures[LOAD_BYTES] > 0
