"""Fixtures of the stack: built, running, scaled, crashed, stopped and restored."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.documents import commands, section
from tests.nightly.stack import images, machine
from tests.nightly.stack.prometheus import Prometheus
from tests.nightly.stack.scrapes import Scrape, Watcher, scrape
from tests.nightly.stack.stack import SERVICES, Stack

TRAINING_SECONDS = 75.0  # after 60 s the return is looked at; a scrape and a checkpoint more


@dataclass(frozen=True, slots=True)
class Training:
    """A stack that has trained for a while with two actors."""

    stack: Stack
    prometheus: Prometheus
    watcher: Watcher


@dataclass(frozen=True, slots=True)
class Stopped:
    """The state of a stopped stack."""

    stack: Stack
    exit_codes: dict[str, list[int]]
    run_folder: Path
    last: Scrape


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Builds the images from a clone of the project, without a network."""
    machine.require()
    folder = tmp_path_factory.mktemp("stack")
    clone = folder / "clone"
    machine.clone(clone)
    stack = Stack(clone)
    stack.down()  # what a test that was killed may have left
    try:
        images.make_base(folder)
        images.make_prometheus(folder / "prometheus")
        images.fetch_wheels(clone)
        stack.build()
        yield stack
    finally:
        images.remove_all()


def as_printed() -> list[str]:
    """Returns the arguments of `docker compose` on the first page, which start the stack with two actors.

    The images exist already: `Stack.build` makes them without a network.
    """
    *_, (docker, compose, *words) = commands(section("README.md", "Several machines, and a service"))
    assert (docker, compose, words[-1]) == ("docker", "compose", "actor=2")
    return ["--no-build" if word == "--build" else word for word in words]


@pytest.fixture(scope="session")
def training(built: Stack) -> Iterator[Training]:
    """Runs the stack with two actors for a minute, with scrapes from before the first step."""
    prometheus = Prometheus(built.prometheus_port)
    try:
        built.up("learner", "prometheus")
        built.wait_healthy("learner")
        with Watcher(built.http_port) as watcher:
            built.compose(*as_printed(), *SERVICES)
            built.wait_healthy("actor", 2)
            built.wait_healthy("prometheus")
            machine.wait_until(lambda: watcher.begin, "100 episodes", seconds=120, pause_seconds=0.2)
            time.sleep(TRAINING_SECONDS)
            yield Training(built, prometheus, watcher)
    finally:
        built.down()


@pytest.fixture(scope="session")
def scaled(training: Training) -> Training:
    """Adds a third actor to the stack."""
    training.stack.up(*SERVICES, actors=3)
    training.stack.wait_healthy("actor", 3)
    return training


@pytest.fixture(scope="session")
def crashed(scaled: Training) -> tuple[Scrape, Scrape]:
    """Returns what the learner said before it and one actor were killed, and when it trained again."""
    stack = scaled.stack
    before = scrape(stack.http_port)
    stack.crash("actor")
    stack.crash("learner")

    def trains_again() -> Scrape | None:
        try:
            found = scrape(stack.http_port)
        except OSError:
            return None
        is_new = found.total("generation") > before.total("generation")
        return found if is_new and found.total("updates_total") > 0 else None

    after = machine.wait_until(trains_again, "training after a crash", seconds=120)
    stack.wait_healthy("actor", 3)
    return before, after


@pytest.fixture(scope="session")
def stopped(scaled: Training, crashed: object, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Stops the stack with `docker compose stop`."""
    last = scrape(scaled.stack.http_port)
    scaled.stack.compose("stop")
    codes = {
        service: [container["State"]["ExitCode"] for container in scaled.stack.containers(service)]
        for service in SERVICES
    }
    folder = scaled.stack.copy_run_folder(tmp_path_factory.mktemp("stopped") / "rollcast")
    return Stopped(scaled.stack, codes, folder, last)


@pytest.fixture(scope="session")
def restored(stopped: Stopped, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Backs up, removes and restores the run folder with the commands of deploy/README.md."""
    folder = tmp_path_factory.mktemp("restored")
    backup = folder / "rollcast.tar"
    stopped.stack.one_off("tar", "-C", "/results", "-c", "rollcast", target=backup)
    stopped.stack.one_off("rm", "-rf", "/results/rollcast")
    stopped.stack.one_off("tar", "-C", "/results", "-x", source=backup)
    return stopped.stack.copy_run_folder(folder / "rollcast")


@pytest.fixture(scope="session")
def again(stopped: Stopped, restored: Path) -> Scrape:
    """Starts the stack again and returns the first scrape with training."""
    stopped.stack.up(*SERVICES, actors=2)
    stopped.stack.wait_healthy("learner")
    trained = stopped.last.total("env_steps_trained_total")

    def goes_on() -> Scrape | None:
        found = scrape(stopped.stack.http_port)
        return found if found.total("env_steps_trained_total") > trained else None

    return machine.wait_until(goes_on, f"more than {trained:.0f} trained steps", seconds=120)
