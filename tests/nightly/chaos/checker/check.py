"""Checks the histories of all processes of a run against the invariants of `Invariant`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.nightly.chaos.checker.actors import ActorChecker, Made
from tests.nightly.chaos.checker.learners import LearnerChecker, Start
from tests.nightly.chaos.checker.reading import Histories, Line, Name, read
from tests.nightly.chaos.checker.violations import Invariant, Violation


def check_folder(folder: Path, max_lags: Mapping[str, int] | None = None) -> list[Violation]:
    """Checks the histories in a folder.

    Args:
        folder: The folder that ``ROLLCAST_HISTORY`` named.
        max_lags: Most versions between acting and training, by behavior.
    """
    return check(read(folder), max_lags or {})


def check(histories: Histories, max_lags: Mapping[str, int]) -> list[Violation]:
    """Checks histories; returns what should never be."""
    made = Made()
    violations: list[Violation] = []
    for lines in histories.actors:
        actor = ActorChecker(made)
        actor.check(lines)
        violations += actor.violations
    learner = LearnerChecker(made, max_lags)
    for lines in histories.learners:
        learner.check(lines)
    violations += learner.violations
    if learner.newest is not None:
        lost = Counter({name: books.rolled_back for name, books in learner.books.items()})
        violations += _check_acked(made, learner.starts, learner.newest, lost)
    return violations


def _check_acked(made: Made, starts: list[Start], newest: Start, lost: Counter[str]) -> list[Violation]:
    """Checks that steps which were acked and then rolled back are lost by name, and no others are.

    An actor that never came back leaves its session unknown, so its steps need not be named.
    """
    generation = newest.generation
    behavior_of: dict[Name, tuple[str, int, Line]] = {}
    for start in starts:
        for received in (start.queued, start.dropped):
            for name, (_, line) in received.items():
                behavior_of[name] = line["behavior"], line["steps"], line
    missing: Counter[str] = Counter()
    most: Counter[str] = Counter()
    shown: dict[str, list[Line]] = defaultdict(list)
    violations = []
    for name, (behavior, steps, line) in behavior_of.items():
        if newest.receipt(name) is not None:
            continue
        most[behavior] += steps
        ack = made.acked.get(name)
        if ack is not None and made.returned.get(name[0], 0) >= generation:
            missing[behavior] += steps
            shown[behavior] += [line, ack]
    for name, ack in made.acked.items():
        if name not in behavior_of:
            what = f"chunk {name} is acked, and no learner queued or dropped it"
            violations.append(Violation(Invariant.ACKED_HAS_A_FATE, what, (made.sent[name], ack)))
    for behavior in {*missing, *lost}:
        if not missing[behavior] <= lost[behavior] <= most[behavior]:
            what = (
                f"{lost[behavior]} steps of {behavior} are named as lost after a run state; {missing[behavior]} acked steps of "
                f"actors that came back are missing, and {most[behavior]} were received and rolled back"
            )
            violations.append(Violation(Invariant.ACKED_HAS_A_FATE, what, tuple(shown[behavior])))
    return violations
