"""Starts a browser for tests; `make test` leaves this folder out, and `.ci/run` includes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import Processes, processes_in
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


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


@pytest.fixture
def picture(browser: Browser, tmp_path: Path) -> Callable[[str], Path]:
    """Saves a picture of the whole page, where the variable SCREENSHOTS says, to be looked at."""
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))

    def take(name: str) -> Path:
        path = folder / f"{name}.png"
        assert browser.screenshot(path, full=True).startswith(b"\x89PNG")
        return path

    return take
