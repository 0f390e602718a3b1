"""Tests deploy/compose/tls.yml: it trains over TLS with tokens, and lets no one else in."""

import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.exposition import samples
from tests.nightly.stack import images
from tests.nightly.stack.machine import ROOT, run, wait_until
from tests.nightly.stack.scrapes import Scrape
from tests.nightly.stack.stack import Stack

pytestmark = pytest.mark.timeout(1800)

PROJECT = f"{images.PREFIX}-tls"
SERVICES = ("learner", "actor", "prometheus")
MIN_VERSIONS = 5


class Secured(NamedTuple):
    """A stack that trains with TLS, and the folder of its secrets."""

    stack: Stack
    secrets: Path

    def read(self, path: str, token: str | None) -> bytes:
        """Returns what the learner's HTTP port answers."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"https://localhost:{self.stack.http_port}{path}", headers=headers)
        context = ssl.create_default_context(cafile=str(self.secrets / "actor" / "ca.pem"))
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:  # noqa: S310 - always https
            content: bytes = answer.read()
        return content

    def total(self, metric: str) -> float:
        """Returns the sum of a metric of the learner, read with Prometheus' token; 0 while it does not answer."""
        try:
            text = self.read("/metrics", (self.secrets / "prometheus" / "token").read_text().strip())
        except OSError:
            return 0.0
        return Scrape(samples(text)).total(metric)


@pytest.fixture(scope="module")
def secured(built: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Runs the overlay with two actors until several policies are published."""
    secrets = tmp_path_factory.mktemp("tls") / "secrets"
    learner = {"LEARNER": f"{sys.executable} -m learner"}
    run(["sh", "deploy/compose/secrets.sh", "localhost", secrets], environment=learner, folder=ROOT)
    stack = Stack(
        built.clone,
        PROJECT,
        COMPOSE_FILE="docker-compose.yml:deploy/compose/tls.yml",
        ROLLCAST_SECRETS=str(secrets),
    )
    stack.down()  # what a test that was killed may have left
    try:
        stack.up(*SERVICES, actors=2)
        stack.wait_healthy("learner")
        stack.wait_healthy("actor", 2)
        stack.wait_healthy("prometheus")
        found = Secured(stack, secrets)
        wait_until(lambda: found.total("policy_version") >= MIN_VERSIONS, "policies over TLS", seconds=240)
        yield found
    finally:
        stack.down()


def test_it_trains(secured: Secured) -> None:
    """Two actors with the token of the secrets' folder train, over TLS."""
    assert secured.total("updates_total") > 0
    status = json.loads(secured.read("/api/status", (secured.secrets / "prometheus" / "token").read_text().strip()))
    assert len(status["actors"]) == 2
    assert all(behavior["books"]["balanced"] for behavior in status["behaviors"])


def test_no_one_reads_without_a_token(secured: Secured) -> None:
    """The port answers strangers and actors only that it is healthy."""
    assert secured.read("/healthz", None) == b"serving\n"
    for token in (None, (secured.secrets / "actor" / "token").read_text().strip()):
        with pytest.raises(urllib.error.HTTPError, match=r"40[13]"):
            secured.read("/metrics", token)


@pytest.mark.parametrize(("job", "targets"), [("learner", 1), ("actor", 2)])
def test_prometheus_reads_all_with_its_tokens(secured: Secured, job: str, targets: int) -> None:
    """Prometheus' targets are up: the learner with the token of a viewer, actors with that of their metrics."""
    query = ["promtool", "query", "instant", "http://127.0.0.1:9090", f'sum(up{{job="{job}"}}) == {targets}']
    wait_until(lambda: secured.stack.execute("prometheus", *query).strip(), f"{job} is up", seconds=60)


def test_prometheus_is_not_published(secured: Secured) -> None:
    """Only containers reach Prometheus."""
    (container,) = secured.stack.containers("prometheus")
    assert not any(container["NetworkSettings"]["Ports"].values())


def test_no_secret_is_in_a_container_s_description(secured: Secured) -> None:
    """Neither environments nor commands nor logs of containers hold a token."""
    tokens = [(secured.secrets / name / "token").read_text().strip() for name in ("actor", "prometheus")]
    tokens.append(secured.stack.execute("learner", "cat", "/results/rollcast/operator_token").strip())
    for service in SERVICES:
        told = json.dumps(secured.stack.containers(service)) + secured.stack.logs(service)
        assert not [token for token in tokens if token in told]


def test_containers_are_limited(secured: Secured) -> None:
    """Docker limits memory, processes and open files of each container (R22)."""
    for service in SERVICES:
        for container in secured.stack.containers(service):
            limits = container["HostConfig"]
            assert limits["Memory"] > 0
            assert limits["PidsLimit"] > 0
            assert [limit["Name"] for limit in limits["Ulimits"]] == ["nofile"]
