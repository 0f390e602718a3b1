"""Tests reading curves from `stats.csv`."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from learner.shared.exits import UserError
from learner.shared.observe import curves as module
from learner.shared.observe.csvfile import CsvWriter
from learner.shared.observe.curves import RETURN_KEY, read_curves, read_statistics
from learner.shared.observe.stats import StatsReporter
from tests.learner.start.run_folders import curve_rows, run_folder

LOSS = "Losses/Value Loss"


def stats(folder: Path, text: str | bytes, behavior: str = "Walker") -> None:
    """Writes statistics into a run."""
    (folder / behavior).mkdir(exist_ok=True)
    (folder / behavior / "stats.csv").write_bytes(text if isinstance(text, bytes) else text.encode())


def rows(points: Sequence[tuple[int, float, int]], key: str = RETURN_KEY) -> str:
    """Returns a `stats.csv` of steps, values and counts."""
    return "step,seconds,key,value,count,std\n" + "".join(
        f"{step},{step / 100},{key},{value},{count},0.5\n" for step, value, count in points
    )


def test_what_the_learner_writes_is_read(tmp_path: Path) -> None:
    """Values, steps and seconds of a statistic are read for each behavior."""
    folder = run_folder(tmp_path, "run")
    for name in ("Walker", "Runner"):
        writer = CsvWriter(folder)
        reporter = StatsReporter(name, [writer])
        for step in (100, 200):
            reporter.add_stat(RETURN_KEY, step / 4)
            reporter.add_stat("other", 1)
            reporter.write_stats(step)
        writer.close()
    curves = read_curves(folder, RETURN_KEY)
    assert [(curve.behavior, curve.steps, curve.values) for curve in curves] == [
        ("Runner", (100, 200), (25.0, 50.0)),
        ("Walker", (100, 200), (25.0, 50.0)),
    ]


def test_all_statistics_are_read_by_name(tmp_path: Path) -> None:
    """Each has a value for every step of any, NaN where it has none; a run without a summary has none."""
    folder = run_folder(tmp_path, "run")
    file = folder / "Walker" / "stats.csv"
    assert read_statistics(file) == {}
    stats(folder, rows([(2, 20.0, 1), (1, 10.0, 1)]) + rows([(2, 0.5, 1), (3, 0.25, 1)], LOSS) + "4,no,row\n")
    found = read_statistics(file)
    assert list(found) == ["step", "seconds", RETURN_KEY, LOSS]
    assert (found["step"], found["seconds"]) == ([1.0, 2.0, 3.0], [0.01, 0.02, 0.03])
    assert found[RETURN_KEY] == pytest.approx([10.0, 20.0, math.nan], nan_ok=True)
    assert found[LOSS] == pytest.approx([math.nan, 0.5, 0.25], nan_ok=True)


def test_a_point_is_the_mean_of_enough_episodes(tmp_path: Path) -> None:
    """Of the newest rows, as many are averaged by their counts as hold the number of episodes."""
    folder = run_folder(tmp_path, "run")
    points = [(1, 10.0, 4), (2, 20.0, 12), (3, 30.0, 25), (4, 90.0, 1), (5, 40.0, 9)]
    stats(folder, rows(points) + rows(points, LOSS))
    (curve,) = read_curves(folder, RETURN_KEY, episodes=10)
    # At 2, 12 of its own are enough; at 4, one episode needs the 25 before it; at 5, 9 + 1 are ten.
    assert curve.values == (10.0, 20.0, 30.0, (30.0 * 25 + 90.0) / 26, (90.0 + 40.0 * 9) / 10)
    (alone,) = read_curves(folder, RETURN_KEY, episodes=1)
    assert alone.values == (10.0, 20.0, 30.0, 90.0, 40.0)
    (loss,) = read_curves(folder, LOSS, episodes=10)
    assert loss.values == alone.values, "a loss counts no episodes"


@pytest.mark.parametrize(
    ("key", "last"),
    [
        ("Environment/Episode Length", 2.0),
        ("Environment/is_success", 2.0),
        ("Evaluation/Cumulative Reward", 2.0),
        ("Environment/Lesson Number/length", 3.0),
        ("Evaluation/Step", 3.0),
        ("Policy/Entropy", 3.0),
    ],
)
def test_statistics_of_episodes_are_averaged(tmp_path: Path, key: str, last: float) -> None:
    """Returns, lengths and infos have an episode behind each value; lessons, steps and what trainers report do not."""
    stats(run_folder(tmp_path, "run"), rows([(1, 1.0, 5), (2, 3.0, 5)], key))
    (curve,) = read_curves(tmp_path / "run", key, episodes=10)
    assert curve.values[-1] == last


def test_rows_without_sense_are_left_out(tmp_path: Path) -> None:
    """Invalid rows are skipped."""
    folder = run_folder(tmp_path, "run")
    damage = (
        f"x,1,{RETURN_KEY},1,1,1\n-5,1,{RETURN_KEY},1,1,1\n3000,nan,{RETURN_KEY},1,1,1\n4000,8,{RETURN_KEY},inf,1,1\n"
        f"{2**62},8,{RETURN_KEY},1,1,1\n3000,-1e308,{RETURN_KEY},1,1,1\n3000,8,{RETURN_KEY},1e308,1,1\n"
        f"5000,9,{RETURN_KEY},,0,\n6000,{RETURN_KEY}\n{'9' * 30},9,{RETURN_KEY},1,1,1\n{'z' * 300_000}\n"
        f"6000,9,{RETURN_KEY},1,0,1\n6000,9,{RETURN_KEY},1,-3,1\n6000,9,{RETURN_KEY},1,{'9' * 5000},1\n"
    )
    content = curve_rows([1.0, 2.0]).encode() + damage.encode() + b"\xff\x00,,\n7000,14,"
    stats(folder, content + RETURN_KEY.encode() + b",7.0,1,0\n")
    (curve,) = read_curves(folder, RETURN_KEY)
    assert (curve.steps, curve.values) == ((1000, 2000, 7000), (1.0, 2.0, 7.0))


def test_steps_and_time_ascend(tmp_path: Path) -> None:
    """Rows that go back in steps or in time are skipped."""
    text = rows([(100, 1.0, 1), (300, 2.0, 1), (300, 9.0, 1), (200, 9.0, 1)]) + f"400,2.5,{RETURN_KEY},9,1,0\n"
    stats(run_folder(tmp_path, "run"), text + f"500,5,{RETURN_KEY},3,1,0\n")
    (curve,) = read_curves(tmp_path / "run", RETURN_KEY)
    assert (curve.steps, curve.seconds, curve.values) == ((100, 300, 500), (1.0, 3.0, 5.0), (1.0, 2.0, 3.0))


def test_what_is_missing_is_told_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A missing run, file or key is reported with what exists, and a pipe in the place of the file is an error."""
    folder = run_folder(tmp_path, "run")
    with pytest.raises(UserError, match="there is no run 'walk'"):
        read_curves(tmp_path / "walk", RETURN_KEY)
    with pytest.raises(UserError, match=r"has no stats\.csv"):
        read_curves(folder, RETURN_KEY)
    stats(folder, curve_rows([1.0], key=LOSS), "Runner")
    with pytest.raises(UserError, match="--key takes one of: Losses/Value Loss"):
        read_curves(folder, RETURN_KEY)
    (folder / "Walker").mkdir()
    os.mkfifo(folder / "Walker" / "stats.csv")
    with pytest.raises(UserError, match="not a regular file"):
        read_curves(folder, RETURN_KEY)


def test_the_length_of_a_curve_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with more points than any run writes is an error, not a full memory."""
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    stats(run_folder(tmp_path, "run"), curve_rows([1.0, 2.0]))
    assert len(read_curves(tmp_path / "run", RETURN_KEY)[0].values) == 2
    stats(tmp_path / "run", curve_rows([1.0, 2.0, 3.0]))
    with pytest.raises(UserError, match="more than 2 values"):
        read_curves(tmp_path / "run", RETURN_KEY)
