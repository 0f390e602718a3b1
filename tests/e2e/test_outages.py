"""Tests that actors of trainers with replay memory go on without a learner, and that a killed learner starts again."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from actor_client.exits import ExitCode
from learner.cli.operator import Operator
from learner.shared.observe.address import ADDRESS_FILE, read_addresses
from tests.actor_client.unity.players.programs import is_running
from tests.e2e.books import by_reason
from tests.e2e.preloaded import children_of
from tests.e2e.processes import LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.e2e.state import State
from tests.ports import reserve_ports

NAME = "Pendulum"
SAC: dict[str, Any] = {
    "trainer_type": "sac",
    "hyperparameters": {"batch_size": 32, "buffer_size": 20_000, "buffer_init_steps": 64, "steps_per_update": 16},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "time_horizon": 16,
    "max_steps": 10_000_000,
}


def port_of(learner: LearnerProcess) -> int:
    """Returns the port of a learner."""
    return int(learner.address.rpartition(":")[2])


def settled(learner: LearnerProcess) -> State | None:
    """Returns the state once the actor reports that all it sent or kept is acked, and that this is what was received."""
    status = learner.status()  # which checks both equations
    rows = [entry for actor in status.actors for entry in actor.books]
    is_quiet = bool(rows) and all(entry.spooled_steps == entry.unacked_steps == 0 for entry in rows)
    received = sum(behavior.books.received for behavior in status.behaviors)
    return status if is_quiet and received == sum(entry.acked_steps for entry in rows) else None


def test_an_actor_steps_on_while_its_learner_is_away(processes: Processes) -> None:
    """A killed learner costs a replay trainer nothing that its actor had sent or taken: it is sent after the restart."""
    # Otherwise the paused learner has room for one chunk only, and the last ones may wait in the ring.
    room = {**SAC, "hyperparameters": {**SAC["hyperparameters"], "max_update_debt": 1000}}
    run_file = write_run(processes.folder, {NAME: room}, checkpoint_seconds=1.0)
    learner = processes.learner(run_file)
    options = ("--num-envs", "2", "--outage-bytes", "60000")
    actor = processes.actor(learner.address, "Pendulum-v1", *options)
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor)
    learner.wait_for_version(NAME, 5, actor)
    port = port_of(learner)
    learner.kill()
    wait_until(lambda: bool(actor.events("outage_full")), "the ring is full", said=actor.said)
    actor.signal(signal.SIGSTOP)  # it would take the learner's processor time
    again = processes.learner(run_file, "--resume", port=port)
    again.operator.pause()
    actor.signal(signal.SIGCONT)
    again.wait_for(lambda: len(again.status().actors) == 1, "the actor is back", actor)
    status = again.wait_for(lambda: settled(again), "the ring is empty, and each step has one fate", actor)
    assert status is not None
    (row,), (books,) = status.behaviors, status.actors[0].books
    dropped = by_reason(books.dropped)
    assert set(dropped) == {"outage_full"}
    assert dropped["outage_full"] > 0
    assert not row.books.dropped
    assert set(by_reason(row.books.lost)) <= {"restart"}
    again.operator.resume()
    again.wait_for_version(NAME, row.version + 5, actor)


def test_steps_on_the_way_are_kept_without_a_ring(processes: Processes) -> None:
    """Without --outage-bytes the actor waits, and what it had sent unacked is trained after the restart."""
    run_file = write_run(processes.folder, {NAME: SAC}, checkpoint_seconds=1.0)
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, "Pendulum-v1", "--num-envs", "2")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor)
    learner.wait_for_version(NAME, 5, actor)
    port = port_of(learner)
    learner.kill()
    again = processes.learner(run_file, "--resume", port=port)
    again.wait_for(lambda: len(again.status().actors) == 1, "the actor is back", actor)
    again.wait_for_version(NAME, again.behavior(NAME).version + 5, actor)
    again.operator.pause()
    status = again.wait_for(lambda: settled(again), "each step has one fate", actor)
    assert status is not None
    (books,) = status.actors[0].books
    assert not books.dropped


def test_outage_bytes_is_refused_where_steps_grow_old(processes: Processes) -> None:
    """An actor of ppo with --outage-bytes ends with a message that names the flag, the behavior and the reason."""
    run_file = write_run(processes.folder, {"CartPole": cartpole()})
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, "CartPole-v1", "--outage-bytes", "1000000")
    last_line = actor.fails_with(ExitCode.REFUSED)
    assert "--outage-bytes 1000000" in last_line
    assert "CartPole" in last_line
    learner.wait_for(lambda: not learner.status().actors and not learner.status().actors_away, "it said goodbye")


@pytest.mark.parametrize("has_trainer_process", [False, True])
def test_a_killed_learner_starts_again(processes: Processes, has_trainer_process: bool) -> None:
    """With --restarts a killed learner resumes its run, its actor returns, and SIGTERM ends the learner in good order.

    Trainers in a process of their own end with the service, and the learner ends with them.
    """
    run_file = write_run(processes.folder, {NAME: SAC}, checkpoint_seconds=1.0)
    own = json.dumps(has_trainer_process)  # with threads, one process has all
    supervisor = processes.learner(
        run_file, "--restarts", "1", "--set", f"rollcast.trainer_process={own}", port=reserve_ports()
    )
    actor = processes.actor(supervisor.address, "Pendulum-v1", "--num-envs", "2")
    supervisor.wait_for((supervisor.folder / "run_state.pt").exists, "a run state", actor)
    (learner,) = children_of(supervisor.pid)
    trainers = children_of(learner)
    assert len(trainers) == has_trainer_process
    (supervisor.folder / ADDRESS_FILE).unlink()  # the next learner may find the same ports free
    os.kill(learner, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, trainers)), "the trainers end with the service")
    wait_until(lambda: read_addresses(supervisor.folder) is not None, "it serves again", said=supervisor.said)
    addresses = read_addresses(supervisor.folder)
    assert addresses is not None
    operator = Operator.of(addresses)
    version = operator.status().run.behaviors[0].version
    supervisor.wait_for(
        lambda: operator.status().run.behaviors[0].version >= version + 5, "it trains again with its actor", actor
    )
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0, supervisor.said()
    assert "restart 1 of 1 in 1 s: the learner ended with signal 9" in supervisor.err()
    summary = json.loads((supervisor.folder / "summary.json").read_text())
    assert (summary["generation"], summary["stop_reason"]) == (2, "signal")
