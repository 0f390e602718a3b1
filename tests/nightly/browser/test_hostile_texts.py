"""Tests that texts from outside never become markup."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from learner.shared.observe.behavior_state import BehaviorState, LedgerNumbers
from learner.shared.observe.view import ActorBooksView, ActorView, Bottleneck, RunState, RunView, StatusView
from tests.learner.service.web.site import OPERATOR, Hooks, serving
from tests.nightly.browser.webdriver import Browser, BrowserError

EVIL = '"><img src=x onerror="window.pwned=1"><script>window.pwned=2</script><svg onload=window.pwned=3>'
BOOKS = LedgerNumbers(received=4, trained=1, dropped={EVIL: 1}, duplicate=0, queued=1, lost={EVIL: 1}, unknown=0)


@dataclass
class EvilHooks(Hooks):
    """A learner in which every text is markup."""

    def status(self) -> StatusView:
        """Returns it."""
        behaviors = tuple(BehaviorState(f"{EVIL}{index}", books=BOOKS) for index in range(2))
        run = RunView(EVIL, RunState.TRAINING, 1, 1.0, EVIL, 1, EVIL, behaviors, Bottleneck(EVIL, EVIL))
        books = ActorBooksView(produced=2, discarded={EVIL: 1}, dropped={EVIL: 1})
        actor = ActorView(EVIL, 0, connected=True, last_seen_seconds=0.1, error=EVIL, books=books)
        return StatusView(run, (actor,), EVIL)


ABOUT = {
    "folder": EVIL,
    "tensorboard": EVIL,
    "settings": [{"name": EVIL, "value": {EVIL: EVIL}, "is_default": False}],
    "events": [{"time": EVIL, "event": EVIL, EVIL: {EVIL: EVIL}}, {"event": None}],
    "runs": [
        {
            "run_id": EVIL,
            "state": EVIL,
            "reason": EVIL,
            "env_steps_trained": None,
            "mean_return": None,
            "best_return": None,
            "age_seconds": None,
        }
    ],
}


def test_no_text_becomes_markup(browser: Browser) -> None:
    """All texts are shown as written; nothing is run or fetched."""
    hooks = EvilHooks(about_=ABOUT)
    for behavior in hooks.status().run.behaviors:
        for second in range(3):
            hooks.history_.add(behavior.name, float(second), {"mean_return": 1.0, "env_steps_trained": second})
    with serving(hooks) as site:
        browser.open(site.url)
        browser.wait_for(lambda: browser.text("#run") == EVIL, "the name of the run")
        for selector in ("#run", "#verdict", "#verdict-text", "#notes", "#rows", "#behavior-switch", "#facts"):
            assert "onerror" in browser.text(selector), selector
        assert "onerror" in browser.text("#ledger")
        browser.wait_for(lambda: browser.texts("#setting-rows tr"), "the settings")
        for selector in ("#setting-rows", "#setting-count", "#event-rows", "#run-rows", "#tensorboard"):
            assert "onerror" in browser.text(selector), selector
        assert browser.texts("#notes b") == ["Last error", f"Actor {EVIL}"], "what fails stands above everything"
        browser.click("#behavior-switch label:nth-child(2)")
        browser.wait_for(lambda: browser.run("return document.querySelectorAll('path.curve').length") > 0, "its curves")
        assert browser.run("return document.images.length + document.scripts.length") == 1
        assert browser.run("return window.pwned === undefined")
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints() == []


@pytest.mark.parametrize(
    "script",
    [
        "document.body.innerHTML = arguments[0]",
        "document.body.insertAdjacentHTML('beforeend', arguments[0])",
        "document.write(arguments[0])",
        "const it = document.createElement('script'); it.text = 'window.pwned = 4'; document.body.append(it)",
    ],
)
def test_the_browser_itself_would_stop_it(browser: Browser, script: str) -> None:
    """The page's content security policy blocks injected scripts."""
    with serving() as site:
        browser.open(site.url)
        browser.wait_for(lambda: browser.text("#state") == "training", "the page works")
        with pytest.raises(BrowserError, match=r"TrustedHTML|TrustedScript|Trusted Type"):
            browser.run(script, EVIL)
        assert browser.run("return window.pwned === undefined")


@pytest.mark.parametrize(
    "script",
    [
        "const it = new Image(); it.src = arguments[0]; document.body.append(it)",
        "const it = document.createElement('link'); it.rel = 'stylesheet'; it.href = arguments[0]; document.head.append(it)",
        "fetch(arguments[0], {mode: 'no-cors'}).catch(() => {})",
        "const it = document.createElement('iframe'); it.src = arguments[0]; document.body.append(it)",
    ],
)
def test_the_page_fetches_nothing_from_elsewhere(browser: Browser, script: str) -> None:
    """The page cannot send data to another site."""
    with serving() as site, serving() as elsewhere:
        browser.open(site.url)
        browser.wait_for(lambda: browser.text("#state") == "training", "the page works")
        browser.complaints()
        browser.run(script, f"{elsewhere.url}api/status")
        said: list[str] = []

        def stopped() -> bool:
            said.extend(browser.complaints())
            return any("Content Security Policy" in line for line in said)

        browser.wait_for(stopped, "the policy stops it")
        assert elsewhere.hooks.views == 0


def test_another_site_does_nothing(browser: Browser) -> None:
    """A page of another origin can neither read, frame nor click this page, even with the token."""
    with serving() as site, serving() as elsewhere:
        browser.open(f"{elsewhere.url}healthz")
        script = """
            const [url, headers] = arguments;
            const tries = [[url + "api/status", {}], [url + "api/pause", {method: "POST", headers}],
                           [url + "api/pause", {method: "POST", mode: "no-cors"}]];
            const all = tries.map(([where, how]) => fetch(where, how).then((said) => said.type, () => "failed"));
            return Promise.all(all);
        """
        assert browser.run(script, site.url, OPERATOR) == ["failed", "failed", "failed"]
        assert site.hooks.calls == []
