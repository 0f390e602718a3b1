"""Tests that actors act with the trained policy: log-probabilities, seeds, late behaviors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actor_client.envs.factory import make_env_batch
from tests.e2e import toys
from tests.e2e.books import by_reason
from tests.e2e.inprocess import MEANWHILE_AT, HybridBatch, connected, step
from tests.e2e.processes import Child, LearnerProcess, Processes

UPDATES = 6
MAX_ERROR = 1e-4


def _largest_error(learner: LearnerProcess, behavior: str, *actors: Child) -> float:
    """Returns the largest difference of log-probabilities seen over some updates, the first of which normalize.

    Only rows of the newest version are compared, which a slow actor does not send for every update.
    """
    rows = [learner.wait_for_version(behavior, version, *actors) for version in range(1, UPDATES + 1)]
    learner.wait_for(lambda: learner.behavior(behavior).log_prob_error_max > 0, "an update of fresh rows", *actors)
    return max(row.log_prob_error_max for row in (*rows, learner.behavior(behavior)))


@pytest.mark.parametrize(("behavior", "env"), [("Discrete", "CartPole-v1"), ("Continuous", "Pendulum-v1")])
def test_log_probabilities_agree(shared_learner: LearnerProcess, processes: Processes, behavior: str, env: str) -> None:
    """Recorded log-probabilities equal the learner's, with a normalizer whose statistics change."""
    actor = processes.actor(shared_learner.address, env, "--behavior", behavior, "--num-envs", "4", name=behavior)
    assert 0 < _largest_error(shared_learner, behavior, actor) < MAX_ERROR


def test_log_probabilities_of_hybrid_actions_agree(shared_learner: LearnerProcess) -> None:
    """Recorded log-probabilities of hybrid actions equal the learner's."""
    rows = []
    with connected(shared_learner.address, "hybrid") as link:
        for version in range(1, UPDATES + 1):
            step(link, lambda: HybridBatch(8, "Hybrid"), 256)  # an update; its policy is for the next
            rows.append(shared_learner.wait_for_version("Hybrid", version))
    assert 0 < max(row.log_prob_error_max for row in rows) < MAX_ERROR
    assert not rows[-1].books.dropped


def test_equal_actors_do_not_repeat_each_other(
    shared_learner: LearnerProcess, processes: Processes, tmp_path: Path
) -> None:
    """Two actors with equal arguments have different observations and actions from the first step on."""
    kwargs = json.dumps({"folder": str(tmp_path)})
    arguments = ("--behavior", "Equal", "--env-kwargs", kwargs)
    actors = [processes.actor(shared_learner.address, toys.named("recording"), *arguments) for _ in range(2)]
    files = [tmp_path / f"{actor.pid}.json" for actor in actors]
    shared_learner.wait_for(lambda: all(file.exists() for file in files), "both have taken steps", *actors)
    first, second = (json.loads(file.read_text()) for file in files)
    assert first[0] != second[0]
    assert all(ours[1:] != theirs[1:] for ours, theirs in zip(first, second, strict=True))
    assert [row[0] for row in first] != [row[0] for row in second]


def test_a_behavior_that_comes_late_trains(shared_learner: LearnerProcess) -> None:
    """A behavior declared during training is trained as well, and the books of both balance."""
    versions = []

    def declare_late() -> None:
        versions.append(shared_learner.wait_for_version("Early", 1).version)
        assert shared_learner.behavior("Late").behavior == ""
        step(link, lambda: make_env_batch("Pendulum-v1", num_envs=2, behavior="Late"), 600)
        versions.append(shared_learner.wait_for_version("Late", 1).version)

    with connected(shared_learner.address, "two-behaviors") as link:
        step(link, lambda: HybridBatch(2, "Early", declare_late), 4 * MEANWHILE_AT)
        shared_learner.wait_for_version("Early", versions[0] + 1)
        books = link.books()
    assert len(versions) == 2
    assert {name: view.balanced for name, view in books.items()} == {"Early": True, "Late": True}
    for name, steps in (("Early", 4 * MEANWHILE_AT), ("Late", 600)):
        assert books[name].produced == shared_learner.behavior(name).env_steps_taken == steps


def test_a_vector_environment_trains(shared_learner: LearnerProcess, processes: Processes) -> None:
    """Gymnasium's vector entry point feeds updates, and its reset steps do not count."""
    arguments = ("--vector", "--num-envs", "8", "--behavior", "Vector")
    actor = processes.actor(shared_learner.address, "CartPole-v1", *arguments, name="vector")
    row = shared_learner.wait_for_version("Vector", 2, actor)
    assert row.episodes > 0
    assert by_reason(row.books.dropped) == {}
    assert shared_learner.status().state == "RUN_STATE_TRAINING"
