"""Tests the checks before a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from learner.cli.cli import main
from learner.cli.serve_flags import add_unity_flags
from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.store import encode_behavior
from learner.shared.settings.extensions import ENCODERS
from learner.shared.settings.layers import FLAGS
from learner.shared.settings.load import load_run_options
from learner.start.app import serve
from tests.learner.installed import install
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import begun
from tests.learner.training.networks.specs import behavior
from tests.learner.training.rewards.recorded import demonstrate

LESSONS = "[{name: a, value: 1, completion_criteria: {behavior: Bal, threshold: 1}}, {name: b, value: 2}]"


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """Returns a run file with one behavior and a build."""
    path = tmp_path / "run.yaml"
    path.write_text("behaviors:\n  Ball:\n    trainer_type: ppo\nenv_settings:\n  env_path: Build\n  num_envs: 2\n")
    return path


def _check(run_file: Path, *arguments: str) -> int:
    results = run_file.parent / "results"
    return main(["check-config", str(run_file), "--json", "--results-dir", str(results), "--can-start", *arguments])


def test_a_run_that_can_start(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A valid run prints its settings and makes no run folder."""
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
    """The run folder is checked as at a start and not changed."""
    behavior = run_file.parent / "results" / "there" / "Ball"
    behavior.mkdir(parents=True)
    (behavior / "stats.csv").write_text("step\n")
    assert _check(run_file, *arguments) == code
    captured = capsys.readouterr()
    if code is not ExitCode.OK:
        assert captured.out == ""
        assert len(captured.err.splitlines()) == 1
    assert [path.name for path in (run_file.parent / "results" / "there").rglob("*")] == ["Ball", "stats.csv"]


def test_flags_of_mlagents_win_over_the_file(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ML-Agents' flags override the file, even with default values."""
    assert _check(run_file, "--num-envs=1", "--time-scale", "3", "--env-args", "--level", "-3", "--seed") == ExitCode.OK
    settings = json.loads(capsys.readouterr().out)
    assert settings["env_settings"]["num_envs"] == 1
    assert settings["env_settings"]["env_args"] == ["--level", "-3", "--seed"]
    assert settings["engine_settings"]["time_scale"] == 3.0


def test_every_flag_of_mlagents_sets_something() -> None:
    """Every flag of ML-Agents sets a value of the run file."""
    import argparse

    parser = argparse.ArgumentParser(add_help=False)
    add_unity_flags(parser, are_shown=True)
    names = {option.removeprefix("--") for action in parser._actions for option in action.option_strings}
    assert names
    assert names <= set(FLAGS)


@pytest.mark.parametrize("block", ["behavioral_cloning", "gail"])
def test_demonstrations_that_are_not_there(run_file: Path, capsys: pytest.CaptureFixture[str], block: str) -> None:
    """A missing demonstration is reported by its setting."""
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
    assert _check(run_file) == ExitCode.RUN_FILE
    assert f"{setting}.demo_path: {demonstrations}: the file is empty" in capsys.readouterr().err
    demonstrations.unlink()
    demonstrate(demonstrations, behavior(continuous=2))
    assert _check(run_file) == ExitCode.OK
    demonstrations.write_bytes(demonstrations.read_bytes()[:-3])
    assert _check(run_file) == ExitCode.RUN_FILE
    assert "the file is cut short or damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (
            "stats_writers: [csv, tensorbord]",
            "rollcast.stats_writers names 'tensorbord', which no installed package declares",
        ),
        (
            "callbacks: ['nosuchmod:x']",
            "rollcast.callbacks names 'nosuchmod:x', which cannot be imported",
        ),
    ],
)
def test_code_that_is_not_there(run_file: Path, capsys: pytest.CaptureFixture[str], block: str, said: str) -> None:
    """Missing code is refused by --can-start and `serve`, and no run folder is made."""
    run_file.write_text(f"{run_file.read_text()}rollcast: {{{block}}}\n")
    assert main(["check-config", str(run_file)]) == ExitCode.OK
    assert f"serve would refuse: {run_file}:7: {said}" in capsys.readouterr().err
    _refused_by_both(run_file, ExitCode.RUN_FILE, said)
    assert _check(run_file, "--inference") == ExitCode.OK  # which has neither


