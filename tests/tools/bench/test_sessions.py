"""Tests the measurement of many sessions, and runs each of its modes with a few."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.bench import session_runs
from tests.tools.bench.measurement import Figures, MeasurementFailed, Series
from tests.tools.bench.session_runs import CPU_SHARE, LOOP_SHARE, MODES, Load, contestants, is_back, measure_shares
from tests.tools.bench.session_table import render
from tests.tools.bench.workplace import Workplace

FEW = Load(sessions=6, seconds=3.0, period_seconds=0.5)


def test_all_are_back_once_each_sends_to_the_second_learner() -> None:
    """A report from before the kill, a missing session, and one of the first learner's count as not back."""
    report = {"at": 11.0, "present": 3, "oldest_generation": 2}
    assert is_back(report, 3, killed_at=10.0)
    assert not is_back(report, 3, killed_at=12.0)
    assert not is_back(report | {"present": 2}, 3, killed_at=10.0)
    assert not is_back(report | {"oldest_generation": 1}, 3, killed_at=10.0)


def test_shares_are_of_a_core() -> None:
    """A process that computes in its main thread uses a core, or what it gets of one, and nothing beside it."""
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        shares = measure_shares(spin.pid, 1.0)
    finally:
        spin.kill()
        spin.wait()
    assert 0 < shares[LOOP_SHARE] <= shares[CPU_SHARE] < 1.5
    idle = measure_shares(os.getpid(), 0.2)
    assert idle[CPU_SHARE] < 1.0
    with pytest.raises(MeasurementFailed, match="ended"):
        measure_shares(spin.pid, 0.0)


def test_the_table_has_what_was_measured() -> None:
    """Each mode has a line; figures that it lacks are left out."""
    series = Series("sessions-restart", "6 sessions, killed and restarted")
    series.rounds.append(Figures({session_runs.BACK_SECONDS: 4.25, session_runs.LOST: 0.0}))
    table = render({series.name: series})
    assert table.splitlines()[1].split()[-7:] == ["-", "-", "-", "4.2", "-", "-", "-"]
    assert "was too busy to measure" in table


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_few_sessions(mode: str, tmp_path: Path) -> None:
    """No session is lost, whatever the mode, and the generator says how late it is itself."""
    (run,) = contestants(Workplace(tmp_path), [mode], FEW)
    run.prepare()
    figures = run.measure(0).values
    assert figures[session_runs.LOST] == 0
    assert figures[session_runs.GENERATOR_LAG] > 0
    if mode == "restart":
        assert figures[session_runs.BACK_SECONDS] > figures[session_runs.LISTEN_SECONDS] > 0
    else:
        assert figures[session_runs.BREAKS] == 0
        assert figures[session_runs.CHUNKS] > 1
        assert figures[session_runs.RENEW_P99] > 0
        assert 0 < figures[session_runs.ACK_MEDIAN] <= figures[session_runs.ACK_P99]
        assert figures[session_runs.VERSIONS] > 0
        assert 0 < figures[session_runs.LOOP_SHARE] <= figures[session_runs.CPU_SHARE]
