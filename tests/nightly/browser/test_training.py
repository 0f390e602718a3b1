"""Tests the page with a real learner, real actors and a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.nightly.browser.webdriver import Browser
from tests.ports import reserve_ports

NAME = "CartPole"
LOOK_MS = 1500
ENTER, TAB, ESCAPE, LEFT = "\ue007", "\ue004", "\ue00c", "\ue012"


def start(processes: Processes, *arguments: str, actors: int = 2) -> LearnerProcess:
    """Starts a learner and its actors, and waits for the third version."""
    learner = processes.learner(write_run(processes.folder, {NAME: cartpole()}, target_return=10000.0), *arguments)
    for index in range(actors):
        processes.actor(learner.address, "CartPole-v1", "--behavior", NAME, name=f"actor-{index}")
    learner.wait_for_version(NAME, 3)
    return learner


def link(processes: Processes, learner: LearnerProcess) -> str:
    """Returns what `rollcast page` prints."""
    command = processes.python("page", "-m", "learner", "page", "--results-dir", str(learner.folder.parent))
    assert command.wait() == 0, command.said()
    return command.out().strip()


def state(browser: Browser) -> str:
    """Returns the state that the page shows."""
    return browser.text("#state")


def points(browser: Browser, title: str) -> int:
    """Returns how many points a curve is drawn with."""
    script = """
        const card = document.querySelector(`.chart[aria-label="${arguments[0]}"]`);
        const curve = card.querySelector("path.curve:not(.raw)");
        return curve === null ? 0 : (curve.getAttribute("d").match(/[ML]/g) ?? []).length;
    """
    return int(browser.run(script, title))


def trained(learner: LearnerProcess) -> int:
    """Returns the steps that were trained, as the learner itself says."""
    return learner.behavior(NAME).env_steps_trained


def stands_still(learner: LearnerProcess) -> bool:
    """Returns whether no step is trained or received between two looks."""
    before = learner.behavior(NAME)
    wait_until(lambda: learner.status().uptime_seconds > LOOK_MS / 1000, "the learner answers")
    deadline = learner.status().uptime_seconds + LOOK_MS / 1000
    wait_until(lambda: learner.status().uptime_seconds > deadline, "a while has passed")
    after = learner.behavior(NAME)
    return (before.env_steps_trained, before.env_steps_taken) == (after.env_steps_trained, after.env_steps_taken)


@pytest.mark.smoke
def test_pause_and_resume(browser: Browser, processes: Processes) -> None:
    """With the link of `rollcast page`, clicks pause, resume and save, and settings are changed and set back."""
    learner = start(processes)
    browser.open(link(processes, learner))
    browser.wait_for(lambda: state(browser) == "training", "the page shows that it trains")
    browser.wait_for(lambda: len(browser.texts("#rows tr")) == 2, "both actors are in the table")
    titles = ("Mean return", "Steps per second", "Loss")
    browser.wait_for(lambda: all(points(browser, title) >= 4 for title in titles), "the curves")
    assert "#" not in browser.url, "the token is no longer in the address bar"
    assert browser.text("#operator") == "Sign out"
    assert "every step accounted for" in browser.text("#balanced")

    browser.click("#pause")
    browser.wait_for(lambda: state(browser) == "paused", "the page shows the pause")
    assert browser.text("#toast") == "Training is paused"
    wait_until(lambda: stands_still(learner), "training stands still")
    browser.wait_for(lambda: browser.text("#pause") == "Resume", "the button offers to go on")

    before = trained(learner)
    browser.click("#pause")
    browser.wait_for(lambda: state(browser) == "training", "the page shows that it goes on")
    learner.wait_for(lambda: trained(learner) > before, "steps are trained again")

    browser.click("#checkpoint")
    saved = browser.wait_for(lambda: browser.text("#toast").startswith("Saved: "), "the checkpoint is saved")
    assert saved
    assert Path(browser.text("#toast").removeprefix("Saved: ")).exists()

    browser.write("#change-text", f"beta=0.125{ENTER}")
    browser.wait_for(lambda: browser.text("#toast") == f"{NAME}.beta is 0.125, was 0.0", "the change is answered")
    marked = "return document.querySelectorAll('.chart.big line.changed').length"
    browser.wait_for(lambda: browser.run(marked) == 1, "the change is marked in the curve")
    browser.click("#undo")
    browser.wait_for(lambda: browser.text("#toast") == f"{NAME}.beta is 0.0, was 0.125", "it is undone")
    assert browser.complaints() == []


def test_who_is_no_operator(browser: Browser, processes: Processes) -> None:
    """Without a token a click asks for it; a wrong token is refused."""
    learner = start(processes, actors=1)
    address, token = link(processes, learner).split("#token=")
    browser.open(address)
    browser.wait_for(lambda: state(browser) == "training", "the page shows that it trains")
    assert browser.text("#operator") == "Operator sign-in"

    browser.click("#pause")
    assert browser.run("return document.querySelector('#dialog').open")
    browser.write("#token", f"{token[:-1]}-{ENTER}")
    browser.wait_for(lambda: "did not accept" in browser.text("#token-wrong"), "the wrong token is refused")
    assert learner.status().state == "RUN_STATE_TRAINING"
    browser.press(ESCAPE)
    browser.wait_for(lambda: not browser.run("return document.querySelector('#dialog').open"), "the dialog closes")
    assert state(browser) == "training"

    browser.click("#pause")
    browser.run("document.querySelector('#token').value = ''")
    browser.write("#token", f"{token}{ENTER}")
    browser.wait_for(lambda: state(browser) == "paused", "the pause that was asked for")
    browser.open(address)
    browser.wait_for(lambda: browser.text("#operator") == "Sign out", "the token lasts as long as the tab")
    browser.click("#operator")
    assert browser.run("return sessionStorage.length") == 0
    refused = [line for line in browser.complaints() if "403" not in line]
    assert refused == []


def test_everything_by_keyboard(browser: Browser, processes: Processes) -> None:
    """Pause, points of a curve and table order can be used with the keyboard."""
    learner = start(processes)
    browser.open(link(processes, learner))
    browser.wait_for(lambda: points(browser, "Mean return") >= 3, "the curve")
    focused: list[str] = []
    for _ in range(30):
        browser.press(TAB)
        name = browser.run("const it = document.activeElement; return it.id || it.ariaLabel || it.innerText || it.name")
        focused.append(str(name))
        if name == "pause":
            browser.press(ENTER)
        if str(name).startswith("Mean return"):
            browser.press(LEFT)
            said = browser.wait_for(lambda: browser.text("#readout"), "the point is read out")
            assert said.startswith("Mean return ")
        if str(name).startswith("Steps/s"):
            browser.press(ENTER)
            break
    assert {"pause", "checkpoint", "theme", "filter", "scroll"} <= set(focused)
    browser.wait_for(lambda: state(browser) == "paused", "Enter on the button pauses")
    script = (
        "return [...document.querySelectorAll('#heads [aria-sort]')].map((each) => [each.innerText, each.ariaSort])"
    )
    assert browser.run(script) == [["Steps/s", "descending"]]


def test_a_learner_that_goes_away(browser: Browser, processes: Processes) -> None:
    """The page shows a lost connection, its return and the end of the run, and marks old values."""
    http = f"127.0.0.1:{reserve_ports()}"
    learner = start(processes, "--http-address", http)
    port = int(learner.address.rpartition(":")[2])
    browser.open(f"http://{http}/")
    browser.wait_for(lambda: points(browser, "Mean return") >= 3, "the curve")

    learner.kill()
    browser.wait_for(lambda: "No answer from the learner" in browser.text("#notes"), "the loss is told")
    assert state(browser) == "connection lost"
    assert browser.run("return document.querySelector('main').classList.contains('stale')")
    assert browser.run("return document.querySelector('#pause').disabled")

    again = processes.learner(processes.folder / "run.yaml", "--resume", "--http-address", http, port=port)
    browser.wait_for(lambda: state(browser) == "training", "the page finds the learner again")
    assert browser.text("#notes") == ""
    assert "generation 2" in " ".join(browser.text("#facts").split())
    browser.wait_for(lambda: points(browser, "Steps per second") >= 3, "the curves begin anew")

    again.operator.drain(final=True)
    assert again.wait() == 0, again.said()
    browser.wait_for(lambda: "The run has ended normally" in browser.text("#notes"), "the end is told")
    assert state(browser) == "ended"


@pytest.mark.parametrize(("scheme", "background"), [("dark", "rgb(14, 17, 22)"), ("light", "rgb(244, 245, 247)")])
def test_light_and_dark(browser: Browser, processes: Processes, scheme: str, background: str) -> None:
    """The page follows the system's color scheme, and a click changes it permanently."""
    learner = processes.learner(write_run(processes.folder, {NAME: cartpole()}))
    browser.prefer(scheme)
    browser.open(f"http://{addresses(learner)['http']}/")
    shown = "return getComputedStyle(document.body).backgroundColor"
    browser.wait_for(lambda: browser.run(shown) == background, "the look of the system")
    browser.wait_for(lambda: "rollcast act gym" in browser.text("#invite"), "what to do without an actor")
    while browser.text("#theme") != "Theme: dark":
        browser.click("#theme")
    browser.open(browser.url)
    assert browser.run(shown) == "rgb(14, 17, 22)"


def addresses(learner: LearnerProcess) -> dict[str, Any]:
    """Returns what the run folder says of a learner's addresses."""
    assert learner.address
    content: dict[str, Any] = json.loads((learner.folder / "address.json").read_text())
    return content