def test_frozen_opponents_that_are_not_there(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A frozen opponent that is missing, or no exported model, is refused by --can-start and `serve` with its path."""
    model = run_file.parent / "old.onnx"
    run_file.write_text(
        f"behaviors: {{Ball: {{trainer_type: ppo, self_play: {{frozen_opponents: {{old: {model}}}}}}}}}\n"
    )
    said = f"behaviors.Ball.self_play.frozen_opponents.old: {model}: the file"
    assert _check(run_file) == ExitCode.RUN_FILE
    assert f"{said} does not exist" in capsys.readouterr().err
    model.write_bytes(b"\x80\x05cos\nsystem\n")
    _refused_by_both(run_file, ExitCode.RUN_FILE, f"{said} cannot be used: wire type 7 at byte 4: not an ONNX model")
    assert sorted(run_file.parent.iterdir()) == sorted([run_file, model])


def _refused_by_both(run_file: Path, code: ExitCode, said: str, *arguments: str, **flags: str) -> str:
    """Returns what check-config --can-start and `serve` say in refusing a run; both leave no trace."""
    results = run_file.parent / "results"
    before = sorted(results.rglob("*"))
    with pytest.raises(UserError) as caught:
        serve(load_run_options(run_file, cli={"results_dir": str(results), "address": "127.0.0.1:0", **flags}))
    assert (caught.value.exit_code, said in caught.value.message) == (code, True), caught.value.message
    assert _check(run_file, *arguments) == code
    assert sorted(results.rglob("*")) == before
    return caught.value.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"no archive", "is damaged, or not a checkpoint of Rollcast"),
        (encode_behavior("Ball", 5, {"trainer_type": "sac"}), "a checkpoint of trainer sac"),
    ],
)
@pytest.mark.parametrize("is_run", [True, False])
def test_what_a_run_starts_from_is_read_at_the_start(
    run_file: Path, content: bytes | None, said: str, *, is_run: bool
) -> None:
    """A missing, damaged or foreign initial checkpoint is refused before actors connect."""
    checkpoint = run_file.parent / "results" / "old" / "Ball" / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    if content is None:
        checkpoint.with_name("Ball-5.pt").touch()  # the run has others
    else:
        checkpoint.write_bytes(content)
    flags = {"initialize_from": "old"} if is_run else {}
    arguments = ["--initialize-from", "old"] if is_run else []
    if not is_run:
        run_file.write_text(f"behaviors: {{Ball: {{trainer_type: ppo, init_path: {checkpoint}}}}}\n")
    message = _refused_by_both(run_file, ExitCode.BAD_CHECKPOINT, said, *arguments, **flags)
    assert "behavior 'Ball' cannot start from" in message
    assert str(checkpoint) in message
    checkpoint.write_bytes(encode_behavior("Ball", 5, {"trainer_type": "ppo"}))
    assert _check(run_file, *arguments) == ExitCode.OK


@pytest.mark.parametrize("added", [("Goal",), ("Goal", "Wall")])
def test_a_behavior_that_the_other_run_lacks_needs_the_others_init_path(run_file: Path, added: tuple[str, ...]) -> None:
    """The advice is carried out: with the init_path that it gives, and without initialize_from, the run can start."""
    checkpoint = run_file.parent / "results" / "old" / "Ball" / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(encode_behavior("Ball", 5, {"trainer_type": "ppo"}))
    run_file.write_text(f"behaviors: {{Ball: {{}}, {': {}, '.join(added)}: {{}}}}\n")
    message = _refused_by_both(
        run_file, ExitCode.BAD_CHECKPOINT, "has no checkpoint of", "--initialize-from", "old", initialize_from="old"
    )
    assert all(repr(name) in message for name in added)
    assert "omit initialize_from" in message
    assert _check(run_file, *message.partition("such as ")[2].split()) == ExitCode.OK


def test_networks_of_another_size_are_no_start(tmp_path: Path) -> None:
    """Networks of another size are refused if the other run's spec is known."""
    with begun(tmp_path / "results", 1) as (_, start, trainer):
        start.keeper.save_all({NAME: trainer})
    path = tmp_path / "run.yaml"
    for units, code in ((16, ExitCode.OK), (24, ExitCode.BAD_CHECKPOINT)):
        path.write_text(
            f"behaviors: {{{NAME}: {{trainer_type: ppo, network_settings: {{hidden_units: {units}, num_layers: 1}}}}}}\n"
        )
        assert _check(path, "--run-id", "new", "--initialize-from", "run") == code
    said = f"behavior '{NAME}' cannot start from "
    message = _refused_by_both(
        path, code, said, "--run-id", "new", "--initialize-from", "run", run_id="new", initialize_from="run"
    )
    assert "in the saved state, but" in message
    assert _check(path, "--run-id", "new", "--initialize-from", "run", "--inference") == ExitCode.OK


def test_the_initial_file_of_behaviors_that_are_not_listed(run_file: Path) -> None:
    """One initial file for all behaviors is checked; a folder is not yet."""
    run_file.write_text("default_settings: {trainer_type: ppo, init_path: some/where.pt}\n")
    _refused_by_both(run_file, ExitCode.BAD_CHECKPOINT, "some/where.pt does not exist")


def _of_ml_agents(path: Path) -> None:
    path.parent.mkdir(parents=True)
    torch.save({"Policy": {"weight": torch.zeros(3)}, "global_step:global_step": {}}, path)


def _no_start(results: Path) -> None:
    """Makes folders and files that are no runs to start from, by their names in `NO_STARTS`."""
    for name in ("empty", "old/run_logs", "nn", "broken/Ball", "text"):
        (results / name).mkdir(parents=True)
    _of_ml_agents(results / "mlagents" / "Ball" / "checkpoint.pt")
    (results / "old" / "run_logs" / "training_status.json").write_text('{"metadata": {"mlagents_version": "0.30.0"}}')
    (results / "nn" / "Ball.nn").touch()
    (results / "broken" / "Ball" / "checkpoint.pt").write_bytes(b"no archive")
    (results / "text" / "notes.txt").touch()
    (results / "Ball.onnx").touch()


NO_STARTS = {
    "mlagents": (ExitCode.BAD_CHECKPOINT, "Ball/checkpoint.pt is a checkpoint of ML-Agents, whose weights Rollcast cannot load"),
    "old": (ExitCode.BAD_CHECKPOINT, "is a folder of ML-Agents 0.30.0 (run_logs/training_status.json); name a run of Rollcast"),
    "nn": (ExitCode.BAD_CHECKPOINT, "is a folder of ML-Agents (Ball.nn); name a run of Rollcast"),
    "broken": (ExitCode.BAD_CHECKPOINT, "Ball/checkpoint.pt is damaged, or not a checkpoint of Rollcast"),
    "text": (ExitCode.BAD_CHECKPOINT, "holds no checkpoint.pt of any behavior"),
    "empty": (ExitCode.BAD_CHECKPOINT, "holds no checkpoint.pt of any behavior"),
    "missing": (ExitCode.NOTHING_TO_RESUME, "but it is not in "),
    "Ball.onnx": (ExitCode.NOTHING_TO_RESUME, "; an .onnx file is a model that acts and cannot be trained further"),
    "mlagents/Ball/checkpoint.pt": (ExitCode.NOTHING_TO_RESUME, "and a checkpoint (.pt) by behaviors.NAME.init_path"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_STARTS)
@pytest.mark.parametrize(
    "settings", ["behaviors: {Ball: {trainer_type: ppo}}", "default_settings: {trainer_type: ppo}"]
)
def test_what_is_no_run_of_ours_is_no_start(run_file: Path, name: str, settings: str) -> None:
    """Whatever else --initialize-from names is refused at the start, in one line, whether behaviors are listed or not."""
    _no_start(run_file.parent / "results")
    run_file.write_text(f"{settings}\n")
    code, said = NO_STARTS[name]
    _refused_by_both(run_file, code, said, "--run-id", "x", "--initialize-from", name, run_id="x", initialize_from=name)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("results/mlagents/Ball/checkpoint.pt", "is a checkpoint of ML-Agents, whose weights Rollcast cannot load"),
        ("results/mlagents", "is a folder, not a checkpoint"),
        ("results/Ball.onnx", "is a model that acts and cannot be trained further; its checkpoint is the .pt file"),
        ("results/text/notes.txt", "is damaged, or not a checkpoint of Rollcast"),
        ("nowhere.pt", "does not exist"),
    ],
)
def test_a_file_that_is_no_checkpoint_of_ours_is_no_start(run_file: Path, path: str, said: str) -> None:
    """The same holds for init_path."""
    _no_start(run_file.parent / "results")
    run_file.write_text(f"behaviors: {{Ball: {{init_path: {run_file.parent / path}}}}}\n")
    _refused_by_both(run_file, ExitCode.BAD_CHECKPOINT, said, "--run-id", "x", run_id="x")


