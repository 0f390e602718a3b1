"""Curves from `stats.csv`."""

import os
from pathlib import Path

import pytest

from learner.commands.compare_runs import RETURN_KEY, compare, read_curves
from learner.common.exits import ExitCode, UserError
from learner.observe.csvfile import CsvWriter
from learner.observe.stats import StatsReporter
from tests.learner.commands.run_folders import curve_rows, run_folder


def stats(folder: Path, text: str | bytes, behavior: str = "Walker") -> None:
    """Puts statistics into a run."""
    (folder / behavior).mkdir(exist_ok=True)
    (folder / behavior / "stats.csv").write_bytes(text if isinstance(text, bytes) else text.encode())


def test_what_the_learner_writes_is_read(tmp_path: Path) -> None:
    """Values, steps and seconds of one statistic, for each behavior that has it."""
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


def test_rows_without_sense_are_left_out(tmp_path: Path) -> None:
    """Damage costs rows, never the picture."""
    folder = run_folder(tmp_path, "run")
    damage = (
        f"x,1,{RETURN_KEY},1,1,1\n-5,1,{RETURN_KEY},1,1,1\n3000,nan,{RETURN_KEY},1,1,1\n4000,8,{RETURN_KEY},inf,1,1\n"
        f"5000,9,{RETURN_KEY},,0,\n6000,{RETURN_KEY}\n{'9' * 30},9,{RETURN_KEY},1,1,1\n{'z' * 300_000}\n"
    )
    content = curve_rows([1.0, 2.0]).encode() + damage.encode() + b"\xff\x00,,\n7000,14,"
    stats(folder, content + RETURN_KEY.encode() + b",7.0,1,0\n")
    (curve,) = read_curves(folder, RETURN_KEY)
    assert (curve.steps, curve.values) == ((1000, 2000, 7000), (1.0, 2.0, 7.0))


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    """No such run, no statistics, no such key: each says what there is instead."""
    folder = run_folder(tmp_path, "run")
    with pytest.raises(UserError, match="there is no run 'walk'") as caught:
        read_curves(tmp_path / "walk", RETURN_KEY)
    assert caught.value.exit_code is ExitCode.USAGE
    with pytest.raises(UserError, match=r"has no stats\.csv"):
        read_curves(folder, RETURN_KEY)
    stats(folder, curve_rows([1.0], key="Losses/Value Loss"))
    with pytest.raises(UserError, match="--key takes one of: Losses/Value Loss"):
        read_curves(folder, RETURN_KEY)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """What stands in the place of the file is named."""
    folder = run_folder(tmp_path, "run")
    (folder / "Walker").mkdir()
    os.mkfifo(folder / "Walker" / "stats.csv")
    with pytest.raises(UserError, match="no regular file"):
        read_curves(folder, RETURN_KEY)


def test_absurd_numbers_are_left_out(tmp_path: Path) -> None:
    """What matplotlib could not draw costs its rows, never the picture."""
    folder = run_folder(tmp_path, "run")
    absurd = "".join(
        f"{step},{seconds},{RETURN_KEY},{value},1,1\n"
        for step, seconds, value in (
            (2**62, 8, 1), (3000, 1e308, 1), (3000, -1e308, 1), (3000, 8, 1e308), (3000, 8, -1e308)
        )
    )  # fmt: skip
    stats(folder, (curve_rows([1.0, 2.0]) + absurd).encode())
    (curve,) = read_curves(folder, RETURN_KEY)
    assert (curve.steps, curve.values) == ((1000, 2000), (1.0, 2.0))
    assert compare(tmp_path, ["run"], RETURN_KEY, tmp_path / "out.png").exists()
