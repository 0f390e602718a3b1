"""Tests that exported models play without Rollcast, by the lines of their page and their own metadata."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnx
import pytest
import rollcast
from gymnasium.vector.utils import concatenate, create_empty_array
from rollcast.descriptions import MODEL_PROPERTY

from tests.documents import blocks, section
from tests.e2e import odd_environment
from tests.e2e.processes import SECONDS, LearnerProcess, processes_in
from tests.e2e.runs import small, write_run
from tests.tools.gates.greedy import play

PAGE = "learner/training/export/README.md"
ENVIRONMENTS = {
    "CartPole": "CartPole-v1",
    "Pendulum": "Pendulum-v1",
    "Odd é'": "tests.e2e.odd_environment:OddNumbers-v0",
    "Choices": "tests.e2e.odd_environment:OddChoices-v0",
}
MEMORY = {"network_settings": {"hidden_units": 16, "num_layers": 1, "memory": {"memory_size": 8, "sequence_length": 8}}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnerProcess]:
    """Trains a few updates in each environment and ends the run."""
    folder = tmp_path_factory.mktemp("models")
    behaviors = {name: small(**(MEMORY if name == "Choices" else {})) for name in ENVIRONMENTS}
    with processes_in(folder) as started:
        learner = started.learner(write_run(folder, behaviors))
        actors = {
            name: started.actor(learner.address, env, "--behavior", name, "--num-envs", "2", name=f"actor-{place}")
            for place, (name, env) in enumerate(ENVIRONMENTS.items())
        }
        for name, actor in actors.items():
            learner.wait_for_version(name, 2, actor)
        learner.operator.drain(final=True)
        assert learner.wait() == 0, learner.said()
        yield learner


def model_of(run: LearnerProcess, name: str) -> Path:
    """Returns the model of a behavior."""
    return run.folder / f"{name}.onnx"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_lines_of_the_page_play_a_model(run: LearnerProcess, name: str, tmp_path: Path) -> None:
    """They get the return that Rollcast's own player of models gets, to the last digits, and load nothing of Rollcast."""
    (lines,) = blocks(section(PAGE, "Play one without Rollcast"), "python")
    loaded = (
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('rollcast', 'learner', 'actor_client')))\n"
    )
    (tmp_path / "play.py").write_text(lines + loaded, encoding="utf-8")
    shutil.copy(odd_environment.__file__, tmp_path)
    known = ENVIRONMENTS[name].replace("tests.e2e.", "")
    played = subprocess.run(
        [sys.executable, tmp_path / "play.py", model_of(run, name), known],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={"PATH": os.defpath},
        cwd=tmp_path,
    )
    assert played.returncode == 0, played.stderr
    told, modules = played.stdout.splitlines()
    assert modules == "[]"
    (own,) = play(model_of(run, name), gymnasium.make(ENVIRONMENTS[name]), [1])
    assert float(told.removeprefix("return ")) == pytest.approx(own, rel=1e-5)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_loaded_policy_plays_as_rollcast_does(run: LearnerProcess, name: str) -> None:
    """It takes what the environment returns, alone or as a batch, and returns what the environment takes."""
    policy = rollcast.load_policy(run.folder, behavior=name)
    env: Any = gymnasium.make(ENVIRONMENTS[name])
    observation, total, over = env.reset(seed=1)[0], 0.0, False
    while not over:
        action = policy.act(observation)
        shape = env.action_space.shape
        observation, reward, terminated, truncated, _ = env.step(action.reshape(shape) if shape else action)
        total, over = total + float(reward), terminated or truncated
    (own,) = play(model_of(run, name), gymnasium.make(ENVIRONMENTS[name]), [1])
    assert total == pytest.approx(own, rel=1e-5)
    seen = [env.observation_space.sample() for _ in range(3)]
    policy.reset()
    empty: Any = create_empty_array(env.observation_space, 3)
    together = policy.act(concatenate(env.observation_space, seen, empty))
    for each, action in zip(seen, together, strict=True):
        policy.reset()
        assert np.allclose(policy.act(each), action, atol=1e-5)
    played = rollcast.evaluate(policy, ENVIRONMENTS[name], 3, num_envs=2)
    assert len(played.returns) == 3


def test_the_metadata_tells_where_a_model_comes_from(run: LearnerProcess) -> None:
    """Run, step and version are there, and the step is that of the checkpoint."""
    for name in ENVIRONMENTS:
        card = card_of(model_of(run, name))
        assert (card["behavior"], card["run_id"], card["format"]) == (name, run.folder.name, 1)
        assert (run.folder / name / f"{name}-{card['step']}.onnx").is_file()


def test_the_metadata_has_the_bounds_and_places_of_the_environment(run: LearnerProcess) -> None:
    """Pendulum's torque is twice the output, and odd keys arrive unchanged."""
    torque = card_of(model_of(run, "Pendulum"))["continuous"]
    assert [torque[key] for key in ("low", "high", "scale", "offset")] == [[-2.0], [2.0], [2.0], [0.0]]
    odd = card_of(model_of(run, "Odd é'"))
    paths = [each["path"] for each in odd["observations"]]
    assert paths == [["0"], ["bits"], ["camera/front\n\"'é"], ["pair", 0], ["pair", 1]]
    assert np.allclose(odd["continuous"]["scale"], [4.0, 0.25])
    assert card_of(model_of(run, "Choices"))["discrete"]["first"] == [-1, 5]
    assert card_of(model_of(run, "CartPole"))["masks"] == {"input": "action_masks", "size": 2}


def card_of(model: Path) -> dict[str, Any]:
    """Reads the metadata of a model."""
    properties = {each.key: each.value for each in onnx.load(str(model)).metadata_props}
    card: dict[str, Any] = json.loads(properties[MODEL_PROPERTY])
    return card
