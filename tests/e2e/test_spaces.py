"""Tests every kind of observation and action from actor to model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.e2e import toys
from tests.e2e.processes import Child, LearnerProcess, processes_in
from tests.e2e.runs import small, write_run

SPACES = {
    "Dict": toys.dict_space,
    "Tuple": toys.tuple_space,
    "Image": toys.image_space,
    "MultiDiscrete": toys.multi_discrete_space,
    "MultiBinary": toys.multi_binary_space,
    "Discrete": toys.discrete_space,
    "Box": toys.box_space,
}
OBSERVATIONS = {"Dict": 2, "Tuple": 2}
LOSSES = ("Losses/Policy Loss", "Losses/Value Loss", "Policy/Entropy")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LearnerProcess, dict[str, Child]]]:
    """Starts a learner and an actor for each kind of space."""
    folder = tmp_path_factory.mktemp("spaces")
    with processes_in(folder) as started:
        learner = started.learner(write_run(folder, {name: small() for name in SPACES}))
        actors = {
            name: started.actor(
                learner.address, toys.named(make.__name__), "--behavior", name, "--num-envs", "3", name=name
            )
            for name, make in SPACES.items()
        }
        yield learner, actors


@pytest.mark.parametrize("name", SPACES)
def test_two_updates_with_each_space(run: tuple[LearnerProcess, dict[str, Child]], name: str) -> None:
    """An actor with this space feeds at least two updates and discards nothing."""
    learner, actors = run
    row = learner.wait_for_version(name, 2, actors[name])
    assert row.books.trained > 2 * 256
    assert not row.books.dropped
    assert not row.books.lost
    assert row.mean_return_100 == pytest.approx(5.0), "an episode has five steps, each rewarded with 1"
    assert row.log_prob_error_max < 1e-4


def test_the_end_of_a_run_with_many_behaviors(run: tuple[LearnerProcess, dict[str, Child]]) -> None:
    """All losses are finite, each behavior has a model, and all actors exit with 0."""
    learner, actors = run
    for name in SPACES:
        learner.wait_for_version(name, 2, actors[name])
    learner.operator.drain(final=True)
    assert learner.wait() == 0, learner.said()
    assert {name: actor.wait() for name, actor in actors.items()} == dict.fromkeys(SPACES, 0)
    for name in SPACES:
        losses = _losses(learner.folder / name)
        assert set(losses) == set(LOSSES), name
        assert all(math.isfinite(value) for values in losses.values() for value in values), losses
        inputs = [entry.name for entry in onnx.load(learner.folder / f"{name}.onnx").graph.input]
        assert sum(entry.startswith("obs_") for entry in inputs) == OBSERVATIONS.get(name, 1), inputs


def _losses(folder: Path) -> dict[str, list[float]]:
    events: Any = EventAccumulator(str(folder))  # type: ignore[no-untyped-call]
    events.Reload()
    found = {}
    for tag in LOSSES:
        if tag in events.Tags()["scalars"]:
            found[tag] = [float(np.float32(event.value)) for event in events.Scalars(tag)]
    return found
