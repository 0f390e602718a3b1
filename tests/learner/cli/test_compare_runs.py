"""Tests comparisons of runs over their seeds, from folders with what a learner writes."""

import json
import os
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from learner.cli.cli import main
from learner.shared.exits import ExitCode
from learner.shared.observe.curves import RETURN_KEY
from tests.learner.start.run_folders import curve_rows, trained_run

RATE = "behaviors.Walker.hyperparameters.learning_rate=1e-5"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes five runs of one configuration and three of another in `results`, from whose parent commands are run."""
    results = tmp_path / "results"
    for seed, last in enumerate((10.0, 20.0, 30.0, 40.0, 500.0), start=1):
        trained_run(results, f"base-{seed}", {"Walker": [0.0, last / 2, last]}, seed=seed)
    for seed, last in enumerate((35.0, 45.0, 55.0), start=1):
        trained_run(results, f"slow-{seed}", {"Walker": [0.0, last / 2, last, last]}, RATE, seed=seed)
    monkeypatch.chdir(tmp_path)
    return results


BASE = [f"base-{seed}" for seed in range(1, 6)]
SLOW = [f"slow-{seed}" for seed in range(1, 4)]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns what `rollcast compare` prints."""
    assert main(["compare", *arguments]) == ExitCode.OK
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the one line of an error of the command line."""
    assert main(["compare", *arguments]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert not out
    return line


def test_groups_are_compared(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has IQM, interval, median, mean, extremes, steps, and the probability of being better than the first."""
    title, heading, base, slow, differs, _, note = told(capsys, *BASE, *SLOW).splitlines()
    assert title == "Walker: mean training return at the end of each run"
    assert re.split(r"\s{2,}", heading) == [
        "group", "seeds", "IQM", "95 % interval", "median", "mean", "min", "max", "steps", "better than the first",
    ]  # fmt: skip
    # IQM of 10, 20, 30, 40, 500: one is left out on each side; the mean is 120. Of 15 pairs, 3 + 4 + 4 are won.
    assert re.fullmatch(r"base +5 +30\.00 +\[\S+, \S+\] +30\.00 +120\.0 +10\.00 +500\.0 +3,000 +-", base)
    assert re.fullmatch(
        r"slow +3 +45\.00 +\[35\.00, 55\.00\] +45\.00 +45\.00 +35\.00 +55\.00 +4,000 +0\.73 \[.*\]", slow
    )
    assert differs == "  hyperparameters.learning_rate: 0.0003 | 1e-05"
    assert note.startswith("note: groups with fewer than 5 seeds")
    assert len(told(capsys, *BASE).splitlines()) == 3, "neither a comparison nor a note"


