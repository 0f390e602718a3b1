"""Fixtures: processes, and one learner that most tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

NORMALIZED = {"network_settings": {"hidden_units": 32, "num_layers": 2, "normalize": True}}
SHARED_BEHAVIORS = {
    **{name: small(**NORMALIZED) for name in ("Discrete", "Continuous", "Hybrid")},
    **{
        name: small()
        for name in ("Equal", "Killed", "Vector", "Leaving", "Early", "Late", "Mismatch", "Raising", "Returning")
    },
}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


@pytest.fixture(scope="session")
def shared_learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnerProcess]:
    """Starts one learner with a behavior for each test."""
    folder = tmp_path_factory.mktemp("shared")
    with processes_in(folder) as started:
        learner = started.learner(write_run(folder, SHARED_BEHAVIORS))
        yield learner
        assert learner.is_running, learner.said()
