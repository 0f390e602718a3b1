"""Updates of actors that wait for them have exactly the steps that the run file asks for."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.books import by_reason, check_books
from tests.e2e.processes import Child, LearnerProcess, Processes
from tests.e2e.runs import small, write_run

NAME = "Pendulum"
UPDATES = 3


def behavior(buffer_size: int, time_horizon: int, **changes: Any) -> dict[str, Any]:
    """A behavior with a buffer of so many steps."""
    hyperparameters = {"batch_size": buffer_size // 4, "buffer_size": buffer_size, "num_epoch": 1}
    return small(hyperparameters=hyperparameters, time_horizon=time_horizon, **changes)


def check_sizes(learner: LearnerProcess, buffer_size: int, *actors: Child) -> None:
    """Waits until all actors play, and checks that each later update has the steps asked for and no step is dropped."""
    learner.wait_for(lambda: playing(learner) == len(actors), "all actors play", *actors)
    first = learner.wait_for_version(NAME, learner.behavior(NAME).version + 1, *actors)
    sizes: dict[int, int] = {}

    def look() -> bool:
        status = learner.status()
        check_books(status)
        row = status.behaviors[0]
        assert by_reason(row.books.dropped) == by_reason(first.books.dropped)
        sizes[row.version - first.version] = row.env_steps_trained - first.env_steps_trained
        return max(sizes) >= UPDATES

    learner.wait_for(look, f"{UPDATES} updates", *actors)
    assert sizes == {updates: updates * buffer_size for updates in sizes}


def playing(learner: LearnerProcess) -> int:
    """Returns the number of connected actors that have taken steps."""
    actors = [actor for actor in learner.status().actors if actor.connected]
    return sum(any(each.produced_steps for each in actor.books) for actor in actors)


@pytest.mark.parametrize(
    ("buffer_size", "time_horizon", "environments"),
    [
        (1024, 128, (8,)),  # segments fill the buffer exactly
        (4096, 200, (16,)),  # 256 steps each: one whole segment and a part
        (1024, 1000, (8, 4, 1)),  # no segment is complete, and the parts are in proportion
    ],
)
def test_an_update_has_the_steps_asked_for(
    processes: Processes, tmp_path: Path, buffer_size: int, time_horizon: int, environments: tuple[int, ...]
) -> None:
    """The quotas of the actors add up to `buffer_size`, whatever the horizon."""
    learner = processes.learner(write_run(tmp_path, {NAME: behavior(buffer_size, time_horizon)}))
    actors = [
        processes.actor(learner.address, "Pendulum-v1", "--num-envs", str(number), name=f"actor-{number}")
        for number in environments
    ]
    check_sizes(learner, buffer_size, *actors)
    if len(actors) == 1:  # updates in which an actor joins may have more
        row = learner.behavior(NAME)
        assert row.env_steps_trained == row.version * buffer_size


def test_memory_changes_no_size(processes: Processes, tmp_path: Path) -> None:
    """Segments of recurrent policies are cut anywhere, because actors record the memory: the policy still agrees."""
    network = {"hidden_units": 16, "num_layers": 1, "memory": {"sequence_length": 16, "memory_size": 16}}
    learner = processes.learner(write_run(tmp_path, {NAME: behavior(1000, 64, network_settings=network)}))
    actor = processes.actor(learner.address, "Pendulum-v1", "--num-envs", "8")
    check_sizes(learner, 1000, actor)
    assert learner.behavior(NAME).log_prob_error_max < 1e-4


def test_the_others_take_the_steps_of_a_killed_actor(processes: Processes, tmp_path: Path) -> None:
    """An actor that is killed holds up no update, and no update is smaller for it."""
    learner = processes.learner(write_run(tmp_path, {NAME: behavior(2048, 1000)}))
    actors = [processes.actor(learner.address, "Pendulum-v1", "--num-envs", "8", name=name) for name in "abc"]
    check_sizes(learner, 2048, *actors)
    actors[0].kill()
    check_sizes(learner, 2048, *actors[1:])


def test_an_actor_may_join_at_any_time(processes: Processes, tmp_path: Path) -> None:
    """An actor that joins has its part in each later update."""
    learner = processes.learner(write_run(tmp_path, {NAME: behavior(2048, 64)}))
    first = processes.actor(learner.address, "Pendulum-v1", "--num-envs", "4", name="first")
    check_sizes(learner, 2048, first)
    second = processes.actor(learner.address, "Pendulum-v1", "--num-envs", "12", name="second")
    check_sizes(learner, 2048, first, second)


def test_nothing_waits_long_for_an_actor_that_hangs(processes: Processes, tmp_path: Path) -> None:
    """The others take the steps of an actor that stands still; it plays again when it can."""
    learner = processes.learner(write_run(tmp_path, {NAME: behavior(1024, 64)}, lease_seconds=60.0))
    actors = [processes.actor(learner.address, "Pendulum-v1", "--num-envs", "4", name=name) for name in "ab"]
    check_sizes(learner, 1024, *actors)
    actors[0].signal(signal.SIGSTOP)
    learner.wait_for_version(NAME, learner.behavior(NAME).version + 2 * UPDATES, *actors)
    assert learner.events("actors_are_late")
    assert by_reason(learner.behavior(NAME).books.dropped) == {}
    actors[0].signal(signal.SIGCONT)
    taken = produced(learner, "a")
    learner.wait_for(lambda: produced(learner, "a") > taken + 2048, "it plays again", *actors)
    check_sizes(learner, 1024, *actors)
    assert by_reason(learner.behavior(NAME).books.dropped).keys() <= {"stale"}, "what the hanging actor held"


def produced(learner: LearnerProcess, actor: str) -> int:
    """Returns the steps that an actor has reported."""
    return sum(each.produced_steps for each in learner.actor(actor).books)
