"""Tests one run of clients in five languages, a Python actor and a Unity player, any of which may be killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.e2e.processes import Child, Processes
from tests.e2e.test_metrics import scrape, scrape_actor
from tests.e2e.unity import Gateway
from tests.nightly.clients import test_cpp, test_csharp, test_godot, test_javascript, test_python
from tests.nightly.clients.conftest import NAME, TARGET_RETURN, Training

METRICS = ("--metrics-address", "127.0.0.1:0")
UNITY = ("--task", "cartpole-of-clients", "--agents", "4")


class Crowd:
    """All that trains one behavior.

    Args:
        training: The learner and the gateway of clients.
        folder: For what is compiled.

    Attributes:
        clients: The client of each language.
        actors: The actors beside the gateway of clients, by name.
    """

    def __init__(self, training: Training, folder: Path) -> None:
        self.training = training
        packages, made = test_python.packages_in(folder / "packages"), test_cpp.built(folder / "build")
        compiled = test_csharp.compiled(folder, test_csharp.CARTPOLE, test_csharp.CLIENT)
        self._starts: Mapping[str, Callable[[], Child]] = {
            "python": lambda: test_python.start(training, packages),
            "cpp": lambda: test_cpp.start(training, made),
            "node": lambda: test_javascript.start(training),
            "csharp": lambda: test_csharp.start(training, compiled),
            "godot": lambda: test_godot.start(training),
        }
        self.clients = {name: start() for name, start in self._starts.items()}
        self.actors: dict[str, Child] = {}
        self.start_actors("first")

    def start_actors(self, suffix: str) -> None:
        """Starts an actor of Gymnasium and a gateway with a Unity player."""
        processes, address = self.training.processes, self.training.learner.address
        gym, unity = f"gym-{suffix}", f"unity-{suffix}"
        options = ("--behavior", NAME, "--num-envs", "2", *METRICS)
        self.actors[gym] = processes.actor(address, "CartPole-v1", *options, name=gym)
        self.actors[unity] = Gateway(processes, address, *METRICS, play=UNITY, name=unity).child

    def seats(self) -> tuple[int, int]:
        """Returns how many clients the gateway has, and how many have left it."""
        gateway = self.training.gateway
        if not gateway.events("metrics"):
            return 0, 0
        now = scrape_actor(gateway)
        return int(now.sum("rollcast_actor_clients")), int(now.sum("rollcast_actor_client_departures_total"))

    def all_connect(self, left: int) -> None:
        """Waits until all clients are connected, and checks that no more have left the gateway than were killed."""
        self.waits_for(lambda: self.seats()[0] == len(self.clients), "all clients are connected")
        assert self.seats() == (len(self.clients), left), "another client has lost its connection"

    def waits_for(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until a condition holds, while everyone runs; at each look the books of all balance, and their metrics."""
        learner, actors = self.training.learner, (self.training.gateway, *self.actors.values())

        def holds() -> bool:
            if learner.behavior(NAME).version > 0:
                scrape(learner)
            for actor in actors:
                if actor.events("metrics"):
                    scrape_actor(actor)
            return condition()

        learner.wait_for(holds, what, *actors, *self.clients.values())

    def all_train(self) -> None:
        """Waits for two updates and for steps of all."""
        learner, names = self.training.learner, ("gateway", *self.actors)
        before, version = {name: self._acked(name) for name in names}, learner.behavior(NAME).version
        self.waits_for(lambda: learner.behavior(NAME).version >= version + 2, "two updates")
        for name in names:
            self.waits_for(lambda name=name: self._acked(name) != before[name], f"steps of {name}")  # type: ignore[misc]

    def kill_client(self, name: str) -> None:
        """Kills a client, and starts it again once the others have trained."""
        self.clients.pop(name).kill()
        self.all_train()
        self.clients[name] = self._starts[name]()

    def kill_actor(self, name: str) -> None:
        """Kills an actor."""
        self.actors.pop(name).kill()
        self.all_train()

    def _acked(self, actor: str) -> int:
        return sum(books.acked_steps for books in self.training.learner.actor(actor).books)


@pytest.fixture
def crowd(processes: Processes, tmp_path: Path) -> Crowd:
    """Starts everyone in a run without an end."""
    return Crowd(Training(processes, target_return=10_000.0, checkpoint_seconds=1.5), tmp_path)


@pytest.mark.timeout(1800)
def test_any_may_be_killed(crowd: Crowd) -> None:
    """A kill of one disturbs no other, and after kills of the gateway and of the learner all train to the target."""
    training = crowd.training
    crowd.all_connect(left=0)
    crowd.all_train()

    for kills, name in enumerate(list(crowd.clients), start=1):
        crowd.kill_client(name)
        crowd.all_connect(left=kills)
    for name in list(crowd.actors):
        crowd.kill_actor(name)
    crowd.all_connect(left=len(crowd.clients))
    crowd.start_actors("second")

    training.gateway.kill()
    training.start_gateway()
    crowd.all_connect(left=0)
    crowd.all_train()

    port = int(training.learner.address.rpartition(":")[2])
    training.learner.kill()
    training.learner = training.processes.learner(training.run_file, "--resume", port=port)
    crowd.all_train()
    crowd.all_connect(left=0)

    run = ("--run-id", training.learner.folder.name, "--results-dir", str(training.learner.folder.parent))
    told = training.processes.python("set", "-m", "learner", "set", f"target_return={TARGET_RETURN}", *run)
    assert told.wait() == 0, told.said()
    assert all(training.ends(*crowd.clients.values()))
    assert [actor.wait() for actor in crowd.actors.values()] == [0, 0], training.said(*crowd.actors.values())
