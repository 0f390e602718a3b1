"""Tests docker-compose.yml where a company's proxy is set, for the shell and, by the engine's client, for every container."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.processes import DEAD_PROXIES
from tests.nightly.stack import images
from tests.nightly.stack.machine import wait_until
from tests.nightly.stack.prometheus import Prometheus
from tests.nightly.stack.scrapes import Watcher
from tests.nightly.stack.stack import SERVICES, Stack

pytestmark = pytest.mark.timeout(1800)

PROJECT = f"{images.PREFIX}-proxies"
DEAD = DEAD_PROXIES["http_proxy"]


@pytest.fixture(scope="module")
def proxied(built: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Starts the stack with proxies that do not answer, and two actors."""
    client = tmp_path_factory.mktemp("client")
    (client / "config.json").write_text(
        json.dumps({"proxies": {"default": dict.fromkeys(("httpProxy", "httpsProxy", "allProxy"), DEAD)}})
    )
    stack = Stack(built.clone, PROJECT, DOCKER_CONFIG=str(client), **DEAD_PROXIES)
    stack.down()  # what a test that was killed may have left
    try:
        stack.up(*SERVICES, actors=2)
        yield stack
    finally:
        stack.down()


def test_it_trains(proxied: Stack) -> None:
    """All services become healthy, and two actors train, although every container has the proxies."""
    for service, number in (("learner", 1), ("actor", 2), ("prometheus", 1)):
        proxied.wait_healthy(service, number)
        for container in proxied.containers(service):
            assert {f"HTTP_PROXY={DEAD}", f"http_proxy={DEAD}"} < set(container["Config"]["Env"]), service
    with Watcher(proxied.http_port) as watcher:
        wait_until(lambda: watcher.begin, "100 episodes", seconds=300)


def test_prometheus_scrapes_all(proxied: Stack) -> None:
    """Prometheus reaches the learner and both actors."""
    prometheus = Prometheus(proxied.prometheus_port)
    wait_until(lambda: len(prometheus.healthy_targets("learner")) == 1, "the learner scraped", seconds=120)
    wait_until(lambda: len(prometheus.healthy_targets("actor")) == 2, "two actors scraped", seconds=120)


@pytest.mark.parametrize("command", ["status", "page", "pause", "resume", "save", "healthcheck"])
def test_the_operators_commands_answer(proxied: Stack, command: str) -> None:
    """Each command of deploy/README.md reaches the learner in its container."""
    proxied.wait_healthy("learner")
    proxied.execute("learner", "rollcast", command, "--run-id=rollcast", "--results-dir=/results")
