"""Tests what the page shows of runs with self-play."""

from __future__ import annotations

import math
from dataclasses import dataclass

from learner.shared.observe.behavior_state import BehaviorState, GameView
from learner.shared.observe.view import RunState, RunView, StatusView
from tests.learner.service.web.site import Hooks, serving
from tests.nightly.browser.webdriver import Browser

RATING = "Rating against opponents of evaluations"
EVIL = '<img src=x onerror="window.pwned=1">'
RIVALS = {
    "opponent_elo/champion": 1320.0,
    "opponent_rating/champion": 1301.5,
    "games_won_against/champion": 30.0,
    "games_drawn_against/champion": 10.0,
    "games_lost_against/champion": 60.0,
    f"opponent_elo/{EVIL}": 1200.0,
}
EVALUATED = {
    "evaluation_rating": 412.0,
    "evaluation_rating_interval": 61.0,
    "evaluation_length_mean": 11.5,
    "evaluation_step": 50_000.0,
    "evaluation_score/random": 0.925,
    "evaluation_won_first/random": 18.0,
    "evaluation_drawn_second/random": 3.0,
    f"evaluation_score/{EVIL}": 0.5,
}
GAME = GameView("connect_four", "step 50000", EVIL, "0-1", "x3\no3\n<b>")


@dataclass
class Playing(Hooks):
    """A learner of which one behavior plays against itself and others, and one does not."""

    def status(self) -> StatusView:
        """Returns it."""
        played = {"elo": 1250.0, "self_play_rating": 1262.0, "learning_team": 1.0, **RIVALS, **EVALUATED}
        behaviors = (BehaviorState("Duel", numbers=played, game=GAME), BehaviorState("Walker"))
        return StatusView(RunView("run", RunState.TRAINING, 1, 1.0, "", 1, "", behaviors), (), "1.2.3")


def test_ratings_have_curves_and_rows(browser: Browser) -> None:
    """Self-play has curves of ELO and rating and a table of frozen and scripted opponents; other behaviors have neither."""
    hooks = Playing()
    for second in range(60):
        elo = 1200.0 + 50 * math.sin(second / 20)
        steps = {"env_steps_trained": 100.0 * second}
        hooks.history_.add(
            "Duel", float(second), {**steps, "mean_return": 0.1, "elo": elo, "self_play_rating": elo + 10}
        )
        hooks.history_.add("Duel", second + 0.5, {**steps, "evaluation_rating": float(second)})
        hooks.history_.add("Walker", float(second), {"mean_return": 1.0})
    curve = "return document.querySelectorAll('.chart[aria-label=\"ELO\"] path.curve').length"
    visible = "return document.querySelector('.chart[aria-label=\"ELO\"]').offsetParent !== null"
    with serving(hooks) as site:
        browser.open(site.url)
        browser.wait_for(lambda: browser.run(curve) == 1, "the curve of ELO")
        rows = browser.text("#opponent-rows")
        assert "champion" in rows
        assert "1,320" in rows
        assert "30 %" in rows
        assert "60 %" in rows
        assert EVIL in rows
        assert browser.text("#evaluation-about") == "Step 50,000: rating 412 ± 61, 11.5 moves a game"
        cells = "return [...document.querySelectorAll('#evaluation-rows tr:first-child > *')].map((each) => each.textContent)"
        assert browser.run(cells) == ["random", "93 %", "18", "0", "0", "0", "3", "0"]
        assert EVIL in browser.text("#evaluation-rows")
        assert (
            browser.run(f"return document.querySelectorAll('.chart[aria-label=\"{RATING}\"] path.curve').length") == 1
        )
        about = browser.text("#game-about")
        assert about == f"connect_four: step 50000 (first) against {EVIL}, {EVIL} won after 3 moves"
        assert browser.text("#game-moves").split() == ["1.", "x3", "o3", "2.", "<b>"]
        browser.click("#behavior-switch label:nth-child(2)")
        browser.wait_for(lambda: not browser.run(visible), "a page without ratings")
        assert not browser.run("return document.querySelector('#opponents').offsetParent !== null")
        assert not browser.run("return document.querySelector('#evaluation').offsetParent !== null")
        assert not browser.run("return document.querySelector('#game').offsetParent !== null")
        assert browser.run("return document.images.length") == 0
        assert browser.complaints() == []


class Waiting(Hooks):
    """A learner of games that no actor has joined."""

    tls = False

    def status(self) -> StatusView:
        """Returns it."""
        return StatusView(
            RunView("run", RunState.WAITING, 1, 1.0, "127.0.0.1:1", tls=self.tls, games=True), (), "1.2.3"
        )


def test_actors_of_games_are_invited(browser: Browser) -> None:
    """Where all behaviors have self-play, the page names an actor whose agents can play one another."""
    waiting = Waiting()
    with serving(waiting) as site:
        browser.open(site.url)
        browser.wait_for(
            lambda: "rollcast act boards --game NAME --learner 127.0.0.1:1" in browser.text("#invite"), "what to do"
        )
        waiting.tls = True
        browser.wait_for(lambda: "DIR: made by rollcast join DIR" in browser.text("#invite"), "what to do with TLS")
