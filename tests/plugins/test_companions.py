"""Tests the example of a companion: a world model that trains beside the policy, and the reward signal that reads it."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from learner.shared.exits import ExitCode
from tests.documents import ROOT, blocks, commands, section, text_of
from tests.e2e.processes import Processes, processes_in

FOLDER = ROOT / "deploy" / "examples" / "companions"
PAGE = text_of("deploy/examples/COMPANIONS.md")
NAME, LOSS = "world:WorldModel", "Losses/World Model"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes in a copy of the example, which end with the test."""
    shutil.copytree(FOLDER, tmp_path / "world", ignore=shutil.ignore_patterns("results", "__pycache__"))
    with processes_in(tmp_path, tmp_path / "world") as started:
        yield started


def test_the_page_shows_the_example() -> None:
    """Its run file, each block of its code, and its command are those of the folder and of the list of examples."""
    assert blocks(PAGE, "yaml") == [(FOLDER / "world.yaml").read_text()]
    code = (FOLDER / "world.py").read_text()
    printed = blocks(PAGE, "python")
    assert len(printed) == 2
    assert [block for block in printed if block not in code] == []
    (listed,) = commands(section("deploy/examples/README.md", "A world model beside the policy"))
    assert listed in commands(PAGE)


def losses(folder: Path) -> list[float]:
    """Returns the curve of the model's loss."""
    with (folder / "CartPole" / "stats.csv").open() as file:
        return [float(row["value"]) for row in csv.DictReader(file) if row["key"] == LOSS]


@pytest.mark.slow
def test_a_world_model_trains_beside_the_policy_and_resumes(processes: Processes) -> None:
    """Its loss falls over a stop and a resume, its state is in the checkpoint, and the run says what code it ran."""
    path = processes.folder / "world" / "world.yaml"
    document = yaml.safe_load(path.read_text())
    document["behaviors"]["CartPole"]["summary_freq"] = 500
    document["rollcast"] = {"torch_threads": 1}
    path.write_text(yaml.safe_dump(document))
    version, trained = 0, list[int]()
    for flags in ((), ("--resume",)):
        learner = processes.learner(path, "--http-address", "127.0.0.1:0", *flags)
        actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
        version = learner.wait_for_version("CartPole", version + 3, actor).version
        learner.signal(signal.SIGTERM)
        assert learner.wait() == ExitCode.OK, learner.said()
        actor.signal(signal.SIGTERM)
        actor.wait()
        (folder,) = (path.parent for path in processes.folder.rglob("run_state.pt"))
        state: dict[str, Any] = torch.load(folder / "run_state.pt", weights_only=True)
        trained.append(state["trainers"]["CartPole"]["companions"]["trainers"][NAME]["trainings"])
    assert 0 < trained[0] < trained[1]
    curve = losses(folder)
    assert curve[-1] < curve[0]
    code = json.loads((folder / "versions.json").read_text())["code"]
    file = processes.folder / "world" / "world.py"
    assert [(each["setting"], each["file"]) for each in code] == [
        (f"behaviors.CartPole.companions.{NAME}", str(file)),
        ("behaviors.CartPole.reward_signals.world:Surprise", str(file)),
    ]
    assert {each["sha256"] for each in code} == {hashlib.sha256(file.read_bytes()).hexdigest()}


@pytest.mark.slow
def test_one_that_fails_ends_the_learner_in_one_line(processes: Processes) -> None:
    """The last line has the error and the line of the file."""
    folder = processes.folder / "world"
    file = folder / "world.py"
    file.write_text(file.read_text().replace("loss.backward()", "loss.forward()"))
    learner = processes.learner(folder / "world.yaml", "--http-address", "127.0.0.1:0")
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    assert learner.wait() == ExitCode.TRAINER_FAILED, learner.said()
    last = learner.err().rstrip().rpartition("\n")[2]
    assert "'Tensor' object has no attribute 'forward' (" in last
    assert f"{file}, line " in last
    actor.signal(signal.SIGTERM)
    actor.wait()
