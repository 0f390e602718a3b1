"""Runs the product's commands with a Python that has only the calls of Windows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.processes import Processes, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.e2e.stripped.names import missing_modules, missing_names
from tests.ports import reserve_ports
from tests.tools.players.build import make_build

STRIPPED = Path(__file__).with_name("stripped")


@pytest.fixture
def stripped(tmp_path: Path) -> Mapping[str, str]:
    """Returns the environment variables that take names and modules from the product's processes."""
    lists = tmp_path / "missing.json"
    lists.write_text(json.dumps({"names": missing_names(), "modules": missing_modules()}))
    # The encoding is what Windows gives a program whose output goes to a file.
    return {"PYTHONPATH": str(STRIPPED), "STRIPPED_NAMES": str(lists), "PYTHONIOENCODING": "cp1252:strict"}


def test_the_lists_hold_what_the_product_once_stumbled_over() -> None:
    """The lists from typeshed have the names that once failed."""
    names, modules = missing_names(), missing_modules()
    assert {"sched_getaffinity", "fchmod", "killpg", "setsid", "sysconf", "O_NONBLOCK", "O_CLOEXEC"} <= set(names["os"])
    assert {"SIGHUP", "SIGUSR1", "SIGUSR2"} <= set(names["signal"])
    assert not {"SIGINT", "SIGTERM"} & set(names["signal"])
    assert {"fcntl", "grp", "pwd", "resource", "termios"} <= set(modules)
    assert not {"os", "signal", "msvcrt", "ctypes"} & set(modules)


@pytest.mark.nightly
def test_training_status_and_evaluation(processes: Processes, tmp_path: Path, stripped: Mapping[str, str]) -> None:
    """A run trains to its end, is shown by status, and is evaluated."""
    run_file = write_run(tmp_path, {"CartPole": cartpole(max_steps=20_000)})
    run_file.write_bytes(run_file.read_bytes().replace(b"\n", b"\r\n"))  # as an editor on Windows writes it
    learner = processes.learner(run_file, environment=stripped)
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4", environment=stripped)
    learner.wait_for_version("CartPole", 1)
    status = processes.python("status", "-m", "learner", "status", str(learner.folder), environment=stripped)
    assert status.wait() == 0, status.said()
    assert learner.wait() == 0, learner.said()
    assert "run_folder_not_locked" in learner.err()  # without fcntl: the names are gone indeed
    assert actor.wait() == 0, actor.said()
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary["env_steps_trained"] > 10_000
    assert (learner.folder / "CartPole.onnx").exists()

    options = ["--episodes", "5", "--address", "127.0.0.1:0", "--log-format", "json"]
    evaluation = processes.python(
        "evaluate", "-m", "learner", "evaluate", str(learner.folder), *options, environment=stripped
    )
    wait_until(lambda: evaluation.events("waiting_for_actors"), "it waits", said=evaluation.said)
    address = evaluation.events("waiting_for_actors")[0]["address"]
    player = processes.actor(address, "CartPole-v1", environment=stripped)
    assert evaluation.wait() == 0, evaluation.said()
    assert player.wait() == 0, player.said()
    assert "return" in evaluation.out()


UNITY_RUN = """
behaviors:
  CartPole:
    trainer_type: ppo
    hyperparameters: {batch_size: 128, buffer_size: 512, learning_rate: 1e-3}
    network_settings: {hidden_units: 32, num_layers: 1}
    time_horizon: 32
    max_steps: 4000
    summary_freq: 1000
env_settings:
  env_args: [--agents, "4"]
"""


@pytest.mark.nightly
def test_unity(processes: Processes, tmp_path: Path, stripped: Mapping[str, str]) -> None:
    """`rollcast unity` trains with a player in a path with spaces, and ends everything."""
    build = make_build(tmp_path / "a game of mine")
    run_file = tmp_path / "a run.yaml"
    run_file.write_text(UNITY_RUN, newline="\r\n")
    own = [
        "--run-id=x",
        f"--results-dir={tmp_path / 'the results'}",
        f"--base-port={reserve_ports(2)}",
        f"--env={build}",
    ]
    command = ["-m", "actor_client.unity.dropin", str(run_file), *own, "--address=127.0.0.1:0"]
    child = processes.python("unity", *command, environment=stripped)
    assert child.wait() == 0, child.said()
    summary = json.loads((tmp_path / "the results" / "x" / "summary.json").read_text())
    assert summary["env_steps_trained"] >= 3000
