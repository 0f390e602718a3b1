"""Settings of the architecture tests."""

from collections.abc import Iterator

import pytest

from tests.architecture.tree import nodes


@pytest.fixture(autouse=True, scope="package")
def _trees() -> Iterator[None]:
    """Gives the syntax trees back after these tests: millions of objects, which each garbage collection would look at."""
    yield
    nodes.cache_clear()
