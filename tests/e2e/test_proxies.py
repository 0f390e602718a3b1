"""Tests that no command goes to a proxy for a learner on this machine; `rollcast train` and `rollcast unity` have tests of their own."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.e2e.processes import DEAD_PROXIES, Child, LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.runs import small, write_run
from tests.e2e.unity import Gateway

ACTORS = {
    "gym": ("--env", "CartPole-v1"),
    "pettingzoo": ("--env", "mpe2.simple_spread_v3:env"),
    "boards": ("--game", "tic_tac_toe"),
}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, LearnerProcess]]:
    """Starts a learner where a proxy is set."""
    folder = tmp_path_factory.mktemp("proxies")
    with pytest.MonkeyPatch.context() as patch, processes_in(folder) as started:
        for name, url in DEAD_PROXIES.items():
            patch.setenv(name, url)  # for all processes, and the operator of this one
        behaviors = {name: small() for name in ("gym", "pettingzoo", "boards", "CartPole")}
        behaviors["boards"]["network_settings"] |= {"vis_encode_type": "fully_connected"}
        run_file = write_run(folder, behaviors)
        yield started, started.learner(run_file)


def _actor(processes: Processes, address: str, command: str, *arguments: str) -> Child:
    options = ["--learner", address, "--behavior", command, "--metrics-address", "off", "--log-format", "json"]
    return processes.python(command, "-m", "actor_client", command, *options, *ACTORS[command], *arguments)


@pytest.mark.parametrize("command", ACTORS)
def test_actors_train(proxied: tuple[Processes, LearnerProcess], command: str) -> None:
    """Each kind of actor reaches the learner."""
    processes, learner = proxied
    actor = _actor(processes, learner.address, command)
    learner.wait_for_version(command, 1, actor)
    actor.end()


def test_players_train(proxied: tuple[Processes, LearnerProcess]) -> None:
    """A gateway reaches the learner, and its players the gateway."""
    processes, learner = proxied
    gateway = Gateway(processes, learner.address).child
    learner.wait_for_version("CartPole", 1, gateway)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.said()


def test_operators_and_evaluations_reach_the_learner(proxied: tuple[Processes, LearnerProcess]) -> None:
    """Each command reaches the learner, and an evaluation and the actors that it starts find each other."""
    processes, learner = proxied
    actor = _actor(processes, learner.address, "gym", "--name", "other")
    learner.wait_for_version("gym", 1, actor)
    actor.end()
    place = ("--run-id", learner.folder.name, "--results-dir", str(learner.folder.parent))
    for command in ("status", "page", "healthcheck", "pause", "resume", "save"):
        done = processes.python(command, "-m", "learner", command, *place)
        assert done.wait() == 0, done.said()
    arguments = ["--behavior", "gym", "--env", "CartPole-v1", "--episodes", "3", "--json"]
    child = processes.python("evaluate", "-m", "learner", "evaluate", str(learner.folder), *arguments)
    assert child.wait() == 0, child.said()


def test_a_message_names_the_proxy(processes: Processes) -> None:
    """Where the proxy is used and does not answer, the actor and the operator read that it was the proxy."""
    far, named = (
        "203.0.113.5:50051",
        "goes through the proxy 127.0.0.1:9 of grpc_proxy: check it, or connect directly with no_proxy=203",
    )
    actor = processes.actor(far, "CartPole-v1", "--insecure", environment=DEAD_PROXIES)
    wait_until(lambda: named in actor.err(), "it names the proxy", said=actor.said)
    asked = processes.python("status", "-m", "learner", "status", "--control", far, environment=DEAD_PROXIES)
    assert named in asked.fails_with(21)
