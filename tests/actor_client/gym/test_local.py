"""Tests recording without a learner."""

import os
import resource
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rollcast.demonstrations.reading import read_demonstration
from rollcast.descriptions import OBSERVATIONS_PROPERTY

from actor_client.cli import main
from actor_client.envs.factory import make_env_batch
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.wrappers import Wrapping
from actor_client.exits import ExitCode
from tests.actor_client.demos.environments import Counting, Telling

HERE = "tests.actor_client.demos.environments"
ENV = f"{HERE}:Counting"
SPEC = ScalarBatch([Counting()], "Counting").spec


def record(path: Path, *arguments: str, env: str = ENV) -> int:
    """Runs the command in this process."""
    return main(["gym", "--env", env, "--record", str(path), *arguments])


def model(
    path: Path,
    *,
    memory: bool = False,
    name: str = "deterministic_continuous_actions",
    factor: float = 0.1,
    reads: str = "",
) -> Path:
    """Returns an exported model of a tenth of its observations, or with memory, of its number of calls.

    Args:
        path: The file.
        memory: Whether it counts its calls.
        name: The output.
        factor: In place of a tenth.
        reads: The property with the names of its observations; empty for none.
    """
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [factor])
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    seen = helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, ["batch", 1])
    done = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1])
    inputs, outputs, nodes = [seen], [done], [helper.make_node("Mul", ["obs_0", "scale"], [name])]
    if memory:
        inputs.append(helper.make_tensor_value_info("recurrent_in", TensorProto.FLOAT, ["batch", 1, 1]))
        outputs.append(helper.make_tensor_value_info("recurrent_out", TensorProto.FLOAT, ["batch", 1, 1]))
        nodes = [
            helper.make_node("Add", ["recurrent_in", "one"], ["recurrent_out"]),
            helper.make_node("Mul", ["recurrent_out", "scale"], ["tenth"]),
            helper.make_node("Squeeze", ["tenth"], [name], axes=[2]),
        ]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, [scale, one])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    if reads:
        helper.set_model_props(made, {OBSERVATIONS_PROPERTY: reads})
    path.write_bytes(made.SerializeToString())
    onnx.checker.check_model(made)
    return path


def test_a_script(tmp_path: Path) -> None:
    """A function of the user acts, and the file has its actions."""
    path = tmp_path / "script.demo"
    assert record(path, "--num-envs", "2", "--policy", f"{HERE}:tenth", "--record-episodes", "3") == 0
    found = read_demonstration(path, SPEC)
    assert found.episodes == 3
    assert found.continuous is not None
    assert np.allclose(found.continuous.ravel() * 2, [0.25, 0.35, 0.45] * 3)
    assert np.allclose(found.rewards, [0.25, 0.35, 0.45] * 3)


def test_a_class_is_made_for_each_environment(tmp_path: Path) -> None:
    """A class gets an object for each environment, which is notified of each new episode."""
    path = tmp_path / "class.demo"
    assert record(path, "--policy", f"{HERE}:Remembering", "--record-episodes", "4", "--num-envs", "2") == 0
    assert read_demonstration(path, SPEC).rewards.tolist() == [1, 2, 2] * 4  # 3 is more than the space allows


@pytest.mark.slow
def test_wrappers_and_videos_by_flag(tmp_path: Path) -> None:
    """Wrappers apply to the policy and the file."""
    path, toys = tmp_path / "wrapped.demo", "tests.actor_client.envs.toys"
    flags = f"--wrap {toys}:twice_the_reward --frame-skip 2 --frame-stack 3 --max-episode-steps 2 --video {tmp_path / 'videos'}"
    more = ["--record-episodes", "2", *flags.split(), "--video-every", "2"]
    assert record(path, "--policy", f"{HERE}:nothing", *more, env="CartPole-v1") == 0
    wrapping = Wrapping(frame_stack=3)
    found = read_demonstration(path, make_env_batch("CartPole-v1", num_envs=1, wrapping=wrapping).spec)
    assert found.rewards.tolist() == [4.0] * 4
    (seen,) = found.observations
    assert seen.shape[1:] == (12,)
    assert (seen[0][:4] == seen[0][4:8]).all()
    assert (seen[1][8:] != seen[1][4:8]).any()
    assert [file.name for file in (tmp_path / "videos").iterdir()] == ["CartPole-episode-000001.mp4"]


@pytest.mark.parametrize(("room", "episodes"), [(20, 0), (400, 0), (1000, 2), (1200, 2)])
def test_a_disk_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], room: int, episodes: int
) -> None:
    """With a full disk, the reported episodes are those in the file, and an empty file is removed."""
    path = tmp_path / "full.demo"
    flags = ["--env-kwargs", '{"steps":10}', "--policy", f"{HERE}:tenth", "--record-episodes", "9"]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        code = record(path, *flags)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr().err
    assert code == ExitCode.NOT_WRITTEN, said
    assert "cannot be written: File too large" in said
    assert "Traceback" not in said
    assert path.exists() == (episodes > 0)
    if episodes:
        assert f" episodes={episodes} " in said
        assert read_demonstration(path, SPEC).episodes == episodes


@pytest.mark.parametrize("memory", [False, True])
def test_an_exported_model(tmp_path: Path, memory: bool) -> None:
    """An exported model's actions are mapped onto the bounds, and its memory restarts with each episode."""
    file = model(tmp_path / "policy.onnx", memory=memory)
    assert record(tmp_path / "m.demo", "--policy", str(file), "--record-episodes", "2", "--num-envs", "2") == 0
    found = read_demonstration(tmp_path / "m.demo", SPEC)
    assert found.continuous is not None
    assert np.allclose(found.continuous.ravel(), ([0.1, 0.2, 0.3] if memory else [0.0, 0.1, 0.2]) * 2)


