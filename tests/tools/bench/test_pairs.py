"""Tests the measurement of settings that must cost little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.bench import pair_runs
from tests.tools.bench.learner_cpu import CPU_SECONDS
from tests.tools.bench.measurement import STEPS_PER_SECOND, Figures, Series
from tests.tools.bench.pair_runs import PAIRS, contestants, render
from tests.tools.bench.workplace import Workplace


def test_the_table_compares_pairs() -> None:
    """The ratio is that of the second side over the first, of the rounds that both have."""
    names = PAIRS[0].names()
    sides = [Series(name, name) for name in names]
    for index, costs in enumerate(((2.0, 2.2), (4.0, 4.0))):
        for side, cost in zip(sides, costs, strict=True):
            side.rounds.append(Figures({CPU_SECONDS: cost, STEPS_PER_SECOND: 1000 / cost}, round_index=index))
    lines = render(dict(zip(names, sides, strict=True))).splitlines()
    assert "1.050 (1.000-1.100)" in lines[1]
    assert "0.955 (0.909-1.000)" in lines[2]


@pytest.mark.slow
def test_both_sides_of_a_board_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes train a game with and without opponents, whose games are played only on one side."""
    pair = PAIRS[-1]
    settings = (*pair.row.settings, "hyperparameters.buffer_size=256", "hyperparameters.batch_size=128")
    short = replace(pair, row=replace(pair.row, steps=3000, settings=settings))
    often = ("rollcast.evaluation.interval_steps=600", *pair.sides[1][1][1:])
    monkeypatch.setattr(pair_runs, "PAIRS", (replace(short, sides=(pair.sides[0], ("opponents", often))),))
    workplace = Workplace(tmp_path)
    for side in contestants(workplace):
        assert side.measure(0).values[CPU_SECONDS] > 0
    games = [(workplace.runs / f"{name}-0" / "Shogi" / "games").exists() for name in pair.names()]
    assert games == [False, True]
