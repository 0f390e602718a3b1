"""Starts a browser for tests; `make nightly NIGHTLY=browser` runs this folder, and `.ci/run` one test of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nightly.browser.webdriver import Browser, driver_in

DESKTOP = (1440, 1000)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts a WebDriver server."""
    with driver_in(tmp_path_factory.mktemp("driver")) as address:
        yield address


@pytest.fixture
def browser(driver: str, tmp_path: Path) -> Iterator[Browser]:
    """Opens a new browser window; checks at the end that its console has no errors."""
    window = Browser(driver, tmp_path / "profile")
    try:
        window.resize(*DESKTOP)
        yield window
    finally:
        window.close()
