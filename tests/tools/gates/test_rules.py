"""Tests the rules of gates, which decide what is published as learned."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.gates.boards import shogi
from tests.tools.gates.connect_four import connect_four
from tests.tools.gates.duel import beats_its_past
from tests.tools.gates.gate import Rule, Trained
from tests.tools.gates.rules import (
    all_of,
    as_soon_as,
    at_least,
    better_by,
    greedy,
    imitates,
    last_train,
    misses,
    no_later_than,
    one_reaches,
    reaches,
    sooner_than,
    stays_below,
    updates_per_step,
)
from tests.tools.gates.stock import wins_no_more


def run(train: float | None = 100.0, **changes: Any) -> Trained:
    """Returns what a run of 1,000 steps resulted in."""
    known = {"stop_reason": "max_steps", "steps": 1000, "seconds": 1.0, "episodes": 100, "best": train}
    return Trained(**{"seed": 1, "train": train, **known, **changes})


def hit(steps: int) -> Trained:
    """Returns a run that reached its target after so many steps."""
    return run(480.0, stop_reason="target_return", steps=steps + 100, steps_to_target=steps)


def played(*returns: float) -> list[Trained]:
    """Returns a run for each greedy return."""
    return [run(greedy=(value,)) for value in returns]


def against(*shares: tuple[float, ...]) -> list[Trained]:
    """Returns a run for each list of shares of won games."""
    return [run(against=each) for each in shares]


REACHES = reaches("a", 475.0, 1000, far_off=400.0)
TWO = reaches("a", -180.0, 1000, far_off=-200.0, needed=2)
AT_LEAST = at_least("a", -180.0, greedy, "greedy", far_off=-250.0)
ONE = one_reaches(["a", "b"], 100.0, 50.0)
SOONER = sooner_than("a", "b", 0.5)
LATER = no_later_than("a", "b")
AS_SOON = as_soon_as("a", "b")
CONTROL = [hit(900), hit(1200), hit(1000)]
IMITATES = imitates("a", "b", 20.0, 0.8)
PAST = beats_its_past("a", untrained=0.9, first_half=0.7, worst=0.55)
BOTH = all_of(at_least("a", 150.0, last_train, "train", far_off=0.0), stays_below("a", 170.0))


@pytest.mark.parametrize(
    ("rule", "results", "passed"),
    [
        (REACHES, {"a": [hit(900), hit(1000), run(450.0)]}, True),
        (REACHES, {"a": [hit(900), hit(1001), run(450.0)]}, False),
        (REACHES, {"a": [hit(900), hit(900), run(200.0)]}, False),
        (REACHES, {"a": [hit(900), hit(900), run(100.0, best=420.0)]}, True),
        (TWO, {"a": [hit(900), hit(900), run(-200.0)]}, True),
        (TWO, {"a": [hit(900), run(-200.0), run(-200.0)]}, False),
        (misses("a", 475.0, 1000), {"a": [hit(900), run(300.0), hit(1001)]}, True),
        (misses("a", 475.0, 1000), {"a": [hit(900), run(300.0), hit(1000)]}, False),
        (stays_below("a", 150.0), {"a": [run(60.0, best=149.0)]}, True),
        (stays_below("a", 150.0), {"a": [run(60.0, best=150.0)]}, False),
        (ONE, {"a": played(90, 95, 80), "b": played(50, 100, 101)}, True),
        (ONE, {"a": played(50, 100, 101), "b": played(90, 95, 80)}, True),
        (ONE, {"a": played(90, 95, 80), "b": played(49, 100, 101)}, False),
        (AT_LEAST, {"a": played(-180.0, -150.0, -250.0)}, True),
        (AT_LEAST, {"a": played(-181.0, -150.0, -181.0)}, False),
        (AT_LEAST, {"a": played(-150.0, -150.0, -251.0)}, False),
        (AT_LEAST, {"a": [run()]}, False),
        (better_by("a", "b", 1.2), {"a": [run(0.9), run(0.54)], "b": [run(0.7), run(0.45)]}, True),
        (better_by("a", "b", 1.2), {"a": [run(0.9), run(0.53)], "b": [run(0.7), run(0.45)]}, False),
        (SOONER, {"a": [hit(450), hit(500)], "b": [hit(900), run()]}, True),
        (SOONER, {"a": [hit(450), hit(501)], "b": [hit(900), run()]}, False),
        (SOONER, {"a": [run()], "b": [run()]}, False),
        (LATER, {"a": [hit(450), hit(500), run()], "b": [run(), hit(300), hit(500)]}, True),
        (LATER, {"a": [hit(501)], "b": [hit(500)]}, False),
        (LATER, {"a": [run()], "b": [run()]}, False),
        (AS_SOON, {"a": [hit(100), hit(1150), run(300.0, steps=2000)], "b": CONTROL}, True),
        (AS_SOON, {"a": [hit(1201)] * 3, "b": CONTROL}, False),
        (AS_SOON, {"a": [hit(899)] * 3, "b": CONTROL}, False),
        (updates_per_step("a", 1.0), {"a": [run(optimizer_steps=960)]}, True),
        (updates_per_step("a", 1.0), {"a": [run(optimizer_steps=940)]}, False),
        (updates_per_step("a", 1.0, initial_steps=100), {"a": [run(optimizer_steps=900)]}, True),
        (updates_per_step("a", 1.0), {"a": [run(optimizer_steps=None)]}, False),
        (IMITATES, {"a": played(404.0), "b": played(500.0)}, True),
        (IMITATES, {"a": played(400.0), "b": played(500.0)}, False),
        (IMITATES, {"a": played(500.0), "b": played(20.0)}, False),
        (BOTH, {"a": [run(160.0)]}, True),
        (BOTH, {"a": [run(140.0)]}, False),
        (BOTH, {"a": [run(180.0)]}, False),
        (PAST, {"a": against((0.9, 0.55, 0.7, 0.1, 0.1))}, True),
        (PAST, {"a": against((0.89, 0.8, 0.8, 0.1, 0.1))}, False),
        (PAST, {"a": against((1.0, 0.54, 1.0, 0.1, 0.1))}, False),
        (PAST, {"a": against((0.9, 0.6, 0.59, 0.1, 0.1))}, False),
        (shogi().rule, {"ppo": against((0.85,))}, True),
        (shogi().rule, {"ppo": against((0.84,))}, False),
        (connect_four().rule, {"ppo": against((0.95, 0.1, 0.6))}, True),
        (connect_four().rule, {"ppo": against((0.95, 1.0, 0.59))}, False),
        (connect_four().rule, {"ppo": against((0.94, 1.0, 1.0))}, False),
        (wins_no_more("a", "b"), {"a": against((0.25, 0.5), (0.25, 0.75), (1.0, 0.75))}, True),
        (wins_no_more("a", "b"), {"a": against((0.25, 0.75), (1.0, 0.75))}, False),
    ],
)
def test_a_rule_passes_or_fails(rule: Rule, results: dict[str, list[Trained]], passed: bool) -> None:
    """Rules pass at their limits and fail beyond them, with the figures in words."""
    verdict = rule(results)
    assert verdict.passed is passed
    assert verdict.text


def test_a_failed_gate_says_by_how_much() -> None:
    """What is missing to the target is in the text."""
    text = REACHES({"a": [hit(900), hit(800), run(200.0)]}).text
    assert "2 of 3 reached 475 within 1,000 steps (after 900, 800)" in text
    assert "200, 275 short after 1,000 steps; below 400 is far off" in text
