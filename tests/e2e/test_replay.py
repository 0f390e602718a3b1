"""Tests training from replay memory over real connections."""

from __future__ import annotations

import json
import signal
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.e2e.processes import Processes
from tests.e2e.runs import write_run

NAME = "Pendulum"
RUN: dict[str, Any] = {
    "trainer_type": "sac",
    "hyperparameters": {"batch_size": 32, "buffer_size": 1000, "buffer_init_steps": 64, "save_replay_buffer": True},
    "network_settings": {"hidden_units": 16, "num_layers": 1, "normalize": True},
    "time_horizon": 16,
    "max_steps": 100_000,
}


@pytest.mark.parametrize("size", [0, 8])
def test_a_run_with_replay_memory_stops_and_goes_on(processes: Processes, size: int) -> None:
    """Each step has an update, no step is dropped, and after a stop the memory is read from its file.

    So it is with networks that remember; their actors and the exported model carry what they remember, and sequences
    have a burn-in.
    """
    memory = {"memory_size": size, "sequence_length": 5} if size else None
    network: dict[str, Any] = {**RUN["network_settings"], "memory": memory}
    hyper = {**RUN["hyperparameters"], "burn_in": 2 if size else 0}
    run_file = write_run(processes.folder, {NAME: {**RUN, "hyperparameters": hyper, "network_settings": network}})
    learner = processes.learner(run_file)
    actors = [processes.actor(learner.address, "Pendulum-v1", "--num-envs", "2", name=f"actor-{n}") for n in (1, 2)]
    learner.wait_for(lambda: learner.behavior(NAME).version >= 100, "version 100", *actors)
    row = learner.behavior(NAME)
    # Far fewer than the actors could take: every step beyond the first 64 owes an update, and is waited for.
    assert row.books.trained - 64 <= row.version + 6 * 4 * 17
    assert not row.books.dropped
    port = int(learner.address.rpartition(":")[2])
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    assert (learner.folder / NAME / "last_replay_buffer.npz").exists()
    session = onnxruntime.InferenceSession(learner.folder / f"{NAME}.onnx")  # type: ignore[attr-defined]
    given = {"obs_0": np.full((3, 3), 9.0, np.float32)}
    if size:
        given["recurrent_in"] = np.zeros((3, 1, size), np.float32)
        (remembered,) = session.run(["recurrent_out"], given)
        assert np.asarray(remembered).shape == (3, 1, size)
    (action,) = session.run(["deterministic_continuous_actions"], given)
    assert np.abs(np.asarray(action)).max() <= 1.0

    again = processes.learner(run_file, "--resume", port=port)
    version = again.behavior(NAME).version
    assert version >= 100
    again.wait_for(lambda: again.behavior(NAME).version >= version + 20, "20 more versions", *actors)
    assert {entry.reason for entry in again.behavior(NAME).books.dropped} <= {"generation"}
    assert "replay_loaded" in again.err()
    assert not any("memory" in actor.err() for actor in actors)
    again.signal(signal.SIGTERM)
    assert again.wait() == 0, again.said()


def test_the_first_steps_are_uniform(processes: Processes) -> None:
    """Actors act uniformly in the first steps, and with the narrow policy after them."""
    network = {**RUN["network_settings"], "log_std_init": -4.0}
    hyper = {**RUN["hyperparameters"], "buffer_init_steps": 300, "buffer_init_actions": "uniform"}
    run_file = write_run(processes.folder, {NAME: {**RUN, "hyperparameters": hyper, "network_settings": network}})
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, "Pendulum-v1", "--num-envs", "2")
    learner.wait_for(lambda: learner.behavior(NAME).version >= 200, "version 200", actor)
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    with np.load(learner.folder / NAME / "last_replay_buffer.npz") as file:
        columns = [name for name, *_ in json.loads(file["page.json"])["columns"]]
        draws = file[f"column_{columns.index('continuous_action')}"][file["rows"]]
    actions = np.tanh(draws[:, 0])
    first, last = actions[:288], actions[-64:]
    assert abs(first.std() - 3.0**-0.5) < 0.08
    assert abs((np.abs(first) > 0.5).mean() - 0.5) < 0.12
    assert np.abs(np.diff(last)).mean() < 0.4, "2/3 if they were uniform"
