"""Tests the measurement of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.bench.measurement import Figures, Series
from tests.tools.bench.rank_runs import ROWS_PER_SECOND, RankUpdates, render
from tests.tools.bench.workplace import Workplace


def test_the_table_compares_two_with_one() -> None:
    """The ratio is that of the rounds that both have."""
    one, two = Series("mlp-1", "one"), Series("mlp-2", "two")
    for index, (slow, fast) in enumerate(((1000.0, 1500.0), (2000.0, 3400.0))):
        one.rounds.append(Figures({ROWS_PER_SECOND: slow}, round_index=index))
        two.rounds.append(Figures({ROWS_PER_SECOND: fast}, round_index=index))
    lines = render({each.name: each for each in (one, two)}).splitlines()
    assert "1.60 (1.50-1.70)" in lines[1]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_update(ranks: int, tmp_path: Path) -> None:
    """Real ranks train rows together."""
    run = RankUpdates(Workplace(tmp_path), "mlp", ranks, seconds=0.5)
    run.prepare()
    assert run.measure(0).values[ROWS_PER_SECOND] > 0
