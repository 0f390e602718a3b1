"""Settings of the actor's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Takes back what commands did to the logs of this process."""
    yield
    structlog.reset_defaults()