def test_a_run_without_checkpoints_is_no_start(run_file: Path) -> None:
    """Without listed behaviors, the other run must have any checkpoint."""
    (run_file.parent / "results" / "old").mkdir(parents=True)
    run_file.write_text("default_settings: {trainer_type: ppo}\n")
    _refused_by_both(
        run_file, ExitCode.BAD_CHECKPOINT, "of any behavior", "--initialize-from", "old", initialize_from="old"
    )


def test_the_checkpoint_of_a_resumed_run_is_read_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step that is not kept is refused with those that are."""
    with begun(tmp_path / "results", 1) as (_, start, trainer):
        start.keeper.save_all({NAME: trainer})
        kept = trainer.get_step
    path = tmp_path / "run.yaml"
    path.write_text(f"behaviors: {{{NAME}: {{trainer_type: ppo}}}}\n")
    resumed = ("--run-id", "run", "--resume", "--checkpoint")
    assert _check(path, *resumed, str(kept)) == ExitCode.OK
    capsys.readouterr()
    assert _check(path, *resumed, "77") == ExitCode.BAD_CHECKPOINT
    assert f"{NAME}-77.pt does not exist; name best, last or a kept step (kept: {kept})" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("torch_settings: {device: cuda:77}", "torch_settings.device is 'cuda:77', which cannot be used here"),
        ("torch_settings: {device: abacus}", "torch_settings.device is 'abacus', which cannot be used here"),
        ("rollcast: {lockstep: {}}", "rollcast.lockstep supports one learner process, but WORLD_SIZE is 2"),
        ("rollcast: {device_ring_steps: 100}", "rollcast.device_ring_steps is 100, but behaviors.Ball needs at least"),
        ("rollcast: {operator_token_file: nothing}", "rollcast.operator_token_file: nothing cannot be read"),
        (
            f"environment_parameters: {{m: {{curriculum: {LESSONS}}}}}",
            "environment_parameters.m.curriculum.0.completion_criteria.behavior: lesson 'a' never ends",
        ),
    ],
)
def test_what_this_machine_or_run_cannot_do(
    run_file: Path, monkeypatch: pytest.MonkeyPatch, block: str, said: str
) -> None:
    """Devices, variables, files and names are checked before the run folder is made."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    run_file.write_text(f"{run_file.read_text()}{block}\n")
    _refused_by_both(run_file, ExitCode.RUN_FILE, said)


def test_an_encoder_that_cannot_be_imported(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder that cannot be imported is refused at the start."""
    site = install(
        tmp_path / "site", "broken_encoder", "import nosuchmodule\n", {ENCODERS: {"mine": "broken_encoder:E"}}
    )
    monkeypatch.syspath_prepend(str(site))
    for block in ("network_settings", "reward_signals: {extrinsic: {}, rnd: {network_settings"):
        end = "}}" if "rnd" in block else ""
        run_file.write_text(f"behaviors: {{Ball: {{trainer_type: ppo, {block}: {{vis_encode_type: mine}}{end}}}}}\n")
        said = "vis_encode_type names 'mine' (broken_encoder:E), which cannot be imported"
        _refused_by_both(run_file, ExitCode.RUN_FILE, said)


def test_results_that_cannot_be_written(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in the place of the results folder is refused."""
    (run_file.parent / "results").write_text("in the way")
    assert _check(run_file) == ExitCode.RUN_FILE
    assert "cannot use the run folder" in capsys.readouterr().err
