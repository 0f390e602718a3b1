"""Tests actors that are shut out on the page, and the operator's button."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.view import QuarantineView, RunState, RunView, StatusView
from tests.learner.service.web.site import TOKEN, Hooks, serving
from tests.nightly.browser.webdriver import Browser

EVIL = '<img src=x onerror="window.pwned=1">&principal=x'


@dataclass
class ShutOut(Hooks):
    """A learner that shuts one actor out until it is released."""

    def status(self) -> StatusView:
        """Returns it."""
        views = () if self.calls else (QuarantineView("lab", EVIL, 95.0, 2, f"last {EVIL}"),)
        behaviors = (BehaviorState("Walker"),)
        return StatusView(
            RunView("run", RunState.TRAINING, 1, 1.0, "", 1, "", behaviors, quarantined=views), (), "1.2.3"
        )


def test_an_operator_releases_an_actor(browser: Browser) -> None:
    """The page lists the actor, its principal and its last fault as text; the button releases exactly this one."""
    hooks = ShutOut()
    hooks.history_.add("Walker", 1.0, {"mean_return": 1.0})
    with serving(hooks) as site:
        browser.open(f"{site.url}#token={quote(TOKEN)}")
        browser.wait_for(lambda: EVIL in browser.text("#quarantine-rows"), "the actor that is shut out")
        rows = browser.text("#quarantine-rows")
        assert "lab" in rows
        assert "1 min 35 s" in rows
        assert f"last {EVIL}" in rows
        browser.click("#quarantine-rows button")
        visible = "return document.querySelector('#quarantine').offsetParent !== null"
        browser.wait_for(lambda: not browser.run(visible), "a page without it")
        assert hooks.calls == [f"release {EVIL} of lab"]
        assert browser.run("return document.images.length") == 0
        assert browser.complaints() == []
