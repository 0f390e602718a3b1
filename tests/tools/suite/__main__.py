"""Runs the tests of a tier in shards; the tasks `test`, `test-ci` and `nightly` call it.

    python -m tests.tools.suite units -- -q -k ledger
    python -m tests.tools.suite ci --seed 1 --retry
    python -m tests.tools.suite units --costs
    python -m tests.tools.suite total RESULTS PART ...

What follows `--` is for pytest; files, folders and ids of tests there take the place of the tier's files.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tools.suite.outcome import (
    MAX_FLAKY,
    Outcome,
    flaky_lines,
    passed_when_repeated,
    read_results,
    refusal,
    write_result,
)
from tests.tools.suite.running import INTERRUPTED, NOTHING_COLLECTED, command, in_foreground, side_by_side
from tests.tools.suite.shards import read_costs, split, write_costs
from tests.tools.suite.tiers import ROOT, TIERS, files_below, files_of

MAX_WORKERS = 8
_WITH_VALUE = frozenset(
    {"-k", "-m", "-p", "-c", "-o", "-W", "-r", "--ignore", "--deselect", "--maxfail", "--tb", "--basetemp"}
)


def main(words: Sequence[str]) -> int:
    """Runs what the words say, and returns the exit code."""
    own, passed = list(words), []
    if "--" in own:
        at = own.index("--")
        own, passed = own[:at], own[at + 1 :]
    if own[:1] == ["total"]:
        return total(Path(own[1]), own[2:])
    os.environ.pop("SUITE", None)  # not for tests that run tests
    arguments = parser().parse_args(own)
    chosen, options = chosen_tests(passed)
    tests = selected(arguments, chosen)
    if arguments.list:
        print("\n".join(tests))
        return 0
    if not tests:
        print("no file has such tests")
        return NOTHING_COLLECTED
    shards = divided(tests, arguments)
    if arguments.costs:
        options.append("--suite-costs")
    if len(shards) == 1:
        outcome, code = in_foreground(command(TIERS[arguments.tier], *options, *shards[0]))
    else:
        commands = [command(TIERS[arguments.tier], "-p", "no:cacheprovider", *options, *shard) for shard in shards]
        outcome, code = side_by_side(commands, may_be_empty=bool(passed))
    if arguments.costs:
        write_costs(arguments.tier, outcome.costs)
    if arguments.retry and code == 1:
        code = repeat(outcome, arguments.results)
    if arguments.results and code != INTERRUPTED:
        write_result(arguments.results, arguments.tier, outcome)
    if len(shards) > 1 or outcome.flaky:
        print("\n".join([*flaky_lines(outcome.flaky), outcome.closing_line()]), flush=True)
    return code


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the runner's own arguments."""
    made = argparse.ArgumentParser(prog="python -m tests.tools.suite", description=__doc__, allow_abbrev=False)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("tier", choices=TIERS)
    made.add_argument("places", nargs="*", help="files or folders, in place of all that have tests of the tier")
    made.add_argument("--without", nargs="*", default=[], metavar="PLACE", help="files or folders that are left out")
    made.add_argument("--seed", default="", help="shuffles the order of files by this text")
    made.add_argument(
        "--workers", default=os.environ.get("WORKERS") or "auto", help="processes; 0: one, in the foreground"
    )
    made.add_argument("--retry", action="store_true", help="repeat what failed once, alone; what passes then is flaky")
    made.add_argument("--results", type=Path, metavar="FILE", help="append the counts to this file, for `total`")
    made.add_argument("--costs", action="store_true", help="record the processor time of each file")
    made.add_argument("--list", action="store_true", help="print the files and end")
    return made


def chosen_tests(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the files, folders and ids of tests among the arguments of pytest, and the other arguments."""
    chosen: list[str] = []
    options: list[str] = []
    before = ""
    for word in words:
        is_test = before not in _WITH_VALUE and not word.startswith("-") and (ROOT / word.partition("::")[0]).exists()
        (chosen if is_test else options).append(word)
        before = word
    return chosen, options


def selected(arguments: argparse.Namespace, chosen: Sequence[str]) -> list[str]:
    """Returns the files and ids that are run."""
    if chosen:
        ids = [each for each in chosen if "::" in each]
        others = [each for each in chosen if "::" not in each]
        return ids + (files_below(*others) if others else [])
    files = files_of(arguments.tier, files_below(*arguments.places) if arguments.places else None)
    left_out = set(files_below(*arguments.without)) if arguments.without else set()
    return [file for file in files if file not in left_out]


def divided(tests: Sequence[str], arguments: argparse.Namespace) -> list[list[str]]:
    """Returns the tests of each process."""
    # Tests wait a third of their time, for processes most of all.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = cores + 1 if arguments.workers == "auto" else int(arguments.workers)
    if arguments.tier == "smoke":  # they need the whole machine
        wanted = 1
    number = max(1, min(wanted, MAX_WORKERS))
    return split(tests, number, read_costs(arguments.tier), arguments.seed)


def repeat(outcome: Outcome, results: Path | None) -> int:
    """Runs what failed once more, alone; returns 0 if all of it was flaky."""
    already = len(read_results(results)[0].flaky) if results else 0
    reason = refusal(outcome.failures, already)
    if reason:
        print(reason)
        return 1
    print(f"repeating {len(outcome.failures)} that failed", flush=True)
    tests = sorted({each.test for each in outcome.failures})
    again, code = in_foreground(command("", "-p", "no:cacheprovider", *tests))
    flaky = passed_when_repeated(outcome.failures, again, code)
    outcome.forgive(flaky)
    outcome.seconds += again.seconds
    return 1 if outcome.failures else 0


def total(results: Path, parts: Sequence[str]) -> int:
    """Prints one closing line of all parts, and what was flaky; returns 1 if that is too much, or a part is missing."""
    found, there = read_results(results)
    lines = [*flaky_lines(found.flaky), *(f"{part} did not come to an end" for part in parts if part not in there)]
    if found.flaky:
        lines.append(f"{len(found.flaky)} flaky; at most {MAX_FLAKY} are accepted")
    print("\n".join([*lines, found.closing_line()]))
    is_red = found.counts["failed"] or found.counts["error"] or len(found.flaky) > MAX_FLAKY or set(parts) - there
    return 1 if is_red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
