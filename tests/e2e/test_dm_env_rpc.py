"""Tests training in the worlds of a dm_env_rpc server, with a learner and an actor as processes."""

from __future__ import annotations

from tests.actor_client.dm_env_rpc.worlds import Worlds, serving
from tests.e2e.processes import Processes
from tests.e2e.runs import cartpole, write_run
from tests.ports import reserve_ports

BALLS = ("--create", "size=3", "--seed-setting", "seed", "--num-envs", "8")


def test_worlds_are_learned_over_a_restart_of_their_server(processes: Processes) -> None:
    """A policy learns to catch; the server goes and comes back in between, which costs open steps and no more."""
    learner = processes.learner(write_run(processes.folder, {"Catch": cartpole()}, target_return=0.8))
    port = reserve_ports()
    options = ["--learner", learner.address, "--name", "worlds", "--log-format", "json"]
    with serving(Worlds(), port=port) as address:
        actor = processes.python("actor", "-m", "actor_client", "dm-env-rpc", address, *options, *BALLS)
        learner.wait_for_version("Catch", 1, actor)
    worlds = Worlds()
    with serving(worlds, port=port):
        assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
        assert worlds.names == []
    (failure,) = actor.events("environment_failed")
    assert "the server gave no answer to step: " in failure["error"]
    (books,) = actor.events("books")
    assert books["open"] == books["unacked"] == 0
    assert books["acked"]
    assert (learner.folder / "Catch.onnx").exists()
