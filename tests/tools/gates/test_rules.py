"""Tests the rules of gates."""

from __future__ import annotations

import pytest

from tests.tools.gates.gate import Trained, Verdict
from tests.tools.gates.rules import (
    all_of,
    as_soon_as,
    at_least,
    better_by,
    compares,
    greedy,
    imitates,
    last_train,
    misses,
    no_later_than,
    one_reaches,
    reaches,
    reports,
    sooner_than,
    stays_below,
    updates_per_step,
)
from tests.tools.gates.stock import wins_no_more


def run(seed: int, train: float | None = 100.0, **changes: object) -> Trained:
    """Returns what a run of 1,000 steps resulted in."""
    known = {"stop_reason": "max_steps", "steps": 1000, "seconds": 1.0, "episodes": 100, "best": train}
    return Trained(**{"seed": seed, "train": train, **known, **changes})  # type: ignore[arg-type]


def hit(seed: int, steps: int) -> Trained:
    """Returns a run that reached its target after so many steps."""
    return run(seed, 480.0, stop_reason="target_return", steps=steps + 100, steps_to_target=steps)


def test_a_target_needs_the_median_seed() -> None:
    """Two of three seeds within the budget suffice if the third is not far off."""
    rule = reaches("ppo", 475.0, 1000, far_off=400.0)
    assert rule({"ppo": [hit(1, 900), hit(2, 1000), run(3, 450.0)]}) == Verdict(
        passed=True,
        text="2 of 3 reached 475 within 1,000 steps (after 900, 1,000); seed 3: 450, 25 short after 1,000 steps",
    )


def test_a_control_must_miss_the_target_in_the_median() -> None:
    """Fewer than half of a control's seeds may reach the target."""
    rule = misses("control", 475.0, 1000)
    assert rule({"control": [hit(1, 900), run(2, 300.0), hit(3, 1001)]}) == Verdict(
        passed=True, text="control: 1 of 3 reached 475 within 1,000 steps, must be under half"
    )
    assert not rule({"control": [hit(1, 900), run(2, 300.0), hit(3, 1000)]}).passed


def test_one_arm_must_reach_a_greedy_return_with_its_median_and_worst_seed() -> None:
    """One arm suffices; a median of one and a worst seed of another do not."""
    rule = one_reaches(["defaults", "zoo"], 100.0, 50.0)
    low, high, mixed = ([run(seed, greedy=(value,)) for seed, value in enumerate(values, 1)]
                        for values in ((90.0, 95.0, 80.0), (50.0, 100.0, 101.0), (49.0, 100.0, 101.0)))  # fmt: skip
    assert rule({"defaults": low, "zoo": high}).passed
    assert rule({"defaults": high, "zoo": low}).passed
    assert rule({"defaults": low, "zoo": mixed}) == Verdict(
        passed=False,
        text="asked for 100, none below 50: defaults (not) greedy 90 / 95 / 80, as acted 100 / 100 / 100; "
        "zoo (not) greedy 49 / 100 / 101, as acted 100 / 100 / 100",
    )


def test_sooner_than_a_control() -> None:
    """Every seed must be; a control without the target counts with all of its steps."""
    rule = sooner_than("lessons", "control", 0.5)
    assert rule({"lessons": [hit(1, 450), hit(2, 500)], "control": [hit(1, 900), run(2)]}) == Verdict(
        passed=True, text="seed 1: after 450, control 900, seed 2: after 500, control not in 1,000"
    )
    assert not rule({"lessons": [hit(1, 450), hit(2, 501)], "control": [hit(1, 900), run(2)]}).passed
    assert not rule({"lessons": [run(1)], "control": [run(1)]}).passed


def test_no_later_than_a_control_in_the_median() -> None:
    """Medians of seeds are compared; a run without the target is later than all others, a control with all its steps."""
    rule = no_later_than("poca", "mlagents")
    assert rule(
        {"poca": [hit(1, 450), hit(2, 500), run(3)], "mlagents": [run(1), hit(2, 300), hit(3, 500)]}
    ) == Verdict(
        passed=True, text="poca after 450 / 500 / not, mlagents after not / 300 / 500: 500 against 500 in the median"
    )
    assert not rule({"poca": [hit(1, 501)], "mlagents": [hit(1, 500)]}).passed
    assert not rule({"poca": [run(1)], "mlagents": [run(1)]}).passed


def test_a_trainer_that_loses_wins_at_most_half() -> None:
    """The median counts of the runs' shares of all games."""
    rule = wins_no_more("mlagents", "Rollcast")
    runs = [run(1, against=(0.25, 0.5)), run(2, against=(0.25, 0.75)), run(3, against=(1.0, 0.75))]
    assert rule({"mlagents": runs}) == Verdict(
        passed=True,
        text="mlagents wins 50.0% of its games against Rollcast in the median (seed 1: 25.0% / 50.0%; "
        "seed 2: 25.0% / 75.0%; seed 3: 100.0% / 75.0%)",
    )
    assert not rule({"mlagents": runs[1:]}).passed


def test_one_seed_far_off_fails() -> None:
    """A seed that is far off fails the gate."""
    verdict = reaches("ppo", 475.0, 1000, far_off=400.0)({"ppo": [hit(1, 900), hit(2, 800), run(3, 200.0)]})
    assert not verdict.passed
    assert "275 short" in verdict.text
    assert "below 400 is far off" in verdict.text


def test_a_target_after_the_budget_is_missed() -> None:
    """Steps count from the first one of any actor, and one above the budget is too many."""
    assert not reaches("ppo", 475.0, 1000, far_off=400.0)({"ppo": [hit(1, 1001)]}).passed


