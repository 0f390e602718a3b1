"""The rules of gates, which turn the results of several seeds into a verdict."""

from collections.abc import Callable, Sequence
from statistics import median

from tests.tools.gates.gate import Results, Rule, Trained, Verdict

Figure = Callable[[Trained], float | None]

NOTHING = float("-inf")
"""The figure of a run that has none."""
NEVER = float("inf")
"""Steps of a run that did not reach its target."""


def last_train(trained: Trained) -> float | None:
    """Returns the mean return of the last 100 training episodes."""
    return trained.train


def best_train(trained: Trained) -> float | None:
    """Returns the best mean return of 100 training episodes during the run."""
    return max((value for value in (trained.best, trained.train) if value is not None), default=None)


def greedy(trained: Trained) -> float | None:
    """Returns the mean return of deterministic episodes."""
    return trained.greedy_mean


def reaches(arm: str, target: float, budget_steps: int, *, far_off: float, needed: int | None = None) -> Rule:
    """Requires that the statistic *train* reaches a target within a budget.

    Args:
        arm: Whose.
        target: Of the mean return.
        budget_steps: Steps of all actors.
        far_off: A seed whose best mean return is lower is far off, and fails the gate.
        needed: How many seeds must reach it; None asks the median to.
    """

    def rule(results: Results) -> Verdict:
        runs = results[arm]
        inside = [run for run in runs if (run.steps_to_target or budget_steps + 1) <= budget_steps]
        wanted = len(runs) // 2 + 1 if needed is None else min(needed, len(runs))
        lost = [run for run in runs if run not in inside and _number(best_train(run)) < far_off]
        passed = len(inside) >= wanted and not lost
        steps = ", ".join(f"{run.steps_to_target:,}" for run in inside) or "none"
        text = f"{len(inside)} of {len(runs)} reached {target:g} within {budget_steps:,} steps (after {steps})"
        for run in runs:
            if run not in inside:
                text += f"; seed {run.seed}: {_shortfall(best_train(run), target)} after {run.steps:,} steps"
        if lost:
            text += f"; below {far_off:g} is far off"
        return Verdict(passed, text)

    return rule


def one_reaches(arms: Sequence[str], target: float, floor: float) -> Rule:
    """Requires of one arm that its median seed reaches a greedy return and that no seed stays below a floor."""

    def rule(results: Results) -> Verdict:
        parts, passed = [], False
        for arm in arms:
            values = [_number(greedy(run)) for run in results[arm]]
            holds = median(values) >= target and min(values) >= floor
            passed |= holds
            acted = _listed([_number(last_train(run)) for run in results[arm]])
            parts.append(f"{arm}{'' if holds else ' (not)'} greedy {_listed(values)}, as acted {acted}")
        return Verdict(passed, f"asked for {target:g}, none below {floor:g}: {'; '.join(parts)}")

    return rule


def at_least(arm: str, limit: float, figure: Figure, name: str, *, far_off: float) -> Rule:
    """Requires that a figure of the finished run reaches a limit in the median, and that no seed is far off."""

    def rule(results: Results) -> Verdict:
        values = [_number(figure(run)) for run in results[arm]]
        passed = median(values) >= limit and min(values) >= far_off
        text = f"{name} {_listed(values)}, asked for {limit:g}"
        return Verdict(passed, text if passed else f"{text}: {_shortfall(median(values), limit)} in the median")

    return rule


def stays_below(arm: str, limit: float) -> Rule:
    """Requires of a control that the best mean return of each run stays below a limit."""

    def rule(results: Results) -> Verdict:
        values = [_number(best_train(run)) for run in results[arm]]
        text = f"{arm}: best {_listed(values)}, must stay below {limit:g}"
        over = max(values) - limit
        return Verdict(over < 0, text if over < 0 else f"{text}: {over:.4g} over it")

    return rule


def misses(arm: str, target: float, budget_steps: int) -> Rule:
    """Requires of a control that its median run does not reach a target within a budget."""

    def rule(results: Results) -> Verdict:
        runs = results[arm]
        inside = sum((run.steps_to_target or budget_steps + 1) <= budget_steps for run in runs)
        passed = inside <= len(runs) // 2
        text = f"{arm}: {inside} of {len(runs)} reached {target:g} within {budget_steps:,} steps, must be under half"
        return Verdict(passed, text)

    return rule


