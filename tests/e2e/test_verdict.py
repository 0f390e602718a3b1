"""Tests that the verdict names the bottleneck of a run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run
from tests.e2e.slow_link import SlowLink
from tests.e2e.state import Verdict
from tests.e2e.toys import named

pytestmark = pytest.mark.nightly

DELAY_SECONDS = 0.3
QUICK = {"batch_size": 256, "buffer_size": 256, "num_epoch": 1, "learning_rate": 1.0e-4}
THOROUGH = QUICK | {"batch_size": 64, "num_epoch": 80}


def test_the_slow_part_is_named(tmp_path: Path) -> None:
    """The verdict names slow environments, a slow link and long updates, in either mode.

    A run of each mode at once: most of the time is spent waiting for what is slow.
    """
    with ThreadPoolExecutor() as pool:
        for run in [pool.submit(_name_each, tmp_path, threaded) for threaded in (False, True)]:
            run.result()


def _name_each(folder: Path, threaded: bool) -> None:
    place = folder / f"threaded-{threaded}"
    place.mkdir()
    with processes_in(place) as processes:
        _slow_down_each(processes, threaded)


def _slow_down_each(processes: Processes, threaded: bool) -> None:
    learner = processes.learner(write_run(processes.folder, _behaviors(threaded), lease_seconds=2.0))
    with SlowLink(learner.address) as link:
        with _only(processes, learner, "Dawdling", named("dawdling"), learner.address) as actor:
            verdict = _wait_for(learner, "BOTTLENECK_ACTORS", actor)
            assert verdict.actor_busy_ratio > 0.5
            assert verdict.text.startswith("actor-bound: actors are busy ")
        with _only(processes, learner, "Far", "CartPole-v1", link.address) as actor:
            link.delay_seconds = DELAY_SECONDS
            learner.wait_for(lambda: learner.actor("Far").round_trip_seconds >= DELAY_SECONDS, "long trips", actor)
            verdict = _wait_for(learner, "BOTTLENECK_NETWORK", actor)
            assert verdict.network_ratio > max(verdict.learner_busy_ratio, verdict.actor_busy_ratio)
            seen = learner.actor("Far")
            assert seen.wait_ratio > 0
            assert seen.waits_for in {"credit", "hold", "policy"}
            assert seen.lag_versions is not None
        with _only(processes, learner, "Thorough", "CartPole-v1", learner.address) as actor:
            verdict = _wait_for(learner, "BOTTLENECK_LEARNER", actor)
            assert verdict.learner_busy_ratio > verdict.actor_busy_ratio
            assert verdict.text.startswith("learner-bound: the trainer is busy ")
            learner.operator.pause()
            paused = _wait_for(learner, "BOTTLENECK_UNSPECIFIED", actor)
            assert paused.text == "the run is paused"


def _behaviors(threaded: bool) -> dict[str, Any]:
    hyperparameters = {"Dawdling": QUICK, "Far": QUICK, "Thorough": THOROUGH}
    return {name: small(threaded=threaded, hyperparameters=values) for name, values in hyperparameters.items()}


@contextmanager
def _only(processes: Processes, learner: LearnerProcess, name: str, env: str, address: str) -> Iterator[Child]:
    """Starts an actor that trains alone, after the previous one no longer counts in the verdict.

    The actor before it stops counting when its lease runs out.
    """
    actor = processes.actor(address, env, "--behavior", name, "--num-envs", "2", name=name)
    learner.wait_for(lambda: learner.behavior(name).env_steps_taken > 0, f"{name} is stepped", actor)
    learner.operator.pause()
    _wait_for(learner, "BOTTLENECK_UNSPECIFIED", actor)
    learner.operator.resume()
    yield actor
    actor.kill()


def _wait_for(learner: LearnerProcess, bottleneck: str, actor: Child) -> Verdict:
    found = Verdict()

    def is_named() -> bool:
        nonlocal found
        found = learner.status().verdict
        return found.bottleneck == bottleneck

    learner.wait_for(is_named, f"the verdict {bottleneck}", actor)
    return found
