"""Tests the computations of figures that are published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.bench import hostile
from tests.tools.bench.callback.learner_clock import FILE
from tests.tools.bench.learner_cpu import CPU_SECONDS, STEPS, UPDATES, layout, read_clock
from tests.tools.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    Figures,
    MeasurementFailed,
    Series,
    Unavailable,
)
from tests.tools.bench.peer_runs import read_log, read_result
from tests.tools.bench.rollcast_run import read_summary
from tests.tools.bench.rounds import measure
from tests.tools.bench.table import compare
from tests.tools.bench.tls_runs import BYTES_PER_SECOND, CPU_SECONDS_PER_GB, ingest_figures
from tests.tools.bench.unity_runs import read_episodes

LOG = """\x1b[36m[2026-01-01 10:00:00,000][7] All inference workers are ready! Signal rollout workers to start!\x1b[0m
[2026-01-01 10:00:02,000][7] Fps is (10 sec: nan, 60 sec: nan). Total num frames: 20000. Throughput: 0: nan.
[2026-01-01 10:00:02,001][7] Avg episode reward: [(0, '95.650')]
[2026-01-01 10:00:07,000][7] Fps is (10 sec: 6963.2, 60 sec: 6963.2). Total num frames: 70000. Throughput: 0: 8.
[2026-01-01 10:00:07,001][7] Avg episode reward: [(0, '480.000')]
[2026-01-01 10:00:12,000][7] Fps is (10 sec: 6963.2, 60 sec: 6963.2). Total num frames: 130000. Throughput: 0: 8.
"""


def series(name: str, *values: float | None) -> Series:
    """Returns one round a value; a round without one failed."""
    rounds = [Figures({CPU_SECONDS: value, UPDATES: 24.0}, round_index=n) for n, value in enumerate(values) if value]
    return Series(name, name, rounds)


def test_the_warm_up_does_not_count(tmp_path: Path) -> None:
    """The span starts with the first update after a tenth of the steps; a replay trainer's steps follow from its updates."""
    file = tmp_path / FILE
    file.write_text("[[1, 4000, 90.0, 5.0], [3, 10000, 100.0, 10.0], [43, 100000, 101.8, 12.0]]", encoding="utf-8")
    values = read_clock(file).values
    assert (values[STEPS], values[UPDATES], values[STEPS_PER_SECOND]) == (90_000, 43, 45_000)
    assert values[CPU_SECONDS] == pytest.approx(2.0)
    file.write_text("[[80, 200, 10.0, 1.0], [100, 264, 10.0, 2.0], [1000, 2000, 12.0, 4.0]]", encoding="utf-8")
    values = read_clock(file, steps_per_update=2).values
    assert (values[STEPS], values[UPDATES]) == (1840, 50_000)
    assert values[CPU_SECONDS] == pytest.approx(2.0 / 0.0184)
    file.write_text("[[1, 4000, 1.0, 1.0]]", encoding="utf-8")
    with pytest.raises(MeasurementFailed, match="too few"):
        read_clock(file)


def test_ratios_are_of_the_second_over_the_first() -> None:
    """A failed round of one side does not shift the later pairs, and the table shows median and range."""
    ratio = compare(series("a", 1.0, None, 4.0), series("b", 2.0, 5.0, 12.0), CPU_SECONDS)
    assert ratio is not None
    assert ratio[0] == 2.0
    assert ratio[1] is not None
    assert (ratio[1].median, ratio[1].lowest, ratio[1].highest, ratio[1].count) == (2.5, 2.0, 3.0, 2)
    assert compare(series("a", 1.0, None), series("b", None, 3.0), CPU_SECONDS) == (3.0, None)
    assert compare(series("a", 1.0), series("b", None), CPU_SECONDS) is None
    both = series("cartpole-fast", 1.0, 2.0), series("cartpole-fast-against", 0.9, 2.0)
    row = layout(is_pair=True).render({each.name: each for each in both}).splitlines()[1]
    for shown in ("1.50 (1.00-2.00)", "1.45 (0.90-2.00)", "0.967", "0.950 (0.900-1.000)"):
        assert f"  {shown}" in row


def test_a_target_is_reached_at_the_hundredth_episode() -> None:
    """Steps and seconds are those at which the mean of a hundred episodes of a player reaches the target."""
    returns = [100.0] * 50 + [500.0] * 101
    lines = [
        json.dumps({"return": value, "decisions": 80 * n, "seconds": n / 10}) for n, value in enumerate(returns, 1)
    ]
    values = read_episodes(lines).values
    assert (values[STEPS_TO_TARGET], values[SECONDS_TO_TARGET]) == (80 * 144, 14.4)
    assert STEPS_TO_TARGET not in read_episodes(lines[:140]).values
    with pytest.raises(MeasurementFailed, match="not a line of a player"):
        read_episodes(["{}"])


def test_peers_are_read_from_their_output() -> None:
    """Sample Factory's rate is that between the first and last report, and its time counts from the first step."""
    values = read_log(LOG).values
    assert (values[STEPS_PER_SECOND], values[STEPS_TO_TARGET]) == (11_000, 70_000)
    assert values[SECONDS_TO_TARGET] == pytest.approx(7.001)
    assert SECONDS_TO_TARGET not in read_log(LOG.replace("480.000", "300.000")).values
    found = read_result('a warning\n{"steps_per_second": 5000.0, "seconds_to_target": 10.5, "steps": 52500}\n')
    assert found.values == {STEPS_PER_SECOND: 5000.0, SECONDS_TO_TARGET: 10.5, STEPS_TO_TARGET: 52_500.0}


def test_a_summary_that_contradicts_itself_is_refused() -> None:
    """A hundred episodes of 475 need 47,500 steps."""
    summary = {"env_steps_taken": 60_000, "env_steps_per_second": 5e4, "seconds_to_target": 1.2}
    assert read_summary(summary | {"env_steps_to_target": 47_500}).values[STEPS_TO_TARGET] == 47_500
    with pytest.raises(MeasurementFailed, match="counted wrongly"):
        read_summary(summary | {"env_steps_to_target": 47_499})


def test_rates_are_of_the_time_between_reports() -> None:
    """Bytes count as acked."""
    figures = ingest_figures({"at": 1.0, "acked_steps": 1000}, {"at": 3.0, "acked_steps": 3000}, 0.5).values
    assert figures[BYTES_PER_SECOND] == 7_056_000
    assert figures[CPU_SECONDS_PER_GB] == pytest.approx(0.5 / 0.007056)


def test_acks_of_quiet_and_hostile_blocks_are_compared() -> None:
    """99 % of the acks came within the 99th of a hundred; what is above a limit is not met."""
    assert hostile.p99([float(n) for n in range(1, 101)]) == 99.0
    quiet, noisy = [0.002] * 99 + [0.05], [0.004] * 99 + [1.5]
    blocks = [hostile.Block(False, quiet, [100, 102]), hostile.Block(True, noisy, [151])]
    found = hostile.document(blocks, 475.0, {"R1 ok": 3})
    assert (found["hostile_seconds"]["median"], found["memory_above_quiet_bytes"]) == (0.004, 50)
    assert [check["is_met"] for check in found["checks"]] == [True, True, False, True, True]
    assert not hostile.is_met(found)


class Scripted:
    """A contestant that follows the test.

    Args:
        name: Its name and title.
        calls: Receives its calls.
        failing_round: The round that brings nothing.
    """

    def __init__(self, name: str, calls: list[str], failing_round: int | None = None) -> None:
        self.name = self.title = name
        self._calls = calls
        self._failing_round = failing_round

    def prepare(self) -> None:
        """Fails if its name says so."""
        if self.name == "missing":
            raise Unavailable("not for this machine")

    def measure(self, round_index: int) -> Figures:
        """Records the round."""
        self._calls.append(f"{self.name}{round_index}")
        if round_index == self._failing_round:
            raise MeasurementFailed("it broke\nwith details")
        return Figures({STEPS_PER_SECOND: 100.0 + round_index})


def test_rounds_alternate_and_go_on_after_a_failure() -> None:
    """Every second round goes backwards; a missing peer or a failed round does not end the bench."""
    calls: list[str] = []
    results: dict[str, Series] = {}
    contestants = [Scripted("a", calls), Scripted("missing", calls), Scripted("b", calls, failing_round=0)]
    measure(contestants, 2, results, lambda line: None, idle_seconds=0.0)
    assert calls == ["a0", "b0", "b1", "a1"]
    assert [figures.round_index for figures in results["b"].rounds] == [1]
    assert results["b"].failures == ["round 1: it broke"]
    assert results["missing"].unavailable == "not for this machine"
