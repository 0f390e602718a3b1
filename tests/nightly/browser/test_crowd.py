"""Tests the page with two hundred actors, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.processes import LearnerProcess, Processes, processes_in
from tests.e2e.runs import cartpole, write_run
from tests.nightly.browser.crowd import NAME, crowd_at
from tests.nightly.browser.test_training import addresses
from tests.nightly.browser.webdriver import Browser

SIZE = 200
PHONE = (390, 844)


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnerProcess]:
    """Starts a learner and a crowd of actors."""
    folder = tmp_path_factory.mktemp("crowd")
    with processes_in(folder) as started:
        learner = started.learner(write_run(folder, {NAME: cartpole()}, lease_seconds=60.0))
        with crowd_at(learner.address, SIZE):
            yield learner


def rows(browser: Browser) -> int:
    """Returns how many actors are listed."""
    return int(browser.run("return document.querySelectorAll('#rows tr').length"))


def column(browser: Browser, index: int) -> list[str]:
    """Returns what is in a column, from the top."""
    script = "return [...document.querySelectorAll('#rows tr')].map((row) => row.children[arguments[0]].innerText)"
    return list(browser.run(script, index))


def test_all_of_them_are_listed(browser: Browser, learner: LearnerProcess, processes: Processes) -> None:
    """Each actor has a row with its books; the list can be filtered by name and sorted by number."""
    browser.open(f"http://{addresses(learner)['http']}/")
    browser.wait_for(lambda: rows(browser) == SIZE, "all actors are in the table")
    browser.wait_for(lambda: set(column(browser, 12)) == {"✓"}, "all have reported balanced books")
    assert browser.text("#actor-count").startswith(f"{SIZE} connected")
    assert len(set(column(browser, 0))) == SIZE

    browser.write("#filter", "WORKER-01")
    browser.wait_for(lambda: rows(browser) == 10, "those whose name fits")
    assert "10 shown" in browser.text("#actor-count")
    browser.run("const it = document.querySelector('#filter'); it.value = ''; it.dispatchEvent(new Event('input'))")
    assert rows(browser) == SIZE

    browser.click("#heads th:nth-child(9) button")
    produced = [int(text.replace(",", "")) for text in column(browser, 8)]
    assert produced == sorted(produced, reverse=True)
    assert produced[0] > produced[-1]
    browser.click("#heads th:nth-child(9) button")
    produced = [int(text.replace(",", "")) for text in column(browser, 8)]
    assert produced == sorted(produced)
    assert browser.complaints() == []


def test_it_goes_on_while_the_table_is_scrolled(browser: Browser, learner: LearnerProcess) -> None:
    """Updates do not move the scrolled table."""
    browser.open(f"http://{addresses(learner)['http']}/")
    browser.wait_for(lambda: rows(browser) == SIZE, "all actors are in the table")
    browser.run("document.querySelector('#scroll').scrollTop = 3000; window.kept = document.querySelector('#rows tr')")
    before = column(browser, 8)
    browser.wait_for(lambda: column(browser, 8) != before, "the numbers of the next second")
    assert browser.run("return document.querySelector('#scroll').scrollTop") == 3000
    assert browser.run("return window.kept === document.querySelector('#rows tr')"), "rows stay, their texts change"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser: Browser, learner: LearnerProcess, scheme: str) -> None:
    """On a phone only the table is wider than the screen, and it scrolls with its names in view."""
    browser.prefer(scheme)
    browser.resize(*PHONE)
    browser.open(f"http://{addresses(learner)['http']}/")
    browser.wait_for(lambda: rows(browser) == SIZE, "all actors are in the table")
    assert browser.run("return document.documentElement.scrollWidth") == PHONE[0]
    script = "const it = document.querySelector('#scroll'); it.scrollLeft = 500; return it.scrollLeft"
    assert browser.run(script) > 0
    left = "return Math.round(document.querySelector('#rows th').getBoundingClientRect().left)"
    assert browser.run(left) < 20
    small = browser.run(
        "return [...document.querySelectorAll('#pause, #checkpoint')].filter((it) => it.clientHeight < 36).length"
    )
    assert small == 0, "buttons are large enough for a finger"
