"""Compares groups of runs over their seeds, for `rollcast compare`."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rollcast.text import printable

from learner.cli.run_groups import BY_NAME, BY_RUN, Group, Member, grouped, read_settings
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.curves import Curve, read_curves
from learner.shared.seed_statistics import Interval, Scores, improvement, improvement_interval, iqm, iqm_interval
from learner.start.list_runs import read_run

_UNFINISHED = frozenset({"running", "waiting", "paused", "failed", "killed", "copy", "stopped"})
_FEW_SEEDS = 5


@dataclass(frozen=True, slots=True)
class Request:
    """Selects the runs, the statistic and the groups of a comparison.

    Attributes:
        results_dir: Folder of all runs.
        runs: Names of runs in it, or paths of run folders.
        key: Name of the statistic.
        by: What makes a group: ``settings``, ``name``, ``run``, or a setting by its dotted path.
        behavior: The only behavior to compare; None compares all.
        episodes: Least number of episodes behind each point of a curve.
        at_steps: Environment steps at which runs are compared; None compares their ends.
        scales: Scores that count as 0 and 1, by behavior, which make several behaviors comparable; empty for none.
    """

    results_dir: Path
    runs: Sequence[str]
    key: str
    by: str
    behavior: str | None
    episodes: int
    at_steps: int | None
    scales: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one group.

    Attributes:
        group: Its label.
        seeds: Number of runs.
        iqm: Interquartile mean of their scores.
        interval: 95 % bootstrap interval of it; None for a single run.
        median: Median score.
        mean: Mean score.
        min: Lowest score.
        max: Highest score.
        steps: Lowest and highest number of environment steps at which the scores were taken.
        improvement: Probability that a run of this group scores more than one of the first group; None for the first.
        improvement_interval: 95 % bootstrap interval of it; None for single runs.
    """

    group: str
    seeds: int
    iqm: float
    interval: Interval | None
    median: float
    mean: float
    min: float
    max: float
    steps: tuple[int, int]
    improvement: float | None
    improvement_interval: Interval | None


@dataclass(frozen=True, slots=True)
class Scored:
    """A group with the scores of its runs.

    Attributes:
        group: The group.
        scores: ``[N]``, for each run the value of its curve at the compared step.
        steps: The step of each score.
    """

    group: Group
    scores: Scores
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The groups of one behavior, and their results.

    Attributes:
        behavior: Name of the behavior's folder.
        scored: Groups in the order of their first runs.
        rows: Results in the same order.
    """

    behavior: str
    scored: tuple[Scored, ...]
    rows: tuple[Row, ...]

    @property
    def groups(self) -> list[Group]:
        """Returns the groups in order."""
        return [one.group for one in self.scored]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole comparison.

    Attributes:
        request: What was asked for.
        comparisons: One for each behavior, at least one.
        together: Results over all behaviors, with normalized scores; empty without scales.
        notes: Reasons for caution, one line each.
    """

    request: Request
    comparisons: tuple[Comparison, ...]
    together: tuple[Row, ...]
    notes: tuple[str, ...]


def compare(request: Request) -> Report:
    """Reads the runs and compares them.

    Raises:
        UserError: A run lacks the statistic or a setting, or does not reach the steps.
    """
    members = list(_members(request))
    behaviors = list(dict.fromkeys(member.curve.behavior for member in members))
    if request.behavior is not None and request.behavior not in behaviors:
        known = ", ".join(map(printable, behaviors))
        raise UserError(ExitCode.USAGE, f"--behavior {printable(request.behavior)!r}: the runs have only {known}")
    chosen = behaviors if request.behavior is None else [request.behavior]
    comparisons = tuple(
        _compared(name, [one for one in members if one.curve.behavior == name], request) for name in chosen
    )
    together = _together(comparisons, request.scales) if request.scales else ()
    return Report(request, comparisons, together, tuple(_notes(comparisons)))


def _members(request: Request) -> Iterator[Member]:
    folders: dict[Path, Path] = {}
    for name in request.runs:
        folder = _folder(name, request.results_dir)
        folders.setdefault(folder.absolute(), folder)
    for folder in folders.values():
        for curve in read_curves(folder, request.key, request.episodes):
            settings = {} if request.by in {BY_NAME, BY_RUN} else read_settings(folder, curve.behavior)
            yield Member(folder, curve, settings)


def _folder(name: str, results_dir: Path) -> Path:
    """Returns the folder of a run from its name, or from its path, also one in the current folder."""
    path, inside = Path(name), results_dir / name
    return path if len(path.parts) > 1 or (path.is_dir() and not inside.is_dir()) else inside


