"""Tests an operator's commands to a running learner and the models of a finished run."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
from rollcast.specs import BehaviorSpec
from rollcast.v1 import spec_pb2

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.policy import PolicyNetwork
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

NETWORK = {"hidden_units": 32, "num_layers": 2, "normalize": True}
ENVIRONMENTS = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1"}
QUIET_SECONDS = 6.0
"""Longer than a third of a lease, after which an actor reports the last steps that it took."""


class Run(NamedTuple):
    """A learner, its actors and the operator's commands."""

    learner: LearnerProcess
    actors: dict[str, Child]
    command: Callable[..., Child]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Starts a learner that trains two behaviors with few logs."""
    folder = tmp_path_factory.mktemp("operator")
    with processes_in(folder) as started:
        learner = started.learner(write_run(folder, dict.fromkeys(ENVIRONMENTS, small(network_settings=NETWORK))))
        actors = {
            name: started.actor(learner.address, env, "--behavior", name, "--num-envs", "2", name=name)
            for name, env in ENVIRONMENTS.items()
        }
        for name in ENVIRONMENTS:
            learner.wait_for_version(name, 2, *actors.values())
        yield Run(learner, actors, lambda *arguments: _command(started, learner, *arguments))


@pytest.fixture(scope="module")
def finished(run: Run) -> Run:
    """Ends the same run by the operator's command."""
    assert "the run ends" in _said(run.command("drain"))
    return run


def _command(processes: Processes, learner: LearnerProcess, name: str, *arguments: str) -> Child:
    place = ("--run-id", learner.folder.name, "--results-dir", str(learner.folder.parent))
    return processes.python(f"{name}-{time.monotonic_ns()}", "-m", "learner", name, *place, *arguments)


def _said(command: Child) -> str:
    assert command.wait() == 0, command.said()
    return command.out()


def _progress(learner: LearnerProcess) -> dict[str, tuple[int, int]]:
    return {row.behavior: (row.version, row.env_steps_taken) for row in learner.status().behaviors}


def test_status_is_shown(run: Run) -> None:
    """`status` shows run, books and actors as text and JSON; `healthcheck` passes."""
    text, document, health = run.command("status"), run.command("status", "--json"), run.command("healthcheck")
    said = _said(text)
    for expected in ("run run, generation 1: training", "  policy    version", "received", "round trip", "connected"):
        assert expected in said
    status = json.loads(_said(document))
    assert status["state"] == "RUN_STATE_TRAINING"
    assert {row["behavior"] for row in status["behaviors"]} == set(ENVIRONMENTS)
    assert {actor["actor_name"] for actor in status["actors"]} == set(ENVIRONMENTS)
    assert _said(health) == "serving\n"


def test_status_is_watched(run: Run) -> None:
    """`status --watch` shows updates until Ctrl-C, including the bottleneck."""
    text, documents = run.command("status", "--watch", "0.6"), run.command("status", "--watch=0.6", "--json")
    run.learner.wait_for(
        lambda: re.search(r"^bottleneck .*(learner|actor|network)-bound: ", text.out(), re.MULTILINE), "a verdict"
    )
    begins = "run run, generation 1: training"
    run.learner.wait_for(lambda: text.out().count(begins) > 1, "a second look", text)
    # Within half a second all callers get the same one, and two looks of a busy machine can be that close.
    run.learner.wait_for(lambda: len(set(documents.out().splitlines()[:-1])) > 1, "a second document", documents)
    for command in (text, documents):
        command.signal(signal.SIGINT)
        assert command.wait() == 0, command.said()
        assert command.err() == ""
    uptimes = [json.loads(line)["uptime_seconds"] for line in documents.out().splitlines()]
    assert uptimes == sorted(uptimes)


def test_pause_and_resume(run: Run) -> None:
    """A pause stops updates and steps, and may be repeated; afterwards both continue."""
    learner = run.learner
    assert _said(run.command("pause")) == "paused\n"
    learner.operator.pause()
    assert learner.status().state == "RUN_STATE_PAUSED"
    assert run.command("healthcheck").fails_with(21) == ""

    def is_quiet() -> bool:
        before = _progress(learner)
        time.sleep(QUIET_SECONDS)
        return _progress(learner) == before

    learner.wait_for(is_quiet, "steps stop", *run.actors.values())
    before = _progress(learner)
    time.sleep(QUIET_SECONDS)
    assert _progress(learner) == before
    assert _said(run.command("resume")) == "resumed\n"
    learner.operator.resume()
    for name, (version, steps) in before.items():
        assert learner.wait_for_version(name, version + 2, *run.actors.values()).env_steps_taken > steps


