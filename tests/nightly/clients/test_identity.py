"""Tests clients of a gateway with TLS and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from rollcast.auth import Role

from learner.shared.settings.addresses import TOKENS
from tests.e2e.processes import Child, Processes
from tests.learner.service.identity.certificates import Folder
from tests.nightly.clients import test_cpp, test_python
from tests.nightly.clients.conftest import Training

Start = Callable[[Training, Path, Mapping[str, str]], Child]


@pytest.mark.parametrize(
    ("make", "start"), [(test_python.packages_in, test_python.start), (test_cpp.built, test_cpp.start)]
)
def test_a_client_has_a_token_and_checks_the_certificate(
    processes: Processes, tmp_path: Path, make: Callable[[Path], Path], start: Start
) -> None:
    """With both variables a client trains to the target; one without a token ends at once with the reason."""
    files = Folder.make(tmp_path / "certs", phone=Role.CLIENT)
    cert, key = map(str, files.server)
    identity = ("--clients-tls-cert", cert, "--clients-tls-key", key)
    training = Training(processes, "--clients-auth", str(files.path / TOKENS), *identity)
    made, trusts = make(tmp_path / "made"), {"ROLLCAST_TLS_CA": str(files.ca)}
    refused = start(training, made, trusts)
    assert refused.wait() == 1, refused.said()
    assert "goodbye after 0 steps: this gateway needs a token" in refused.out()
    assert all(training.ends(start(training, made, trusts | {"ROLLCAST_TOKEN": files.tokens["phone"]})))
