"""Tests that what surrounds the command `serve` does not reach its trainers' process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from learner.shared.exits import ExitCode
from tests.actor_client.unity.players.programs import is_running
from tests.e2e.processes import command_environment, processes_in, wait_until
from tests.e2e.runs import small, write_run
from tests.e2e.test_preloaded import loads_torch
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import SETTINGS, begun
from tests.learner.training.lockstep.test_saving import in_lockstep

PROGRAM = Path(sys.executable).with_name("rollcast")


@pytest.mark.parametrize(("trainers", "restarts"), [(1, 0), (2, 0), (1, 1)])
def test_a_strange_folder_and_environment(trainers: int, restarts: int, tmp_path: Path) -> None:
    """A run starts in a folder with modules of the same names, in a job of torchrun, and without an input."""
    folder = tmp_path / "here"
    (folder / "learner").mkdir(parents=True)
    (folder / "learner" / "__init__.py").touch()
    (folder / "random.py").write_text("raise SystemExit('a module of this folder was imported')")
    run_file = write_run(tmp_path, {"Behavior": small()}, trainers=trainers)
    options = [
        "--address=127.0.0.1:0",
        "--max-wall-seconds=1",
        f"--results-dir={tmp_path}",
        "--run-id=run",
        f"--restarts={restarts}",
    ]
    ranks = {"RANK": "1", "WORLD_SIZE": "4", "PET_NNODES": "2", "GLOO_SOCKET_IFNAME": "no-such-link"}
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", PROGRAM, "serve", run_file, *options],
        cwd=folder, env={**command_environment(), **ranks}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert "trainers_start_again" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["stop_reason"] == "max_wall_seconds"


CODE = "from learner.training.callbacks.base import Callback\nimport torch\n\nclass Mine(Callback):\n    pass\n"


def _saved(results: Path) -> Path:
    """Saves a run of one lock-step round and its checkpoint, and returns the path of the checkpoint."""
    with begun(results, 1) as (folder, start, trainer):
        in_lockstep(start, 2)
        start.keeper.save_round({NAME: trainer})
        trainer.save_model()
        return folder.newest_checkpoint(NAME)


@pytest.mark.parametrize(
    ("settings", "rollcast", "arguments"),
    [
        ({}, {}, ["--resume"]),
        ({}, {"lockstep": {}}, ["--resume"]),
        ({}, {"lockstep": {}, "trainers": 2}, ["--resume"]),
        ({}, {}, ["--resume", "--checkpoint=CHECKPOINT"]),
        ({}, {}, ["--run-id=new", "--initialize-from=run"]),
        ({"init_path": "CHECKPOINT"}, {}, ["--run-id=new"]),
        ({}, {"trainers": 2}, ["--run-id=new", "--initialize-from=run"]),
        ({}, {}, ["--run-id=new", "--torch-device=cpu:0"]),
        ({}, {"callbacks": ["mine:Mine"]}, ["--run-id=new"]),
    ],
    ids=[
        "plain",
        "lock-step",
        "lock-step of ranks",
        "checkpoint",
        "initialize-from",
        "init-path",
        "ranks",
        "device",
        "code",
    ],
)
def test_the_service_never_loads_torch(
    settings: dict[str, Any], rollcast: dict[str, Any], arguments: list[str], tmp_path: Path
) -> None:
    """Whatever a run starts from and needs is looked at by its trainers: the process of the service has no torch."""
    checkpoint = str(_saved(tmp_path / "results"))
    (tmp_path / "mine.py").write_text(CODE)
    own = {key: checkpoint if value == "CHECKPOINT" else value for key, value in settings.items()}
    run_file = write_run(tmp_path, {NAME: {"trainer_type": "ppo", **SETTINGS, **own}}, **rollcast)
    words = [word.replace("CHECKPOINT", checkpoint) for word in arguments]
    run = next((word.removeprefix("--run-id=") for word in words if word.startswith("--run-id=")), "run")
    with processes_in(tmp_path, tmp_path) as processes:
        learner = processes.learner(run_file, *(word for word in words if not word.startswith("--run-id")), run=run)
        learner.wait_for(lambda: learner.events("listening"), "it serves")
        assert not loads_torch(learner.pid)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("settings", "rollcast", "arguments", "code", "said"),
    [
        ({"init_path": "none.pt"}, {}, [], ExitCode.BAD_CHECKPOINT, "none.pt does not exist; name another run"),
        ({}, {}, ["--torch-device=gone"], ExitCode.RUN_FILE, "torch_settings.device is 'gone', which cannot be used here"),
        ({}, {"trainers": 2, "callbacks": ["mine:Mine"]}, [], ExitCode.RUN_FILE, "which cannot be imported"),
        ({}, {"callbacks": ["deadly:Mine"]}, [], ExitCode.TRAINER_DIED, "of the trainers ended with signal SIGKILL"),
        (
            {"init_path": "none.pt"}, {}, ["--trainer-address=127.0.0.1:0"],
            ExitCode.BAD_CHECKPOINT, "none.pt does not exist; name another run",
        ),
    ],
    ids=["init-path", "device", "ranks", "death", "elsewhere"],
)  # fmt: skip
def test_a_start_that_is_refused_changes_nothing(
    settings: dict[str, Any],
    rollcast: dict[str, Any],
    arguments: list[str],
    *,
    code: ExitCode,
    said: str,
    tmp_path: Path,
) -> None:
    """What prevents a start is the service's error, with its code, before --force touches the run in the folder."""
    _saved(tmp_path / "results")
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    before = _contents(tmp_path / "results")
    run_file = write_run(tmp_path, {NAME: {"trainer_type": "ppo", **SETTINGS, **settings}}, **rollcast)
    with processes_in(tmp_path, tmp_path) as processes:
        learner = processes.learner(run_file, "--force", *arguments)
        assert said in learner.fails_with(code)
    assert _contents(tmp_path / "results") == before


def test_a_signal_during_the_checks_ends_the_start(tmp_path: Path) -> None:
    """While a package is imported, a signal ends service and trainers at once."""
    (tmp_path / "slow.py").write_text(
        "import pathlib, threading\npathlib.Path('begun').touch()\nthreading.Event().wait()"
    )
    run_file = write_run(tmp_path, {NAME: small()}, callbacks=["slow:Mine"])
    with processes_in(tmp_path, tmp_path) as processes:
        learner = processes.learner(run_file, "--stopped-code", "143")
        learner.wait_for((tmp_path / "begun").exists, "the import")
        (trainers,) = learner.trainers
        learner.signal(signal.SIGTERM)
        learner.fails_with(143)
        wait_until(lambda: not is_running(trainers), "the trainers end")
    assert not (tmp_path / "results").exists()


def test_a_finished_run_in_lock_step_stays_as_it_is(tmp_path: Path) -> None:
    """Its trainers find that nothing is left to train; the service ends well, and only its log is new."""
    _saved(tmp_path / "results")
    before = _contents(tmp_path / "results")
    run_file = write_run(tmp_path, {NAME: {"trainer_type": "ppo", **SETTINGS, "max_steps": 256}}, lockstep={})
    with processes_in(tmp_path, tmp_path) as processes:
        learner = processes.learner(run_file, "--resume")
        assert learner.wait() == ExitCode.OK, learner.said()
        assert [line["behavior"] for line in learner.events("nothing_to_train")] == [NAME]
    after = _contents(tmp_path / "results")
    assert {path: after.get(path) for path in before if not path.endswith(".lock")} == {
        path: content for path, content in before.items() if not path.endswith(".lock")
    }
