"""What became of a run of tests: counts, failures, flaky tests, and the closing line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROTECTED = ("books", "ledger", "checker", "lockstep", "lock_step", "lock-step")
"""Tests with such a word in their file or name are never flaky: what fails there by chance is a fault of the product."""
MAX_FLAKY = 3
LIST = "tests/FLAKY.md"

_ORDER = ("failed", "passed", "skipped", "xfailed", "xpassed", "warning", "error")
_SINGULAR = {"warnings": "warning", "errors": "error"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed.

    Attributes:
        test: Its id.
        error: The first line of its error.
        kind: As pytest counts it, `failed` or `error`.
        when: The phase that failed: `setup`, `call`, `teardown`, or `collect`.
    """

    test: str
    error: str
    kind: str = "failed"
    when: str = "call"

    def __str__(self) -> str:
        return f"{self.test} {self.error}"


@dataclass(slots=True)
class Outcome:
    """What became of a run, or of several together."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    costs: Counter[str] = field(default_factory=Counter)
    flaky: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        """Adds the counts, failures and costs of another run."""
        self.counts.update(other.counts)
        self.failures += other.failures
        self.costs.update(other.costs)
        self.flaky += other.flaky
        self.seconds += other.seconds

    def forgive(self, flaky: Collection[Failure]) -> None:
        """Counts tests as passed that failed once and passed when they were repeated."""
        for failure in flaky:
            self.failures.remove(failure)
            self.counts[failure.kind] -= 1
            self.counts["passed"] += failure.when != "teardown"  # a test whose teardown fails has passed already
        self.flaky += flaky

    def closing_line(self) -> str:
        """Returns a line in the form of pytest's last one; what is deselected here runs elsewhere."""
        parts = []
        for kind in _ORDER:
            number = self.counts[kind]
            if number:
                plural = "s" if kind in {"warning", "error"} and number != 1 else ""
                parts.append(f"{number} {kind}{plural}")
        return f"===== {', '.join(parts) or 'no tests ran'} in {self.seconds:.2f}s ====="


def read_report(path: Path) -> Outcome:
    """Returns what the plugin wrote at the end of a run."""
    found: dict[str, Any] = json.loads(path.read_text())
    counts = Counter({_SINGULAR.get(kind, kind): number for kind, number in found["counts"].items()})
    return Outcome(counts, [Failure(**each) for each in found["failures"]], Counter(found["costs"]))


def refusal(failures: Collection[Failure], already: int = 0) -> str:
    """Returns why failures are not repeated; empty if they are.

    Args:
        failures: Of a run.
        already: Flaky tests of earlier runs of the same call.
    """
    protected = [each.test for each in failures if any(word in each.test.lower() for word in PROTECTED)]
    if protected:
        return f"not repeated, since a failure there is never chance: {', '.join(protected)}"
    broken = [each.test for each in failures if each.when == "collect"]
    if broken:
        return f"not repeated, since they cannot be loaded: {', '.join(broken)}"
    tests = len({each.test for each in failures}) + already
    return f"not repeated: {tests} tests failed, and at most {MAX_FLAKY} may be flaky" if tests > MAX_FLAKY else ""


def passed_when_repeated(failures: Collection[Failure], again: Outcome, code: int) -> list[Failure]:
    """Returns the failures whose tests passed in a second run of all of them.

    Args:
        failures: Of the first run.
        again: What became of the second run; of nothing but these tests.
        code: Exit code of pytest in the second run.
    """
    tests = {each.test for each in failures}
    failed = {each.test for each in again.failures}
    if code not in {0, 1} or again.counts["passed"] + len(failed & tests) < len(tests):
        return []
    return [each for each in failures if each.test not in failed]


def flaky_lines(flaky: Iterable[Failure]) -> list[str]:
    """Returns a line of each flaky test, and what to append to the list of them."""
    found = list(flaky)
    if not found:
        return []
    rows = [f"| `{each.test}` | {each.error.replace('|', '/')} |" for each in found]
    return [*(f"FLAKY {each}" for each in found), f"to be appended to {LIST}, with the cause:", *rows]


def write_result(path: Path, part: str, outcome: Outcome) -> None:
    """Appends what became of a part to the results of a call of several."""
    flaky = [{"test": each.test, "error": each.error} for each in outcome.flaky]
    line = {"part": part, "counts": outcome.counts, "seconds": outcome.seconds, "flaky": flaky}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read_results(path: Path) -> tuple[Outcome, set[str]]:
    """Returns the sum of the results of all parts, and which parts there are."""
    total = Outcome()
    parts: set[str] = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        found: Mapping[str, Any] = json.loads(line)
        flaky = [Failure(**each) for each in found["flaky"]]
        total.add(Outcome(Counter(found["counts"]), flaky=flaky, seconds=found["seconds"]))
        parts.add(found["part"])
    return total, parts