def better_by(arm: str, control: str, factor: float, figure: Figure = last_train) -> Rule:
    """Requires that every seed is better than the same seed of its control by a factor."""

    def rule(results: Results) -> Verdict:
        pairs = [
            (run.seed, _number(figure(run)), _number(figure(other)))
            for run, other in zip(results[arm], results[control], strict=True)
        ]
        text = ", ".join(f"seed {seed}: {value:.4g} against {other:.4g}" for seed, value, other in pairs)
        short = [(seed, value - factor * other) for seed, value, other in pairs if value < factor * other]
        if short:
            text += "; " + ", ".join(f"seed {seed} is {-lack:.4g} short of {factor:g} times" for seed, lack in short)
        return Verdict(not short, text)

    return rule


def updates_per_step(arm: str, wanted: float, *, initial_steps: int = 0, tolerance: float = 0.05) -> Rule:
    """Requires that a replay trainer makes as many updates as its settings say.

    Args:
        arm: Whose.
        wanted: Updates by environment step.
        initial_steps: For which there are none.
        tolerance: How far off, as a share.
    """

    def rule(results: Results) -> Verdict:
        rates = [(run.optimizer_steps or 0) / max(1, run.steps - initial_steps) for run in results[arm]]
        off = max(abs(rate / wanted - 1.0) for rate in rates)
        text = f"updates per step {_listed(rates)}, {off:.1%} off {wanted:g}"
        return Verdict(off <= tolerance, text if off <= tolerance else f"{text}: more than {tolerance:.0%}")

    return rule


def imitates(arm: str, expert: str, random_return: float, share: float) -> Rule:
    """Requires that (R - random) / (expert - random) reaches a share: median, and no seed 0.2 below it."""

    def rule(results: Results) -> Verdict:
        shares = []
        for run, teacher in zip(results[arm], results[expert], strict=True):
            span = _number(teacher.greedy_mean) - random_return
            shares.append((_number(run.greedy_mean) - random_return) / span if span > 0 else NOTHING)
        passed = median(shares) >= share and min(shares) >= share - 0.2
        text = f"{arm}: {_listed(shares)} of the expert's gain over chance, asked for {share:g}"
        return Verdict(passed, text if passed else f"{text}: {_shortfall(median(shares), share)} in the median")

    return rule


def all_of(*rules: Rule) -> Rule:
    """Requires several rules."""

    def rule(results: Results) -> Verdict:
        verdicts = [each(results) for each in rules]
        return Verdict(all(verdict.passed for verdict in verdicts), "; ".join(verdict.text for verdict in verdicts))

    return rule


def sooner_than(arm: str, control: str, share: float) -> Rule:
    """Every seed of one arm reaches its target in a share of the steps that the same seed of its control takes.

    A control that does not reach the target counts with the steps that it took.
    """

    def rule(results: Results) -> Verdict:
        pairs = list(zip(results[arm], results[control], strict=True))
        allowed = [share * (other.steps_to_target or other.steps) for _, other in pairs]
        passed = all((run.steps_to_target or NEVER) <= most for (run, _), most in zip(pairs, allowed, strict=True))
        return Verdict(passed, f"{_reached(results, arm)}, {_reached(results, control)}")

    return rule


def no_later_than(arm: str, control: str) -> Rule:
    """Requires that the median seed of an arm reaches its target in no more steps than that of its control.

    A control that does not reach the target counts with the steps that it took.
    """

    def rule(results: Results) -> Verdict:
        own = median(run.steps_to_target or NEVER for run in results[arm])
        others = median(run.steps_to_target or run.steps for run in results[control])
        text = f"{_reached(results, arm)}, {_reached(results, control)}: {own:,.0f} against {others:,.0f} in the median"
        return Verdict(own <= others, text)

    return rule


def as_soon_as(arm: str, control: str) -> Rule:
    """Requires that the median seed of an arm reaches its target within the range of the seeds of its control.

    A seed that does not reach the target counts with the steps that it took.
    """

    def rule(results: Results) -> Verdict:
        own, others = ([run.steps_to_target or run.steps for run in results[name]] for name in (arm, control))
        middle, low, high = median(own), min(others), max(others)
        text = f"{_reached(results, arm)}, {middle:,.0f} in the median; {control} after {low:,} to {high:,}"
        return Verdict(low <= middle <= high, text)

    return rule


def _reached(results: Results, arm: str) -> str:
    steps = (f"{run.steps_to_target:,}" if run.steps_to_target else f"not in {run.steps:,}" for run in results[arm])
    return f"{arm} after {' / '.join(steps)}"


def _number(value: float | None) -> float:
    return NOTHING if value is None else value


def _listed(values: Sequence[float]) -> str:
    return " / ".join("nothing" if value == NOTHING else f"{value:.4g}" for value in values)


def _shortfall(value: float | None, wanted: float) -> str:
    number = _number(value)
    return "nothing at all" if number == NOTHING else f"{number:.4g}, {wanted - number:.4g} short"
