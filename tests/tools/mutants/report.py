"""What a run on mutants found: those that survive, and the tests that no mutant needs."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Result:
    """The result of one module.

    Attributes:
        module: The module's file.
        made: Number of changes that could be made; some were, some of the rest are no difference.
        ran: What became of each: its line and difference, number of tests that execute it, those that failed, and the test
            that was killed or died, after which no other ran.
        seconds: Usual duration of each test.
        broken: Tests that fail on the module as it is; they did not run on mutants.
    """

    module: str
    made: int = 0
    ran: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def survivors(self) -> list[dict[str, Any]]:
        """The mutants that no test noticed."""
        return [mutant for mutant in self.ran if not mutant["failed"] and not mutant["stopped"]]


def read(module: str, path: Path) -> Result:
    """Reads the file that a worker wrote."""
    first, *ran = [json.loads(line) for line in path.read_text().splitlines()]
    return Result(module, first["made"], ran, first["tests"], first["broken"])


@dataclass(frozen=True)
class Candidate:
    """A test that was never the only one to catch a mutant.

    Attributes:
        test: Its name; the parameters of a parametrized test count as one.
        catches: Mutants that it catches.
        seconds: Its usual duration.
        together: Whether it can go together with every other of which this is true, and every mutant is still caught.
    """

    test: str
    catches: int
    seconds: float
    together: bool


def candidates(results: list[Result], files: set[str]) -> list[Candidate]:
    """Returns the tests of some files that no mutant needs, those first that can go together.

    A mutant whose tests were cut short by one that did not end needs that test.
    """
    seconds: dict[str, float] = defaultdict(float)
    catchers: list[set[str]] = []
    for result in results:
        for test, duration in result.seconds.items():
            seconds[_function(test)] += duration
        for mutant in result.ran:
            if mutant["stopped"]:
                catchers.append({_function(mutant["stopped"])})
            elif mutant["failed"]:
                catchers.append({_function(test) for test in mutant["failed"]})
    alone = {next(iter(tests)) for tests in catchers if len(tests) == 1}
    judged = {test for test in seconds if test.partition("::")[0] in files} - alone
    kept = set(seconds) - judged
    uncaught = [tests for tests in catchers if not tests & kept]
    while uncaught:  # the cheapest for what it catches
        best = max(judged - kept, key=lambda test: sum(test in tests for tests in uncaught) / (seconds[test] + 0.01))
        kept.add(best)
        uncaught = [tests for tests in uncaught if best not in tests]
    found = [
        Candidate(test, sum(test in tests for tests in catchers), seconds[test], test not in kept) for test in judged
    ]
    return sorted(found, key=lambda each: (not each.together, -each.seconds))


def _function(test: str) -> str:
    return test.partition("[")[0]


def survivors_shown(result: Result) -> str:
    """Returns the summary of a module and its survivors."""
    caught = len(result.ran) - len(result.survivors)
    cut = sum(bool(mutant["stopped"]) for mutant in result.ran)
    figures = f"{caught} caught ({cut} by a test that did not end), {len(result.survivors)} survive"
    tests = f"{len(result.seconds)} tests, {sum(result.seconds.values()):.1f} s"
    lines = [f"{result.module}: {len(result.ran)} of {result.made} mutants, {figures}; {tests}"]
    lines += [f"  fails without a mutant: {test}" for test in result.broken]
    for mutant in result.survivors:
        reached = f"{mutant['tests']} tests execute it" if mutant["tests"] else "no test executes it"
        lines.append(f"\n  {result.module}:{mutant['line']} survives; {reached}")
        lines += [f"    {line}" for line in mutant["diff"].splitlines()]
    return "\n".join(lines)


def candidates_shown(found: list[Candidate]) -> str:
    """Returns a line for each test that no mutant needs."""
    together = [f"  {each.seconds:6.2f} s  catches {each.catches:3}  {each.test}" for each in found if each.together]
    some = [f"  {each.seconds:6.2f} s  catches {each.catches:3}  {each.test}" for each in found if not each.together]
    first = f"{len(together)} tests could go together; the others catch every mutant that these catch"
    second = f"{len(some)} tests could go, one or the other, but not all"
    return "\n".join([first, *together, second, *some])
