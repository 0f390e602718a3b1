"""Tests the page's port in a whole learner of this process."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from learner.app import serve
from learner.commands.operator import page_link
from learner.common.exits import ExitCode, UserError
from learner.observe.address import BoundAddresses, read_addresses
from learner.settings.load import LoadedRun, load_run_options
from tests.learner.ingest.parts import NAME
from tests.learner.process import process_as_before
from tests.learner.starts import SETTINGS

pytestmark = pytest.mark.slow

SECONDS = 60.0


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restores the process-wide settings of a learner."""
    with process_as_before():
        yield


def load(results: Path, **service: Any) -> LoadedRun:
    """Returns settings of a run without actors that ends after the visit."""
    path = results / "run.yaml"
    block = {"address": "127.0.0.1:0", "max_wall_seconds": 2.0, **service}
    path.write_text(yaml.safe_dump({"behaviors": {NAME: {"trainer_type": "ppo", **SETTINGS}}, "rollcast": block}))
    return load_run_options(path, cli={"run_id": "run", "results_dir": str(results)})


def fetched(link: str, path: str) -> bytes:
    """Returns what is at a path of the site that a link leads to."""
    connection = http.client.HTTPConnection(urlsplit(link).netloc, timeout=SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


class Visitor(threading.Thread):
    """Waits until the learner says where it is, and looks at what is there."""

    def __init__(self, results: Path) -> None:
        super().__init__()
        self.addresses: BoundAddresses | None = None
        self.link = ""
        self.status: dict[str, Any] = {}
        self.metrics = ""
        self.problem: Exception | None = None
        self._results = results

    def run(self) -> None:
        """Visits the page."""
        deadline = time.monotonic() + SECONDS
        while (addresses := read_addresses(self._results / "run")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.addresses = addresses
        try:
            self.link = page_link(None, self._results)
            self.status = json.loads(fetched(self.link, "/api/status"))
            self.metrics = fetched(self.link, "/metrics").decode()
        except (UserError, OSError) as error:
            self.problem = error


def visited(results: Path, **service: Any) -> Visitor:
    """Runs a learner to its end, and returns who looked at it."""
    visitor = Visitor(results)
    visitor.start()
    try:
        assert serve(load(results, **service)) == ExitCode.OK
    finally:
        visitor.join(SECONDS)
    return visitor


def test_a_learner_serves_its_page(tmp_path: Path) -> None:
    """The run folder has the page's address, `page` prints its link with the token, and metrics are served."""
    visitor = visited(tmp_path, http_address="127.0.0.1:0")
    assert visitor.problem is None
    assert visitor.addresses is not None
    token_file = tmp_path / "run" / "operator_token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    assert visitor.link == f"http://{visitor.addresses.http}/#token={token_file.read_text().strip()}"
    assert (visitor.status["run_id"], visitor.status["state"]) == ("run", "waiting")
    assert 'rollcast_learner_run_state{state="waiting"} 1.0' in visitor.metrics
    with pytest.raises(UserError, match="no running learner"):
        page_link(None, tmp_path)


def test_a_taken_port_that_was_asked_for(tmp_path: Path) -> None:
    """A requested port that is taken is an error before the run folder is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=address) as caught:
            serve(load(tmp_path, http_address=address))
    assert caught.value.exit_code is ExitCode.PORT_IN_USE
    assert not (tmp_path / "run").exists()


def test_no_page(tmp_path: Path) -> None:
    """With the page off nothing listens, commands still have their token, and `page` says how to enable it."""
    visitor = visited(tmp_path, http=False)
    assert visitor.addresses is not None
    assert visitor.addresses.http == ""
    assert visitor.addresses.token == str(tmp_path / "run" / "operator_token")
    assert "rollcast.http: true" in str(visitor.problem)


def test_a_token_of_the_user(tmp_path: Path) -> None:
    """A user's token replaces the generated one, and the link has no token."""
    secret = tmp_path / "secret"
    secret.write_text("a-token-of-the-user\n")
    (tmp_path / "run").mkdir()
    visitor = visited(tmp_path, http_address="127.0.0.1:0", operator_token_file=str(secret))
    assert visitor.problem is None
    assert visitor.addresses is not None
    assert visitor.link == f"http://{visitor.addresses.http}/"
    assert not (tmp_path / "run" / "operator_token").exists()


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing token file is an error before the run folder is made."""
    with pytest.raises(UserError, match="operator_token_file") as caught:
        serve(load(tmp_path, operator_token_file=str(tmp_path / "secret")))
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert not (tmp_path / "run").exists()
