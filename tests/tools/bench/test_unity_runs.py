"""Tests the results read from a player's episodes, and a short run through Rollcast's drop-in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.tools.bench import unity_runs
from tests.tools.bench.measurement import SECONDS_TO_TARGET, STEPS_PER_SECOND, STEPS_TO_TARGET, MeasurementFailed
from tests.tools.bench.mlagents_environment import MLAgentsEnvironment
from tests.tools.bench.unity_runs import RUN_FILE, read_episodes, rollcast
from tests.tools.bench.workplace import Workplace


def _episodes(*returns: float) -> list[str]:
    lines = ({"return": value, "decisions": 80 * n, "seconds": n / 10} for n, value in enumerate(returns, start=1))
    return [json.dumps(line) for line in lines]


def test_the_target_is_the_mean_of_a_hundred_episodes() -> None:
    """Steps and seconds are those of the first episode at which the mean reaches the target."""
    figures = read_episodes(_episodes(*[100.0] * 50, *[500.0] * 99, 500.0, 500.0))
    assert figures.values[STEPS_TO_TARGET] == 80 * 144
    assert figures.values[SECONDS_TO_TARGET] == pytest.approx(14.4)
    assert figures.values[STEPS_PER_SECOND] == pytest.approx(800)


def test_a_target_that_was_not_reached_is_said() -> None:
    """Without reaching the target, the number of steps is shown."""
    figures = read_episodes(_episodes(*[400.0] * 120))
    assert STEPS_TO_TARGET not in figures.values
    assert figures.note == "not at 475 after 9,600 steps"
    assert not read_episodes([]).values


def test_lines_of_something_else_are_refused() -> None:
    """A file that no player wrote is an error."""
    with pytest.raises(MeasurementFailed, match="not a line of a player"):
        read_episodes(["{}"])


@pytest.mark.slow
def test_a_run_through_the_drop_in_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of `mlagents-learn` starts a learner, a gateway and the player."""
    document = yaml.safe_load(RUN_FILE.read_text())
    document["behaviors"]["CartPole"]["max_steps"] = 3000
    short = tmp_path / "short.yaml"
    short.write_text(yaml.safe_dump(document))
    monkeypatch.setattr(unity_runs, "RUN_FILE", short)
    figures = rollcast(Workplace(tmp_path / "bench")).measure(0)
    assert figures.values[STEPS_PER_SECOND] > 0
    assert figures.note.startswith("not at 475")


def test_an_environment_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    """An existing environment is only asked for its version."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert MLAgentsEnvironment(str(tmp_path), "pip", ()).ensure(tmp_path / "log")
    assert not (tmp_path / "log").exists()
