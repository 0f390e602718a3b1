"""Tests that the page shows an actor in trouble above everything, and what it shows of the run beside its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from learner.service.view.history import History
from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.view import ActorBooksView, ActorView, GpuUse, RunState, RunView, StatusView
from tests.learner.service.web.site import NAME, Hooks, serving
from tests.nightly.browser.webdriver import Browser

ABOUT = {
    "folder": "/data/results/walk",
    "tensorboard": "tensorboard --logdir /data/results",
    "clients_page": "http://0.0.0.0:50053/",
    "settings": [
        {"name": "behaviors.Walker.max_steps", "value": 777, "is_default": False},
        {"name": "behaviors.Walker.time_horizon", "value": 64, "is_default": True},
    ],
    "events": [{"time": "2026-01-02T03:04:05+00:00", "event": "actor_left", "generation": 1, "actor": "worker-9"}],
    "runs": [
        {
            "run_id": "earlier",
            "state": "finished",
            "reason": "max_steps",
            "env_steps_trained": 5000,
            "mean_return": 12.5,
            "best_return": 13.5,
            "age_seconds": 60.0,
        }
    ],
}


def curves() -> History:
    """Returns a history with one point."""
    history = History()
    history.add(NAME, 0.0, {})
    return history


@dataclass
class FailingHooks(Hooks):
    """A run with two good actors and one whose environments fail."""

    history_: History = field(default_factory=curves)

    def status(self) -> StatusView:
        """Returns it."""
        numbers = {
            "evaluation_return_mean": 470.5,
            "best_return": 480.25,
            "best_step": 1234567,
            "episode_length_mean": 31.5,
        }
        behavior = BehaviorState(NAME, env_steps_trained=500, max_steps=1000, episodes=3, numbers=numbers)
        gpu = GpuUse(2**30, 20 * 2**30, 80 * 2**30, 0.37)
        run = RunView("walk", RunState.TRAINING, 1, 1.0, "127.0.0.1:1", 3, "", (behavior,), gpu=gpu)
        books = ActorBooksView(produced=3705, discarded={"environment_failed": 3705})
        error = "environment 2 failed: ConnectionError: the simulator closed its socket"
        actors = (
            ActorView("good-0", 0, connected=True, last_seen_seconds=2.0),
            ActorView("good-1", 1, connected=True, last_seen_seconds=2.0),
            ActorView("bad", 2, connected=True, last_seen_seconds=2.0, failures=18, error=error, books=books),
        )
        return StatusView(run, actors, "1.2.3")


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_a_failing_actor_is_seen_first(browser: Browser, size: tuple[int, int]) -> None:
    """Its failures and the steps it gave up are in view without scrolling, and the state is no plain green."""
    with serving(FailingHooks()) as site:
        browser.resize(*size)
        browser.open(site.url)
        browser.wait_for(lambda: browser.text("#state") == "training, 1 failing", "the state names it")
        assert browser.run("return document.querySelector('#state').dataset.kind") == "warn"
        assert "18 failures, 3,705 steps given up" in browser.text("#notes")
        meters = zip(browser.texts("#meters dt"), browser.texts("#meters .figure"), strict=True)
        assert list(meters)[-2:] == [("GPU busy", "37 %"), ("GPU memory", "25 %")]
        bottom = browser.run("return document.querySelector('#notes').getBoundingClientRect().bottom")
        assert bottom < size[1] / 2
        assert "bad" in browser.texts("#rows th")[0], "the table lists it first"
        assert browser.run("return document.documentElement.scrollWidth") == size[0]
        assert browser.complaints() == []


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_no_tile_cuts_its_text(browser: Browser, size: tuple[int, int]) -> None:
    """The best checkpoint is readable to its last digit."""
    with serving(FailingHooks()) as site:
        browser.resize(*size)
        browser.open(site.url)
        browser.wait_for(lambda: browser.texts(".tile small"), "the tiles")
        titles = browser.texts(".tile h2")
        assert titles[:5] == ["Mean return", "Evaluation", "Episode length", "Steps per second", "Progress"]
        assert "best checkpoint 480.3 at step 1.23M" in browser.texts(".tile small")
        script = "return [...document.querySelectorAll('.tile small')].every((it) => it.scrollWidth <= it.clientWidth)"
        assert browser.run(script)


def test_settings_events_and_other_runs(browser: Browser) -> None:
    """The page shows the settings that were given, all on request, the events, and the runs beside this one."""
    with serving(FailingHooks(about_=ABOUT)) as site:
        browser.open(site.url)
        browser.wait_for(lambda: browser.texts("#setting-rows tr"), "the settings")
        assert browser.texts("#setting-rows th") == ["behaviors.Walker.max_steps"]
        browser.click("#all-settings")
        assert len(browser.texts("#setting-rows tr")) == 2
        assert "actor left actor worker-9" in browser.text("#event-rows")
        assert browser.text("#run-rows").split() == [
            "earlier",
            "finished:",
            "max_steps",
            "5,000",
            "12.5",
            "13.5",
            "60",
            "s",
            "ago",
        ]
        assert browser.text("#tensorboard") == ABOUT["tensorboard"]
        assert browser.text("#clients-line") == "A browser that opens http://127.0.0.1:50053/ trains the policy, too."
        assert browser.complaints() == []
