"""Trains CartPole and Catch to their targets on the device with real commands."""

from dataclasses import replace
from statistics import median

from tests.tools.gates.catalog import GATES
from tests.tools.gates.gate import Gate, Verdict
from tests.tools.gates.training import train
from tests.tools.gpu.check import Outcome, Setup

_SHORT_STEPS = 2_000


def check(setup: Setup, name: str) -> Outcome:
    """Trains the arms of a gate with each of its seeds, or one in a short run, the learner on the device.

    Args:
        setup: Where.
        name: Of the gate.
    """
    (gate,) = (each for each in GATES if each.name == name)
    if setup.shrinks:
        gate = _shortened(gate)
    arms = [replace(arm, options=("--torch-device", str(setup.device))) for arm in gate.arms]
    results = {
        arm.name: [train(arm, seed, setup.folder / f"{name}-{arm.name}-{seed}") for seed in gate.seeds] for arm in arms
    }
    verdict = gate.rule(results)
    runs = [run for found in results.values() for run in found]
    steps, seconds = median(run.steps for run in runs), median(run.seconds for run in runs)
    return Outcome(verdict.passed, f"{verdict.text}; {seconds:.0f} s", {"steps": float(steps), "seconds": seconds})


def _shortened(gate: Gate) -> Gate:
    """Returns a gate that takes seconds and asks only for episodes."""
    arms = tuple(replace(arm, budget_steps=_SHORT_STEPS, target=None) for arm in gate.arms)
    has_played = Verdict(passed=True, text="trained for some seconds")
    return replace(gate, arms=arms, seeds=gate.seeds[:1], rule=lambda _: has_played)