def _compared(behavior: str, members: Sequence[Member], request: Request) -> Comparison:
    scored = []
    for group in grouped(members, request.by):
        found = [(member.curve, _place(member.curve, request.at_steps)) for member in group.members]
        scores = np.array([curve.values[place] for curve, place in found])
        scored.append(Scored(group, scores, tuple(curve.steps[place] for curve, place in found)))
    rows = _rows([one.group.label for one in scored], [[one.scores] for one in scored], [one.steps for one in scored])
    return Comparison(behavior, tuple(scored), rows)


def _place(curve: Curve, at_steps: int | None) -> int:
    """Returns the index of the newest point up to a step; of the last one for None.

    Raises:
        UserError: The curve ends before the step, or begins after it.
    """
    if at_steps is None:
        return len(curve.steps) - 1
    if not curve.steps[0] <= at_steps <= curve.steps[-1]:
        raise UserError(
            ExitCode.USAGE,
            f"--at {at_steps:,}: the curve of {printable(curve.run_id)} is from step {curve.steps[0]:,} to "
            f"{curve.steps[-1]:,}; choose a step that all runs have, or omit --at to compare their ends",
        )
    return bisect_right(curve.steps, at_steps) - 1


def _rows(labels: Sequence[str], scores: Sequence[Sequence[Scores]], steps: Sequence[Sequence[int]]) -> tuple[Row, ...]:
    """Returns the results of groups.

    Args:
        labels: Their names.
        scores: Of each group an array ``[N_m]`` for each of M tasks.
        steps: Environment steps of each group's scores.
    """
    rows = []
    for place, (label, tasks) in enumerate(zip(labels, scores, strict=True)):
        every = np.concatenate(tasks)
        rows.append(
            Row(
                group=label,
                seeds=len(every),
                iqm=iqm(tasks),
                interval=iqm_interval(tasks),
                median=float(np.median(every)),
                mean=float(every.mean()),
                min=float(every.min()),
                max=float(every.max()),
                steps=(min(steps[place]), max(steps[place])),
                improvement=improvement(tasks, scores[0]) if place else None,
                improvement_interval=improvement_interval(tasks, scores[0]) if place else None,
            )
        )
    return tuple(rows)


def _together(comparisons: Sequence[Comparison], scales: Mapping[str, tuple[float, float]]) -> tuple[Row, ...]:
    """Returns results over all behaviors, of the groups that have runs of each.

    Raises:
        UserError: A behavior has no scale, or no group has runs of all behaviors.
    """
    names = [one.behavior for one in comparisons]
    if set(names) != set(scales):
        raise UserError(
            ExitCode.USAGE,
            f"--scale needs one BEHAVIOR=LOW,HIGH for each compared behavior, {', '.join(map(printable, names))}, and got "
            + ", ".join(map(printable, scales)),
        )
    found = [{one.group.label: one for one in comparison.scored} for comparison in comparisons]
    labels = [label for label in found[0] if all(label in of_behavior for of_behavior in found)]
    if not labels:
        raise UserError(
            ExitCode.USAGE,
            "--scale: no group has runs of every behavior; --by trainer_type, --by name or another --by makes groups "
            "across behaviors",
        )
    scores = [
        [
            (of_behavior[label].scores - scales[name][0]) / (scales[name][1] - scales[name][0])
            for name, of_behavior in zip(names, found, strict=True)
        ]
        for label in labels
    ]
    return _rows(labels, scores, [[step for part in found for step in part[label].steps] for label in labels])


def _notes(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yields what a reader of the results must know."""
    groups = [group for one in comparisons for group in one.groups]
    if any(len(group.members) < _FEW_SEEDS for group in groups):
        yield (
            f"groups with fewer than {_FEW_SEEDS} seeds have intervals that are too narrow (75 % instead of 95 % for 3 "
            "normally distributed seeds); with fewer than 4, the IQM is the mean"
        )
    for folder in dict.fromkeys(member.folder for group in groups for member in group.members):
        row = read_run(folder, 0.0)
        if row.state in _UNFINISHED:
            yield f"{printable(row.run_id)} is {row.state}: it is compared up to its newest summary"
    for group in groups:
        seeds = Counter(member.seed for member in group.members if member.seed)
        again = [seed for seed, count in seeds.items() if count > 1]
        if again:
            yield f"{group.label} has the seed {', '.join(again)} more than once: such runs may not be independent"
