"""`rollcast-learner runs` and `compare`, as processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from learner.cli import main
from learner.commands.list_runs import age
from learner.common.exits import ExitCode
from tests.e2e.processes import ROOT, TRACEBACK, command_environment
from tests.learner.commands.runs.folders import curve_rows, progress_of, run_folder


def command(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs `rollcast-learner`."""
    program = Path(sys.executable).with_name("rollcast-learner")
    done = subprocess.run(
        [program, *arguments],
        cwd=cwd,
        env=command_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert TRACEBACK not in done.stderr
    return done


def with_curve(results: Path, name: str, values: list[float], behavior: str = "Walker") -> None:
    """Makes a run with a curve."""
    folder = results / name if (results / name).exists() else run_folder(results, name, progress=progress_of())
    (folder / behavior).mkdir()
    (folder / behavior / "stats.csv").write_text(curve_rows(values))


def test_runs_are_listed(tmp_path: Path) -> None:
    """One line each below the headings; names from outside cannot reach the terminal."""
    run_folder(tmp_path, "walker-1", progress=progress_of(steps=123456))
    run_folder(tmp_path, "evil\x1b[2J\n", progress=progress_of(mean=None, best=None))
    done = command("runs", "--results-dir", str(tmp_path))
    assert done.returncode == ExitCode.OK
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["run", "state", "reason", "starts", "steps", "trained", "of", "return", "best", "age"]
    assert len(lines) == 2
    walker = next(line for line in lines if line.startswith("walker-1"))
    assert walker.split()[1:7] == ["unknown", "1", "123,456", "1,000", "3.00", "7.50"]
    assert "\x1b" not in done.stdout


def test_runs_for_machines(tmp_path: Path) -> None:
    """Every field, under its name."""
    run_folder(tmp_path, "run", progress=progress_of())
    (row,) = json.loads(command("runs", "--json", "--results-dir", str(tmp_path)).stdout)
    assert (row["run_id"], row["env_steps_trained"], row["best_return"]) == ("run", 500, 7.5)


def test_where_nothing_is(tmp_path: Path) -> None:
    """An empty folder is no error; one that is not there is."""
    assert "no runs in" in command("runs", "--results-dir", str(tmp_path)).stdout
    assert command("runs", cwd=tmp_path).returncode == ExitCode.USAGE


@pytest.mark.slow
def test_hundreds_of_runs_cost_little_more_than_one(tmp_path: Path) -> None:
    """The list reads small files alone, whatever the sizes of the curves; the command never loads torch."""
    events = [{"event": "checkpoint", "step": step} for step in range(2000)]
    for number in range(300):
        run_folder(tmp_path / "many", f"run-{number}", progress=progress_of(), events=events)
    run_folder(tmp_path / "one", "run", progress=progress_of(), events=events)
    seconds = {}
    for name in ("one", "many"):
        tries = []
        for _ in range(3):
            before = os.times().children_user
            done = command("runs", "--results-dir", str(tmp_path / name))
            tries.append(os.times().children_user - before)
        seconds[name] = min(tries)
        assert len(done.stdout.splitlines()) == {"one": 2, "many": 301}[name]
    assert seconds["many"] < 4 * seconds["one"]


def test_help_and_lists_load_nothing_heavy(tmp_path: Path) -> None:
    """No torch, no matplotlib for a list; no torch for a picture."""
    with_curve(tmp_path, "run", [1.0, 2.0])
    program = (
        "import sys\nfrom learner.cli import main\n"
        f"main(['runs', '--results-dir', {str(tmp_path)!r}])\n"
        "assert not {'torch', 'matplotlib', 'tensorboard', 'grpc', 'pydantic'} & set(sys.modules), 'heavy'\n"
        f"main(['compare', 'run', '--results-dir', {str(tmp_path)!r}, '--out', {str(tmp_path / 'a.png')!r}])\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=ROOT)


def test_curves_are_drawn(tmp_path: Path) -> None:
    """A PNG of a useful size, with a colour for each run, that no reader of one kind of file is needed for."""
    with_curve(tmp_path, "low", [10.0 + number for number in range(30)])
    with_curve(tmp_path, "high", [100.0 - number % 7 for number in range(200)])
    done = command("compare", "low", "high", "--results-dir", str(tmp_path), "--out", str(tmp_path / "a.png"))
    assert (done.returncode, done.stdout) == (ExitCode.OK, f"{tmp_path / 'a.png'}\n"), done.stderr
    picture = matplotlib.image.imread(tmp_path / "a.png")[..., :3]
    assert picture.shape[0] >= 500
    assert picture.shape[1] >= 1000
    for color in ("#0072B2", "#D55E00"):
        wanted = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        near = np.abs(picture - wanted).max(axis=-1) < 0.02
        left, right = near[:, : near.shape[1] // 2].sum(), near[:, near.shape[1] // 2 :].sum()
        assert left > 50, color
        assert right > 50, color


def test_any_names_and_numbers_are_drawn(tmp_path: Path) -> None:
    """Signs that plotting libraries take for commands, one point, huge values, many runs, several behaviors."""
    for number in range(15):
        with_curve(tmp_path, f"run-{number}", [float(number)])
    with_curve(tmp_path, "_$x^{$\\frac", [1e300, -1e300])
    with_curve(tmp_path, "_$x^{$\\frac", [5.0, 6.0], behavior="Runner")
    names = [path.name for path in tmp_path.iterdir()]
    done = command("compare", *names, "--results-dir", str(tmp_path), "--out", str(tmp_path / "a.PNG"))
    assert done.returncode == ExitCode.OK, done.stderr
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody"], "there is no run 'nobody'"),
        (["run", "--key", "Losses"], "--key takes one of: Environment/Cumulative Reward"),
        (["run", "--out", "a.svg"], "must end in .png"),
        (["run", "--out", "nowhere/a.png"], "cannot be written: No such file"),
        ([], "RUN"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    """It names what is wrong and what to do."""
    with_curve(tmp_path / "results", "run", [1.0])
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *arguments]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_without_matplotlib(tmp_path: Path) -> None:
    """One line says what to install."""
    with_curve(tmp_path, "run", [1.0])
    program = (
        "import sys\nsys.modules['matplotlib'] = None\nfrom learner.cli import main\n"
        f"sys.exit(main(['compare', 'run', '--results-dir', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.MISSING_EXTRA
    assert "pip install '.[plots]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.2, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages(seconds: float | None, text: str) -> None:
    """In the one unit that people would use."""
    assert age(seconds) == text
