"""Rules of gates say what passed, and by how much the rest fell short."""

from __future__ import annotations

import pytest

from tests.gates.gate import Trained, Verdict
from tests.gates.rules import (
    all_of,
    at_least,
    better_by,
    greedy,
    imitates,
    last_train,
    misses,
    never_above,
    reaches,
    reports,
    stays_below,
    updates_per_step,
)


def run(seed: int, train: float | None = 100.0, **changes: object) -> Trained:
    """Returns what a run of 1,000 steps came to."""
    known = {"stop_reason": "max_steps", "steps": 1000, "seconds": 1.0, "episodes": 100, "best": train}
    return Trained(**{"seed": seed, "train": train, **known, **changes})  # type: ignore[arg-type]


def hit(seed: int, steps: int) -> Trained:
    """Returns a run that reached its target after so many steps."""
    return run(seed, 480.0, stop_reason="target_return", steps=steps + 100, steps_to_target=steps)


def test_a_target_needs_the_median_seed() -> None:
    """Two of three seeds within the budget are enough, if the third is not far off."""
    rule = reaches("ppo", 475.0, 1000, far_off=400.0)
    assert rule({"ppo": [hit(1, 900), hit(2, 1000), run(3, 450.0)]}) == Verdict(
        passed=True,
        text="2 of 3 reached 475 within 1,000 steps (after 900, 1,000); seed 3: 450, 25 short after 1,000 steps",
    )


def test_a_control_must_miss_the_target_in_the_median() -> None:
    """Fewer than half of its seeds may reach it."""
    rule = misses("control", 475.0, 1000)
    assert rule({"control": [hit(1, 900), run(2, 300.0), hit(3, 1001)]}) == Verdict(
        passed=True, text="control: 1 of 3 reached 475 within 1,000 steps, must be under half"
    )
    assert not rule({"control": [hit(1, 900), run(2, 300.0), hit(3, 1000)]}).passed


def test_one_seed_far_off_fails() -> None:
    """A seed that is far off fails the gate, however good the others are."""
    verdict = reaches("ppo", 475.0, 1000, far_off=400.0)({"ppo": [hit(1, 900), hit(2, 800), run(3, 200.0)]})
    assert not verdict.passed
    assert "275 short" in verdict.text
    assert "below 400 is far off" in verdict.text


def test_a_target_after_the_budget_is_missed() -> None:
    """Steps count from the first one of any actor; one too many is too many."""
    assert not reaches("ppo", 475.0, 1000, far_off=400.0)({"ppo": [hit(1, 1001)]}).passed


def test_the_best_mean_of_a_run_counts_for_far_off() -> None:
    """A run that was near its target once is not far off, whatever it came to in the end."""
    runs = [hit(1, 900), hit(2, 900), run(3, 100.0, best=420.0)]
    assert reaches("ppo", 475.0, 1000, far_off=400.0)({"ppo": runs}).passed


def test_two_of_three_are_enough_where_a_gate_says_so() -> None:
    """With a number of seeds that must pass, the others may fail, but for those that learned nothing."""
    rule = reaches("rnd", -180.0, 1000, far_off=-200.0, needed=2)
    assert rule({"rnd": [hit(1, 900), hit(2, 900), run(3, -200.0)]}).passed
    assert not rule({"rnd": [hit(1, 900), run(2, -200.0), run(3, -200.0)]}).passed


def test_a_figure_of_the_finished_run() -> None:
    """Median and worst seed are compared, and the shortfall of the median is told."""
    rule = at_least("sac", -180.0, greedy, "greedy", far_off=-250.0)
    good, bad = (run(seed, greedy=(value, value)) for seed, value in ((1, -150.0), (2, -300.0)))
    assert rule({"sac": [good]}) == Verdict(passed=True, text="greedy -150, asked for -180")
    assert not rule({"sac": [good, good, bad]}).passed
    assert rule({"sac": [bad]}).text == "greedy -300, asked for -180: -300, 120 short in the median"
    assert not rule({"sac": [run(1)]}).passed


def test_controls_must_fail_to_learn() -> None:
    """A control that learns fails the gate; one that stays at the worst return passes."""
    assert stays_below("without", 150.0)({"without": [run(1, 60.0, best=149.0)]}).passed
    assert not stays_below("without", 150.0)({"without": [run(1, 60.0, best=150.0)]}).passed
    assert never_above("plain", -200.0)({"plain": [run(1, -200.0)]}).passed
    verdict = never_above("plain", -200.0)({"plain": [run(1, -200.0, best=-199.5)]})
    assert verdict == Verdict(passed=False, text="plain: best -199.5, 1 of 1 must stay at -200: 0.5 over it")
    most = never_above("plain", -200.0, needed=2)
    assert most({"plain": [run(1, -200.0), run(2, -199.5), run(3, -200.0)]}).passed
    assert not most({"plain": [run(1, -200.0), run(2, -199.5), run(3, -199.5)]}).passed


def test_every_seed_beats_its_control() -> None:
    """Each seed is compared with the same seed of the control."""
    rule = better_by("attention", "control", 1.2, last_train)
    results = {"attention": [run(1, 0.9), run(2, 0.5)], "control": [run(1, 0.7), run(2, 0.45)]}
    verdict = rule(results)
    assert not verdict.passed
    assert verdict.text.endswith("; seed 2 is 0.04 short of 1.2 times")
    assert rule({"attention": [run(1, 0.9)], "control": [run(1, 0.7)]}).passed


def test_updates_per_step_are_within_five_percent() -> None:
    """Gradient steps by environment steps, against the setting."""
    rule = updates_per_step("sac", 1.0)
    assert rule({"sac": [run(1, optimizer_steps=960)]}).passed
    assert not rule({"sac": [run(1, optimizer_steps=940)]}).passed
    assert updates_per_step("sac", 1.0, initial_steps=100)({"sac": [run(1, optimizer_steps=900)]}).passed
    assert not rule({"sac": [run(1, optimizer_steps=None)]}).passed


def test_imitation_is_measured_between_chance_and_the_expert() -> None:
    """A share of 1 is the expert, one of 0 is chance; an expert no better than chance proves nothing."""
    rule = imitates("cloning", "expert", 20.0, 0.8)
    expert = [run(1, greedy=(500.0,))]
    assert rule({"expert": expert, "cloning": [run(1, greedy=(404.0,))]}).passed
    assert not rule({"expert": expert, "cloning": [run(1, greedy=(400.0,))]}).passed
    assert not rule({"expert": [run(1, greedy=(20.0,))], "cloning": [run(1, greedy=(500.0,))]}).passed


def test_reports_say_what_each_reaches() -> None:
    """Both arms are told; one below the limit fails."""
    results = {"per_action": [run(1, 57.2)], "joint": [run(1, 30.0)]}
    assert reports("per_action", "joint")(results) == Verdict(passed=True, text="per_action 57.2; joint 30")
    assert reports("per_action", "joint", at_least=40.0)(results) == Verdict(
        passed=False, text="per_action 57.2; joint 30 (30, 10 short)"
    )


@pytest.mark.parametrize(("train", "passed"), [(160.0, True), (100.0, False)])
def test_all_of_several_rules(train: float, passed: bool) -> None:
    """A gate with several rules passes only with all of them, and tells of all."""
    both = all_of(
        at_least("a", 150.0, last_train, "train", far_off=0.0), at_least("a", 1.0, last_train, "train", far_off=0.0)
    )
    verdict = both({"a": [run(1, train)]})
    assert verdict.passed is passed
    assert verdict.text.count("asked for") == 2
