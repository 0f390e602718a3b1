"""Tests a run whose critic sees an observation that the policy does not read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rollcast.demonstrations.reading import read_demonstration

from actor_client.envs.scalar import ScalarBatch
from learner.shared.exits import ExitCode
from tests.e2e.processes import LearnerProcess, Processes
from tests.e2e.runs import small, write_run
from tests.e2e.toys import Answers, named

NAME = "Answers"
ENV = named(NAME)
STEPS = 20_000
UNTOLD = ("--env-kwargs", '{"tells": false}')


def trained(processes: Processes, run: str, *flags: str, **network: Any) -> LearnerProcess:
    """Trains to the end, and returns the learner."""
    settings = small(
        hyperparameters={
            "batch_size": 256,
            "buffer_size": 1024,
            "num_epoch": 8,
            "learning_rate": 3.0e-3,
            "learning_rate_schedule": "constant",
            "beta": 0.0,
        },
        network_settings={"hidden_units": 32, "num_layers": 2, **network},
        max_steps=STEPS,
        summary_freq=STEPS // 2,
    )
    learner = processes.learner(write_run(processes.folder, {NAME: settings}), run=run)
    actor = processes.actor(learner.address, ENV, "--num-envs", "8", *flags)
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    return learner


def last(learner: LearnerProcess, statistic: str) -> float:
    """Returns the newest value of a statistic."""
    with (learner.folder / NAME / "stats.csv").open(newline="") as file:
        return [float(row["value"]) for row in csv.DictReader(file) if row["key"] == statistic][-1]


def inputs(model: Path) -> list[str]:
    """Returns the names of a model's inputs."""
    session: Any = onnxruntime.InferenceSession(str(model))  # type: ignore[attr-defined]
    return [given.name for given in session.get_inputs()]


def right(processes: Processes, learner: LearnerProcess, *, tells: bool) -> float:
    """Plays 100 episodes with a run's model, and returns the mean number of right choices in a step."""
    file = processes.folder / f"{learner.folder.name}-{tells}.demo"
    model = learner.folder / f"{NAME}.onnx"
    flags = ["--env", ENV, "--policy", str(model), "--record", str(file), "--record-episodes", "100"]
    actor = processes.python(
        f"record-{file.stem}", "-m", "actor_client", "gym", *flags, "--num-envs", "4", *(() if tells else UNTOLD)
    )
    assert actor.wait() == 0, actor.said()
    rewards = read_demonstration(file, ScalarBatch([Answers(tells=tells)], NAME).spec).rewards
    return float((rewards - np.where(rewards > 0.5, 2.0, -2.0)).mean())


def test_a_secret_helps_the_value_and_stays_out_of_the_files(processes: Processes) -> None:
    """With the secret the critic explains the luck of episodes, the policy guesses, and its model acts without it.

    The policy that reads the secret solves the task; without the observation, no critic knows the luck.
    """
    told = trained(processes, "told")
    untold = trained(processes, "untold", *UNTOLD)
    secret = trained(processes, "secret", critic_only=["answer"])
    found = [
        right(processes, learner, tells=tells)
        for learner, tells in ((told, True), (untold, False), (secret, True), (secret, False))
    ]
    assert found[0] > 1.9
    assert all(1.4 < share < 1.6 for share in found[1:]), found
    explained = {each.folder.name: last(each, "Rollcast/Explained Variance") for each in (told, untold, secret)}
    assert min(explained["told"], explained["secret"]) > 0.5, explained
    assert explained["untold"] < 0.2, explained
    assert inputs(told.folder / f"{NAME}.onnx") == ["obs_0", "obs_1", "action_masks"]
    assert inputs(secret.folder / f"{NAME}.onnx") == ["obs_0", "action_masks"]


def test_what_the_policy_cannot_do_without_is_told(processes: Processes) -> None:
    """An unknown name ends the actor with the list of names; a resumed run with another list ends the learner."""
    run_file = write_run(processes.folder, {NAME: small(network_settings={"critic_only": ["answers"]})})
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, ENV)
    said = actor.fails_with(36)
    assert "critic_only names 'answers', but the observations are answer, hint" in said
    learner.end()

    run_file = write_run(processes.folder, {NAME: small(network_settings={"critic_only": ["answer"]})})
    learner = processes.learner(run_file, run="second")
    actor = processes.actor(learner.address, ENV)
    learner.wait_for_version(NAME, 1, actor)
    learner.operator.save_checkpoint()
    learner.end()
    actor.end()
    run_file = write_run(processes.folder, {NAME: small(network_settings={"critic_only": ["hint"]})})
    again = processes.learner(run_file, "--resume", run="second")
    said = again.fails_with(ExitCode.BAD_CHECKPOINT)
    assert "network_settings.critic_only was ['answer'], is ['hint']; restore what it was" in said