def test_a_model_that_reads_some_observations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model with the names of its observations gets these by name, and a single one by its place; others are told."""
    file, env = model(tmp_path / "policy.onnx", reads='["count"]'), f"{HERE}:Telling"
    assert record(tmp_path / "m.demo", "--policy", str(file), "--record-episodes", "1", env=env) == 0
    spec = ScalarBatch([Telling()], "Telling").spec
    found = read_demonstration(tmp_path / "m.demo", spec)
    assert found.continuous is not None
    assert np.allclose(found.continuous.ravel(), [0.0, 0.1, 0.2])
    assert len(found.observations) == 2
    assert record(tmp_path / "n.demo", "--policy", str(file), "--record-episodes", "1") == 0
    for reads, line in (
        ("", "the model takes 1 observations, but the environment has answer, count"),
        ('["state"]', 'the model takes ["state"], but the environment has answer, count'),
        ("7", "the model takes 7, but"),
        ("{", "the model takes {, but"),
    ):
        other = model(tmp_path / "other.onnx", reads=reads)
        assert record(tmp_path / "none.demo", "--policy", str(other), env=env) == ExitCode.POLICY_FAILED
        assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("policy", "code", "line"),
    [
        (f"{HERE}:too_many", ExitCode.POLICY_FAILED, "the policy returned [0.0, 1.0]; it must return 1 finite numbers"),
        (f"{HERE}:falls_over", ExitCode.POLICY_FAILED, "RuntimeError: no idea"),
        (f"{HERE}:exits", ExitCode.POLICY_FAILED, "exits: SystemExit: 3 (exit code 41)"),
        (f"{HERE}:Interrupts", ExitCode.POLICY_FAILED, "Interrupts: KeyboardInterrupt"),
        (f"{HERE}:absent", ExitCode.USAGE, "has no callable absent"),
        ("no_such_module:f", ExitCode.USAGE, "module no_such_module cannot be imported"),
        ("nonsense", ExitCode.USAGE, "write module:callable, or the path of an exported model"),
        ("missing.onnx", ExitCode.USAGE, "cannot be opened: No such file"),
        ("/dev/zero", ExitCode.USAGE, "write module:callable, or the path of an exported model"),
    ],
)
def test_policies_that_cannot_act(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, code: ExitCode, line: str
) -> None:
    """A policy that cannot act ends with one line, a documented code and no file."""
    assert record(tmp_path / "none.demo", "--policy", policy) == code
    said = capsys.readouterr().err
    assert line in said
    assert "Traceback" not in said
    assert "nothing_recorded" not in said  # the error says why
    assert not (tmp_path / "none.demo").exists()


def test_a_policy_file_that_never_ends_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device, or a pipe into which nobody writes, in the place of a model is an error at once."""
    endless, silent = tmp_path / "endless.onnx", tmp_path / "silent.onnx"
    endless.symlink_to("/dev/zero")
    os.mkfifo(silent)
    for file in (endless, silent):
        assert record(tmp_path / "none.demo", "--policy", str(file)) == ExitCode.USAGE
        assert "cannot be opened: not a regular file" in capsys.readouterr().err


def test_an_environment_that_ends_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`sys.exit` in a step is an error of the environment."""
    code = record(tmp_path / "none.demo", "--policy", f"{HERE}:tenth", env=f"{HERE}:Exiting")
    assert code == ExitCode.ENVIRONMENT_FAILED
    assert (
        "the environment's code tried to end the program (SystemExit: its window was closed)" in capsys.readouterr().err
    )


def test_models_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another environment's model, an invalid file and an environment without bounds have distinct errors."""
    other = model(tmp_path / "other.onnx", name="deterministic_discrete_actions")
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"not a model")
    fine = model(tmp_path / "fine.onnx")
    for file, more, line in (
        (other, (), "the model has no output deterministic_continuous_actions"),
        (junk, (), "the file is not a model that can be run"),
        (fine, ("--env-kwargs", '{"bounds": Infinity}'), "the environment has action axes without bounds"),
    ):
        assert record(tmp_path / "none.demo", "--policy", str(file), *more) == ExitCode.POLICY_FAILED
        assert line in capsys.readouterr().err


def test_a_model_that_has_diverged_never_acts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A non-finite action ends the recording before it reaches the environment; a NaN observation does not."""
    for factor, shown, code in ((float("inf"), -1, ExitCode.POLICY_FAILED), (1.0, 2, ExitCode.OK)):
        file = str(model(tmp_path / "m.onnx", factor=factor))
        more = ("--env-kwargs", f'{{"nan_at": {shown}}}', "--max-wall-seconds", "0.5")
        assert record(tmp_path / f"{code}.demo", "--policy", file, *more) == code
        said = capsys.readouterr().err
        assert ("deterministic_continuous_actions is not finite although the observations are" in said) == (code != 0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--policy", "a:b"], "add --record FILE.demo"),
        (["--record-episodes", "3"], "add --record FILE.demo"),
        (["--record", "x.demo", "--seed", "3"], "seed is only for policy"),
    ],
)
def test_flags_that_go_together(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    """A flag that needs another one is refused with the name of the missing flag."""
    assert main(["gym", "--env", ENV, *arguments]) == ExitCode.USAGE
    assert line in capsys.readouterr().err
