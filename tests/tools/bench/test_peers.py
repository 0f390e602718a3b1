"""Tests reading the peers' output, and runs without a peer."""

from pathlib import Path

import pytest

from tests.tools.bench.environments import PeerEnvironment
from tests.tools.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    MeasurementFailed,
    Unavailable,
)
from tests.tools.bench.peer_sample_factory import read_log
from tests.tools.bench.peer_sb3 import read_result

LOG = """\x1b[36m[2026-01-01 10:00:00,000][7] All inference workers are ready! Signal rollout workers to start!\x1b[0m
[2026-01-01 10:00:02,000][7] Fps is (10 sec: nan, 60 sec: nan). Total num frames: 20000. Throughput: 0: nan.
[2026-01-01 10:00:02,001][7] Avg episode reward: [(0, '95.650')]
[2026-01-01 10:00:07,000][7] Fps is (10 sec: 6963.2, 60 sec: 6963.2). Total num frames: 70000. Throughput: 0: 8.
[2026-01-01 10:00:07,001][7] Avg episode reward: [(0, '480.000')]
[2026-01-01 10:00:12,000][7] Fps is (10 sec: 6963.2, 60 sec: 6963.2). Total num frames: 130000. Throughput: 0: 8.
"""


def test_sample_factory_is_read_from_its_log() -> None:
    """The rate is that between the first and last report; the time to the target counts from the first step."""
    figures = read_log(LOG, 12)
    assert figures.values[STEPS_PER_SECOND] == pytest.approx(11_000)
    assert figures.values[SECONDS_TO_TARGET] == pytest.approx(7.001)
    assert figures.values[STEPS_TO_TARGET] == 70_000


def test_a_target_that_was_not_reached_has_no_time() -> None:
    """Without reaching the target, the best return is shown."""
    figures = read_log(LOG.replace("480.000", "300.000"), 12)
    assert SECONDS_TO_TARGET not in figures.values
    assert figures.note == "not at 475 in 12 s, 300 at best"


def test_too_short_a_log_says_what_to_do() -> None:
    """A log with one report is an error with the next step."""
    with pytest.raises(MeasurementFailed, match=r"reported 1 times in 3 s; give it more --seconds"):
        read_log("\n".join(LOG.splitlines()[:3]), 3)


def test_stable_baselines3_is_read_from_its_last_line() -> None:
    """Warnings before the result are ignored."""
    figures = read_result('a warning\n{"steps_per_second": 5000.0, "seconds_to_target": 10.5, "steps": 52500}\n')
    assert figures.values == {STEPS_PER_SECOND: 5000.0, SECONDS_TO_TARGET: 10.5, STEPS_TO_TARGET: 52_500.0}
    missed = read_result('{"steps_per_second": 5000.0, "seconds_to_target": null, "steps": 400000}')
    assert missed.note == "not at 475 after 400,000 steps"


@pytest.mark.slow
def test_a_peer_that_cannot_be_installed_is_named(tmp_path: Path) -> None:
    """The message has pip's error, and the bench continues."""
    peer = PeerEnvironment(str(tmp_path / "venv"), "no-such-peer", (str(tmp_path / "no-such-folder"),))
    with pytest.raises(Unavailable, match=r"no-such-peer cannot be installed: pip ended .*[^$]*no-such-folder"):
        peer.ensure(tmp_path / "log")