def test_the_best_mean_of_a_run_counts_for_far_off() -> None:
    """A run that was near its target once is not far off."""
    runs = [hit(1, 900), hit(2, 900), run(3, 100.0, best=420.0)]
    assert reaches("ppo", 475.0, 1000, far_off=400.0)({"ppo": runs}).passed


def test_two_of_three_are_enough_where_a_gate_says_so() -> None:
    """If a gate requires a number of seeds, the others may miss the limit but must have learned."""
    rule = reaches("rnd", -180.0, 1000, far_off=-200.0, needed=2)
    assert rule({"rnd": [hit(1, 900), hit(2, 900), run(3, -200.0)]}).passed
    assert not rule({"rnd": [hit(1, 900), run(2, -200.0), run(3, -200.0)]}).passed


def test_a_figure_of_the_finished_run() -> None:
    """Median and worst seed are compared, and the median's shortfall is shown."""
    rule = at_least("sac", -180.0, greedy, "greedy", far_off=-250.0)
    good, bad = (run(seed, greedy=(value, value)) for seed, value in ((1, -150.0), (2, -300.0)))
    assert rule({"sac": [good]}) == Verdict(passed=True, text="greedy -150, asked for -180")
    assert not rule({"sac": [good, good, bad]}).passed
    assert rule({"sac": [bad]}).text == "greedy -300, asked for -180: -300, 120 short in the median"
    assert not rule({"sac": [run(1)]}).passed


def test_controls_must_fail_to_learn() -> None:
    """A control that learns fails the gate."""
    assert stays_below("without", 150.0)({"without": [run(1, 60.0, best=149.0)]}).passed
    assert not stays_below("without", 150.0)({"without": [run(1, 60.0, best=150.0)]}).passed


def test_every_seed_beats_its_control() -> None:
    """Each seed is compared with the same seed of the control."""
    rule = better_by("attention", "control", 1.2, last_train)
    results = {"attention": [run(1, 0.9), run(2, 0.5)], "control": [run(1, 0.7), run(2, 0.45)]}
    verdict = rule(results)
    assert not verdict.passed
    assert verdict.text.endswith("; seed 2 is 0.04 short of 1.2 times")
    assert rule({"attention": [run(1, 0.9)], "control": [run(1, 0.7)]}).passed


def test_updates_per_step_are_within_five_percent() -> None:
    """Gradient steps divided by environment steps equal the setting within five percent."""
    rule = updates_per_step("sac", 1.0)
    assert rule({"sac": [run(1, optimizer_steps=960)]}).passed
    assert not rule({"sac": [run(1, optimizer_steps=940)]}).passed
    assert updates_per_step("sac", 1.0, initial_steps=100)({"sac": [run(1, optimizer_steps=900)]}).passed
    assert not rule({"sac": [run(1, optimizer_steps=None)]}).passed


def test_imitation_is_measured_between_chance_and_the_expert() -> None:
    """A share of 1 is the expert and 0 is chance; an expert no better than chance is an error."""
    rule = imitates("cloning", "expert", 20.0, 0.8)
    expert = [run(1, greedy=(500.0,))]
    assert rule({"expert": expert, "cloning": [run(1, greedy=(404.0,))]}).passed
    assert not rule({"expert": expert, "cloning": [run(1, greedy=(400.0,))]}).passed
    assert not rule({"expert": [run(1, greedy=(20.0,))], "cloning": [run(1, greedy=(500.0,))]}).passed


def test_a_study_reports_each_seed_greedy_and_as_acted() -> None:
    """It has every seed of every arm, and the medians; nothing fails it."""
    results = {
        "third": [run(1, 10.0, greedy=(20.0, 22.0)), run(2, 30.0, greedy=(1.0,)), run(3, -5.0, greedy=(2.0,))],
        "whole": [run(1, None), run(2, 4.0, greedy=(8.0,)), run(3, 6.0, greedy=(9.0,))],
    }
    assert compares("third", "whole")(results) == Verdict(
        passed=True,
        text="third greedy 21 / 1 / 2, median 2; third as acted 10 / 30 / -5, median 10; "
        "whole greedy nothing / 8 / 9, median 8; whole as acted nothing / 4 / 6, median 4",
    )


def test_reports_say_what_each_reaches() -> None:
    """Both arms are shown, and one below the limit fails."""
    results = {"per_action": [run(1, 57.2)], "joint": [run(1, 30.0)]}
    assert reports("per_action", "joint")(results) == Verdict(passed=True, text="per_action 57.2; joint 30")
    assert reports("per_action", "joint", at_least=40.0)(results) == Verdict(
        passed=False, text="per_action 57.2; joint 30 (30, 10 short)"
    )


@pytest.mark.parametrize(("train", "passed"), [(160.0, True), (100.0, False)])
def test_all_of_several_rules(train: float, passed: bool) -> None:
    """A gate with several rules passes only with all of them, and shows all."""
    both = all_of(
        at_least("a", 150.0, last_train, "train", far_off=0.0), at_least("a", 1.0, last_train, "train", far_off=0.0)
    )
    verdict = both({"a": [run(1, train)]})
    assert verdict.passed is passed
    assert verdict.text.count("asked for") == 2


def test_an_arm_must_be_neither_sooner_nor_later_than_its_control() -> None:
    """The median seed lies within the range of the control's; one that misses the target counts with its steps."""
    rule = as_soon_as("two", "one")
    control = [hit(1, 900), hit(2, 1200), hit(3, 1000)]
    assert rule({"two": [hit(1, 100), hit(2, 1150), run(3, 300.0, steps=2000)], "one": control}) == Verdict(
        passed=True, text="two after 100 / 1,150 / 2,000, 1,150 in the median; one after 900 to 1,200"
    )
    assert not rule({"two": [hit(1, 1201)] * 3, "one": control}).passed
    assert not rule({"two": [hit(1, 899)] * 3, "one": control}).passed
