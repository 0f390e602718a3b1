"""Tests docker-compose.yml on a real engine from the build to the end, in a minute; `.ci/run` includes it."""

import json
from pathlib import Path

import pytest

from tests.nightly.stack.conftest import as_printed
from tests.nightly.stack.machine import wait_until
from tests.nightly.stack.prometheus import Prometheus
from tests.nightly.stack.scrapes import Watcher
from tests.nightly.stack.stack import SERVICES, Stack

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(1800)]


def test_the_stack_trains_is_scraped_and_stops(built: Stack, tmp_path: Path) -> None:
    """`docker compose up` trains with two actors, Prometheus scrapes all three, `status` answers, and `stop` saves the run."""
    prometheus = Prometheus(built.prometheus_port)
    try:
        built.compose(*as_printed(), *SERVICES)
        for service, number in (("learner", 1), ("actor", 2), ("prometheus", 1)):
            built.wait_healthy(service, number)
        with Watcher(built.http_port) as watcher:
            wait_until(lambda: watcher.begin, "100 episodes", seconds=300)
        assert watcher.unbalanced == []
        wait_until(lambda: len(prometheus.healthy_targets("learner")) == 1, "the learner scraped", seconds=60)
        wait_until(lambda: len(prometheus.healthy_targets("actor")) == 2, "two actors scraped", seconds=60)
        status = built.execute("learner", "rollcast", "status", "--run-id=rollcast", "--results-dir=/results", "--json")
        assert len(json.loads(status)["actors"]) == 2

        page = built.execute("learner", "rollcast", "page", "--run-id=rollcast", "--results-dir=/results")
        assert page.startswith(f"http://127.0.0.1:{built.http_port}/#token="), "the published port"

        built.compose("stop")
        codes = {service: [each["State"]["ExitCode"] for each in built.containers(service)] for service in SERVICES}
        assert codes == {"learner": [0], "actor": [0, 0], "prometheus": [0]}, built.logs("learner")
        assert (built.copy_run_folder(tmp_path / "rollcast") / "run_state.pt").stat().st_size > 0
    finally:
        built.down()