def test_machines_get_every_number(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the rows, the runs with seeds and curves, and the curve of the group."""
    document = json.loads(told(capsys, *BASE, *SLOW, "--json"))
    assert (document["key"], document["by"], document["confidence"]) == (RETURN_KEY, "settings", 0.95)
    base, slow = document["behaviors"]["Walker"]
    assert (base["group"], base["seeds"], base["iqm"], base["min"], base["steps"]) == (
        "base",
        5,
        30.0,
        10.0,
        [3000, 3000],
    )
    assert base["interval"]["low"] < 30 < base["interval"]["high"]
    assert base["improvement"] is None
    assert slow["improvement"] == pytest.approx(11 / 15)
    assert slow["settings"] == {"hyperparameters.learning_rate": "1e-05"}
    assert (base["scores"], slow["scores"]) == ([10, 20, 30, 40, 500], [35, 45, 55])
    assert [run["seed"] for run in base["runs"]] == [1, 2, 3, 4, 5]
    assert slow["runs"][0] | {"run": ""} == {
        "run": "", "seed": 1, "steps": [1000, 2000, 3000, 4000], "values": [0, 17.5, 35, 35],
    }  # fmt: skip
    assert base["curve"]["steps"] == [1000, 2000, 3000]
    assert base["curve"]["iqm"] == [0, 15, 30]
    assert base["curve"]["low"][2] == base["interval"]["low"], "the end of the curve is the table's"
    assert told(capsys, *BASE, *SLOW, "--json") == json.dumps(document, indent=2) + "\n", "numbers repeat"


def test_a_step_can_be_chosen(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--at`, runs of different length are compared at the newest points up to one step."""
    text = told(capsys, *BASE, *SLOW, "--at", "2.5e3")
    assert "Walker: mean training return at step 2,500" in text
    assert re.search(r"base +5 +15\.00 .* 2,000 +-\n", text)
    assert "the curve of base-1 is from step 1,000 to 3,000" in error(capsys, *BASE, *SLOW, "--at", "4000")
    assert "from step 1,000 to" in error(capsys, *BASE, "--at", "999")


def test_behaviors_are_compared_on_their_own_and_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each behavior has a table; with scales, one over all behaviors has normalized scores."""
    for trainer, gain in (("ppo", 0.0), ("sac", 4.0)):
        for seed in (1, 2):
            returns = {"Walker": [seed + gain], "Runner": [100.0 * (seed + gain)]}
            trained_run(tmp_path, f"{trainer}-{seed}", returns, seed=seed, trainer=trainer)
    runs = ["--results-dir", str(tmp_path), "ppo-1", "ppo-2", "sac-1", "sac-2"]
    text = told(capsys, *runs)
    assert re.findall(r"^(\w+): mean", text, re.MULTILINE) == ["Runner", "Walker"]
    assert "Walker" not in told(capsys, *runs, "--behavior", "Runner")
    scaled = [*runs, "--by", "trainer_type", "--scale", "Walker=0,10", "--scale", "Runner=0,2000"]
    ppo, sac = json.loads(told(capsys, *scaled, "--json"))["normalized"]
    # ppo: 0.1 and 0.2 of Walker, 0.05 and 0.1 of Runner: one is left out on each side.
    assert (ppo["group"], ppo["seeds"], ppo["iqm"]) == ("trainer_type=ppo", 4, pytest.approx(0.1))
    assert (sac["iqm"], sac["improvement"]) == (pytest.approx((0.3 + 0.5) / 2), 1.0)
    assert "all behaviors: normalized mean training return" in told(capsys, *scaled)
    assert "for each compared behavior, Runner, Walker" in error(capsys, *runs, "--scale", "Walker=0,1")
    trained_run(tmp_path, "other", {"Jumper": [1.0]})
    alone = ["--results-dir", str(tmp_path), "ppo-1", "other", "--by", "run"]
    scales = [f"--scale={name}=0,1" for name in ("Runner", "Walker", "Jumper")]
    assert "no group has runs of every behavior" in error(capsys, *alone, *scales)


def test_a_run_counts_once(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run named twice, or by its path too, is one seed; two runs with one seed are noted."""
    assert re.search(r"^base-1 +1 ", told(capsys, "base-1", "base-1", "results/base-1"), re.MULTILINE)
    os.chdir(results)
    assert told(capsys, *BASE) == told(capsys, *BASE, "--results-dir", "."), "a run in the current folder is found"
    trained_run(results, "base-9", {"Walker": [1.0]}, seed=1)
    assert "base has the seed 1 more than once" in told(capsys, "base-1", "base-9")


def test_unfinished_runs_are_noted(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was killed or failed is compared, and named."""
    (results / "base-1" / "events.jsonl").write_text('{"event": "failed", "reason": "error", "generation": 1}\n')
    (results / "base-2" / "events.jsonl").write_text('{"event": "finished", "reason": "max_steps", "generation": 1}\n')
    text = told(capsys, *BASE)
    assert "note: base-1 is failed: it is compared up to its newest summary" in text
    assert "base-2" not in text


def test_curves_are_drawn(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--svg` writes a picture with a line and a band for each group, against steps or time."""
    text = told(capsys, *BASE, *SLOW, "--svg", "curves.svg")
    assert text == told(capsys, *BASE, *SLOW)
    root = ET.fromstring(Path("curves.svg").read_text())  # noqa: S314 - we wrote it
    namespace = "{http://www.w3.org/2000/svg}"
    assert len(list(root.iter(f"{namespace}polygon"))) == 2
    assert len(list(root.iter(f"{namespace}polyline"))) == 2 + 5 + 3
    words = [text.text for text in root.iter(f"{namespace}text")]
    assert {"Walker", "base", "slow", "environment steps", "mean training return"} <= set(words)
    told(capsys, *BASE, "--svg", "time.svg", "--x", "time")
    assert "minutes since the first actor joined" in Path("time.svg").read_text()
    os.mkfifo("pipe")
    for name, target in (("to-pipe", "pipe"), ("to-null", os.devnull), ("to-svg", "time.svg")):
        Path(name).symlink_to(target)
    for name in ("pipe", "to-pipe", "to-null"):
        assert main(["compare", *BASE, "--svg", name]) == ExitCode.NOT_SAVED
        assert f"{name} cannot be written: not a regular file" in capsys.readouterr().err
    told(capsys, *BASE, "--svg", "to-svg")
    assert Path("to-svg").is_symlink()
    assert "environment steps" in Path("time.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["base-1", "--key", "Losses"], "--key takes one of: Environment/Cumulative Reward"),
        (["base-1", "--behavior", "Runner"], "the runs have only Walker"),
        (["base-1", "--by", "trainer"], "did you mean trainer_type?"),
        (
            ["base-1", "--svg", "results/base-1/configuration.yaml"],
            "--svg results/base-1/configuration.yaml exists and is no SVG",
        ),
        (["base-1", "--scale", "Walker=1,1"], "two different numbers"),
        (["base-1", "--scale", "Walker=0,nan"], "two different numbers"),
        (["base-1", "--window", "0"], "from 1 to 1000"),
        (["base-1", "--at", "inf"], "not a number of environment steps"),
        ([], "RUN"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    results: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """The error names the cause and the next step in one line."""
    assert said in error(capsys, *arguments)


def test_random_damage(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files with random changes are compared, or refused in one line."""
    random_ = random.Random(1)
    files = [results / "base-1" / name for name in ("configuration.yaml", "Walker/stats.csv")]
    contents = [file.read_bytes() for file in files]
    for _ in range(60):
        for file, content in zip(files, contents, strict=True):
            damaged = bytearray(content)
            for _ in range(3):
                damaged[random_.randrange(len(damaged))] = random_.randrange(256)
            file.write_bytes(damaged)
        code = main(["compare", "base-1", "base-2", "--svg", "damaged.svg"])
        out, err = capsys.readouterr()
        assert len(err.splitlines()) == (0 if code == ExitCode.OK else 1)
        assert code in {ExitCode.OK, ExitCode.USAGE, ExitCode.RUN_FILE}
        assert (out + err).replace("\n", "").isprintable()


def test_hostile_names_obey_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in names of runs and folders reach neither the terminal nor the picture."""
    folder = trained_run(tmp_path, "good", {"Walker": [1.0, 2.0]}).rename(tmp_path / "evil\x1b[2J")
    (folder / "Walker").rename(folder / "<b>\x1b]0;x\x07")
    (folder / os.fsdecode(b"\xff")).mkdir()
    (folder / os.fsdecode(b"\xff") / "stats.csv").write_text(curve_rows([1.0, 2.0]))
    out = told(capsys, folder.name, "--results-dir", str(tmp_path), "--svg", str(tmp_path / "a.svg"))
    assert "<b>\\x1b]0;x\\x07: mean" in out
    assert "\\udcff: mean" in out
    assert out.replace("\n", "").isprintable()
    ET.fromstring((tmp_path / "a.svg").read_text())  # noqa: S314 - we wrote it
    json.loads(told(capsys, folder.name, "--results-dir", str(tmp_path), "--json"))