def test_save_writes_checkpoints(run: Run) -> None:
    """`save` returns once run state and checkpoints are on the disk, and training continues."""
    saved = Path(_said(run.command("save")).strip())
    state: dict[str, Any] = torch.load(saved, weights_only=True)
    for name in ENVIRONMENTS:
        version = state["trainers"][name]["version"]
        assert version >= 2
        assert list((run.learner.folder / name).glob(f"{name}-*.pt"))
        run.learner.wait_for_version(name, version + 1, *run.actors.values())


def test_drain_ends_the_run(finished: Run) -> None:
    """`drain` ends learner and actors with 0, and the books hold every step."""
    learner = finished.learner
    assert learner.wait() == 0, learner.said()
    assert {name: actor.wait() for name, actor in finished.actors.items()} == dict.fromkeys(ENVIRONMENTS, 0)
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary["stop_reason"] == "operator"
    for name, actor in finished.actors.items():
        ledger, books = summary["behaviors"][name]["ledger"], actor.events("books")[-1]
        assert ledger["received"] == books["acked"] == books["produced"] > 0
        assert ledger["received"] == ledger["trained"] + ledger["queued"] + sum(ledger["dropped"].values())


@pytest.mark.parametrize(("name", "output"), [("CartPole", "discrete"), ("Pendulum", "continuous")])
def test_the_model_is_the_policy(finished: Run, name: str, output: str) -> None:
    """The deterministic actions of `<Behavior>.onnx` are the mode of the last checkpoint's policy."""
    assert finished.learner.wait() == 0
    folder = finished.learner.folder
    spec, policy = _policy(folder, name)
    observations = np.random.default_rng(1).normal(0.0, 2.0, (64, *spec.observations[0].shape)).astype(np.float32)
    deterministic = _run_model(folder / f"{name}.onnx", spec, observations, f"deterministic_{output}_actions")
    with torch.no_grad():
        mean, _, logits, _ = policy([torch.from_numpy(observations)])
    if mean is None:
        assert logits is not None
        assert deterministic.shape == (64, 1)
        assert np.array_equal(deterministic[:, 0], logits.argmax(1).numpy())
        assert len(np.unique(deterministic)) == 2, "observations this wide make a policy choose both"
    else:
        assert deterministic.shape == (64, 1)
        assert deterministic.dtype == np.float32
        np.testing.assert_allclose(deterministic, (mean.clamp(-3, 3) / 3).numpy(), rtol=1e-4, atol=1e-5)


def test_the_model_acts(finished: Run) -> None:
    """The model acts in the environment, one observation at a time."""
    assert finished.learner.wait() == 0
    folder = finished.learner.folder
    spec, _ = _policy(folder, "CartPole")
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=1)
    for _ in range(5):
        choices = _run_model(folder / "CartPole.onnx", spec, observation[None], "deterministic_discrete_actions")
        observation, reward, *_ = env.step(int(choices[0, 0]))
        assert reward == 1.0
    env.close()


def _policy(folder: Path, name: str) -> tuple[BehaviorSpec, PolicyNetwork]:
    """Returns what a behavior sees and does, and the policy of its last checkpoint."""
    state: dict[str, Any] = torch.load(folder / "run_state.pt", weights_only=True)
    row = next(row for row in state["behaviors_table"]["behaviors"] if row["name"] == name)
    spec = BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(row["spec"]))
    policy = PolicyNetwork(spec, NetworkSettings.model_validate(NETWORK))
    weights = state["trainers"][name]["model"]["network"]
    prefix = "policy."
    policy.load_state_dict({key[len(prefix) :]: value for key, value in weights.items() if key.startswith(prefix)})
    return spec, policy.eval()


def _run_model(path: Path, spec: BehaviorSpec, observations: NDArray[np.float32], output: str) -> NDArray[Any]:
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {"obs_0": observations.astype(np.float32)}
    if spec.action.discrete_branches:
        inputs["action_masks"] = np.ones((len(observations), spec.action.mask_size), np.float32)
    (found,) = session.run([output], inputs)
    assert isinstance(found, np.ndarray)
    return found
