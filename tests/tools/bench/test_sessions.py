"""Runs each mode of the measurement of many sessions with a few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.bench import session_runs
from tests.tools.bench.processes import Workplace
from tests.tools.bench.session_runs import MODES, Load, contestants, is_back

FEW = Load(sessions=6, seconds=3.0, period_seconds=0.5)


def test_all_are_back_once_each_sends_to_the_second_learner() -> None:
    """A report from before the kill, a missing session, and one of the first learner's count as not back."""
    report = {"at": 11.0, "present": 3, "oldest_generation": 2}
    assert is_back(report, 3, killed_at=10.0)
    assert not is_back(report, 3, killed_at=12.0)
    assert not is_back(report | {"present": 2}, 3, killed_at=10.0)
    assert not is_back(report | {"oldest_generation": 1}, 3, killed_at=10.0)


@pytest.mark.parametrize("mode", MODES)
def test_a_few_sessions(mode: str, tmp_path: Path) -> None:
    """No session is lost, whatever the mode, and the generator says how late it is itself."""
    (run,) = contestants(Workplace(tmp_path), [mode], FEW)
    run.prepare()
    figures = run.measure(0).values
    assert figures[session_runs.LOST] == 0
    assert figures[session_runs.GENERATOR_LAG] > 0
    if mode == "restart":
        assert figures[session_runs.BACK_SECONDS] > 0
    else:
        assert figures[session_runs.CHUNKS] > 1
        assert figures[session_runs.RENEW_P99] > 0
        assert 0 < figures[session_runs.ACK_MEDIAN] <= figures[session_runs.ACK_P99]
        assert figures[session_runs.VERSIONS] > 0
        assert figures[session_runs.CPU_SHARE] > 0
