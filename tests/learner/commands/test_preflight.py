"""What would keep a run from starting is found without starting it, and without a trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from learner.app import serve
from learner.cli import add_mlagents_flags, main
from learner.common.exits import ExitCode, UserError
from learner.settings.layers import FLAGS
from learner.settings.load import load_run_options
from learner.settings.service import OWN_STATS_WRITERS
from learner.status.writers import _OWN

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """A run file with one behavior, of a build."""
    path = tmp_path / "run.yaml"
    path.write_text("behaviors:\n  Ball:\n    trainer_type: ppo\nenv_settings:\n  env_path: Build\n  num_envs: 2\n")
    return path


def _check(run_file: Path, *arguments: str) -> int:
    results = run_file.parent / "results"
    return main(["check-config", str(run_file), "--json", "--results-dir", str(results), "--can-start", *arguments])


def test_a_run_that_can_start(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings are printed, and no run folder is made."""
    assert _check(run_file, "--run-id", "x") == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["env_settings"]["num_envs"] == 2
    assert list(run_file.parent.iterdir()) == [run_file]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--run-id", "there"], ExitCode.RUN_FOLDER_EXISTS),
        (["--run-id", "there", "--force"], ExitCode.OK),
        (["--run-id", "there", "--resume=auto"], ExitCode.OK),
        (["--run-id", "there", "--resume"], ExitCode.NOTHING_TO_RESUME),
        (["--run-id", "new", "--resume"], ExitCode.NOTHING_TO_RESUME),
        (["--run-id", "new", "--initialize-from", "nobody"], ExitCode.NOTHING_TO_RESUME),
        (["--run-id", "new", "--resume", "--force"], ExitCode.USAGE),
    ],
)
def test_the_run_folder_is_looked_at(
    run_file: Path, arguments: list[str], code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same codes as a start's, in one line, and nothing in the folder is touched."""
    behavior = run_file.parent / "results" / "there" / "Ball"
    behavior.mkdir(parents=True)
    (behavior / "stats.csv").write_text("step\n")
    assert _check(run_file, *arguments) == code
    captured = capsys.readouterr()
    if code is not ExitCode.OK:
        assert captured.out == ""
        assert len(captured.err.splitlines()) == 1
    assert [path.name for path in (run_file.parent / "results" / "there").rglob("*")] == ["Ball", "stats.csv"]


def test_what_is_not_built_is_refused(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `serve` refuses it; without --can-start the settings are shown all the same."""
    assert _check(run_file, "--set", "default_settings.trainer_type=poca") == ExitCode.RUN_FILE
    assert "default_settings.trainer_type" in capsys.readouterr().err


def test_logs_of_players_alone_are_no_run(run_file: Path) -> None:
    """What players wrote before the learner ended at its start does not keep the next start from the folder."""
    logs = run_file.parent / "results" / "x" / "run_logs"
    logs.mkdir(parents=True)
    (logs / "Player-0.log").write_text("no trainer\n")
    assert _check(run_file, "--run-id", "x") == ExitCode.OK


def test_flags_of_mlagents_win_over_the_file(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Even where one says no more than the default; --env-args takes all that follows."""
    assert _check(run_file, "--num-envs=1", "--time-scale", "3", "--env-args", "--level", "-3", "--seed") == ExitCode.OK
    settings = json.loads(capsys.readouterr().out)
    assert settings["env_settings"]["num_envs"] == 1
    assert settings["env_settings"]["env_args"] == ["--level", "-3", "--seed"]
    assert settings["engine_settings"]["time_scale"] == 3.0


def test_every_flag_of_mlagents_sets_something() -> None:
    """Each goes to a value of the run file."""
    import argparse

    parser = argparse.ArgumentParser(add_help=False)
    add_mlagents_flags(parser)
    names = {option.removeprefix("--") for action in parser._actions for option in action.option_strings}
    assert names
    assert names <= set(FLAGS)


@pytest.mark.parametrize("block", ["behavioral_cloning", "gail"])
def test_demonstrations_that_are_not_there(run_file: Path, capsys: pytest.CaptureFixture[str], block: str) -> None:
    """A path without a file or folder is named by its setting; what is there may start."""
    demonstrations = run_file.parent / "expert.demo"
    setting = "reward_signals.gail" if block == "gail" else block
    run_file.write_text(
        "behaviors:\n  Ball:\n    trainer_type: ppo\n"
        + (f"    reward_signals: {{gail: {{demo_path: {demonstrations}}}}}\n" if block == "gail" else "")
        + (f"    behavioral_cloning: {{demo_path: {demonstrations}}}\n" if block != "gail" else "")
    )
    assert _check(run_file) == ExitCode.RUN_FILE
    assert f"behaviors.Ball.{setting}.demo_path: {demonstrations} does not exist" in capsys.readouterr().err
    demonstrations.touch()
    assert _check(run_file) == ExitCode.OK


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("stats_writers: [csv, tensorbord]", "rollcast.stats_writers names 'tensorbord', which nothing installed here"),
        (
            "callbacks: ['nosuchmod:x']",
            "rollcast.callbacks names 'nosuchmod:x' (nosuchmod:x), which cannot be imported",
        ),
    ],
)
def test_code_that_is_not_there(run_file: Path, capsys: pytest.CaptureFixture[str], block: str, said: str) -> None:
    """check-config tells of it; --can-start and `serve` refuse it, and no run folder is made."""
    run_file.write_text(f"{run_file.read_text()}rollcast: {{{block}}}\n")
    assert main(["check-config", str(run_file)]) == ExitCode.OK
    assert f"serve would refuse: {said}" in capsys.readouterr().err
    assert _check(run_file) == ExitCode.RUN_FILE
    assert said in capsys.readouterr().err
    with pytest.raises(UserError) as caught:
        serve(load_run_options(run_file, cli={"results_dir": str(run_file.parent / "results")}))
    assert (caught.value.exit_code, said in caught.value.message) == (ExitCode.RUN_FILE, True)
    assert list(run_file.parent.iterdir()) == [run_file]
    assert _check(run_file, "--inference") == ExitCode.OK  # which has neither


def test_demonstrations_are_told_of_without_can_start(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings are shown, and beside them that a start would be refused."""
    run_file.write_text("behaviors: {Ball: {trainer_type: ppo, behavioral_cloning: {demo_path: no.demo}}}\n")
    assert main(["check-config", str(run_file)]) == ExitCode.OK
    said = "serve would refuse: behaviors.Ball.behavioral_cloning.demo_path: no.demo does not exist"
    assert said in capsys.readouterr().err


def test_wandb_that_is_not_installed(
    run_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code of a start."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    run_file.write_text(f"{run_file.read_text()}rollcast: {{stats_writers: [wandb]}}\n")
    assert _check(run_file) == ExitCode.MISSING_EXTRA
    assert "pip install '.[wandb]'" in capsys.readouterr().err


def test_our_writers_are_known() -> None:
    """The names that are looked for before a start are those that can be made."""
    assert set(OWN_STATS_WRITERS) == set(_OWN)


def test_it_needs_no_torch(run_file: Path) -> None:
    """It answers in the time that a player can wait."""
    program = (
        "import sys\nfrom learner.cli import main\n"
        f"main(['check-config', {str(run_file)!r}, '--can-start'])\nsys.exit(3 if 'torch' in sys.modules else 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
