"""Runs the gates: `python -m tests.tools.gates` or `make gates`."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.bench.processes import REPOSITORY
from tests.tools.command import INTERRUPTED, chosen, end_by_signals, tell
from tests.tools.gates import curves
from tests.tools.gates import results as files
from tests.tools.gates.catalog import GATES
from tests.tools.gates.gate import Gate, Results, Trained, Verdict
from tests.tools.gates.training import commands, record, train

QUICK = "quick"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs gates and returns the exit status: 0 if all were passed."""
    options = _parser().parse_args(arguments)
    end_by_signals()
    if options.list:
        print("\n".join(f"{gate.name:22} {gate.title}: {gate.asks}" for gate in GATES))
        return 0
    if options.table:
        kept = files.keep(options.out, GATES)
        curves.keep(options.out, GATES)
        curves.PAGE.write_text(curves.page(files.read()), encoding="utf-8")
        table = files.table(files.read())
        files.put_between_marks(files.PAGE, table)
        print(table)
        tell(f"taken over from {options.out}: {', '.join(kept) or 'nothing'}; the page has the table")
        return 0
    try:
        gates = [_with_seeds(gate, options.seeds) for gate in _chosen(options.gates)]
    except ValueError as error:
        tell(f"error: {error}")
        return 2
    try:
        return _run_all(gates, options.out)
    except KeyboardInterrupt:
        tell("interrupted")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.gates",
        description="Trains what Rollcast must be able to learn, each with its budget, and reports the results.",
    )
    parser.add_argument(
        "gates",
        nargs="*",
        metavar="GATE",
        help="names, their beginnings, or quick for those that take under 45 minutes together; all but those of hours if none is given",
    )
    parser.add_argument("--list", action="store_true", help="say which gates there are")
    parser.add_argument(
        "--seeds", metavar="N", help="seeds: how many (3), or which (1,4,7); default: those of each gate"
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="train nothing: keep the results in tests/tools/gates, put the table of them into their README.md, draw the curves",
    )
    parser.add_argument(
        "--out", type=Path, default=REPOSITORY / "results" / "gates", metavar="DIR", help="where runs and results go"
    )
    return parser


def _chosen(names: Sequence[str]) -> list[Gate]:
    """Returns the gates of some names or beginnings of names; without names, all that do not ask to be named.

    Raises:
        ValueError: One fits no gate.
    """
    if not names:
        return [gate for gate in GATES if gate.length != "named"]
    others = [name for name in names if name != QUICK]
    found = chosen(GATES, others, "gate") if others else []
    return [gate for gate in GATES if gate in found or (QUICK in names and gate.length == QUICK)]


def _with_seeds(gate: Gate, text: str | None) -> Gate:
    """Returns a gate with the seeds of the command line.

    Raises:
        ValueError: They are no numbers.
    """
    if text is None:
        return gate
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--seeds is {text!r}; give a number of seeds, or seeds as in 1,4,7") from None
    if "," in text:
        return replace(gate, seeds=tuple(numbers))
    if numbers[0] < 1:
        raise ValueError(f"--seeds is {text!r}; at least one is needed")
    return replace(gate, seeds=tuple(range(1, numbers[0] + 1)))


def _run_all(gates: Sequence[Gate], out: Path) -> int:
    began = time.monotonic()
    failed: list[str] = []
    for gate in gates:
        try:
            results = run(gate, out)
            verdict = gate.rule(results)
            print(files.shown(gate.name, gate, results, verdict), flush=True)
            files.write(out, files.document(gate, results, verdict))
        except MeasurementFailed as failure:
            verdict = Verdict(passed=False, text=str(failure))
            print(f"{gate.name}: FAILED: {failure}", flush=True)
        if not verdict.passed:
            failed.append(gate.name)
    tell(f"{len(gates) - len(failed)} of {len(gates)} gates passed, {time.monotonic() - began:.0f} s in all")
    if failed:
        tell(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run(gate: Gate, out: Path) -> Results:
    """Trains the arms of a gate, one after another, each with all seeds.

    Results of an earlier call are used if they were made by the same command at the same commit.

    Raises:
        MeasurementFailed: A run failed.
    """
    results: dict[str, list[Trained]] = {arm.name: [] for arm in gate.arms}
    recordings: dict[tuple[str, int], Path] = {}
    for arm in gate.arms:
        for seed in gate.seeds:
            folder = out / "runs" / f"{gate.name}-{arm.name}-{seed}"
            demonstrations = recordings[arm.demonstrations, seed] if arm.demonstrations else None
            command, file = commands(gate, seed)[arm.name], folder.with_suffix(".json")
            trained = files.kept_run(file, command)
            if trained is None:
                own = arm.trained_by
                trained = train(arm, seed, folder, demonstrations) if own is None else own(arm, seed, folder)
            if arm.recorded_episodes:
                recordings[arm.name, seed] = record(arm, seed, folder)
            files.keep_run(file, command, trained)
            results[arm.name].append(trained)
            tell(
                f"{gate.name} {arm.name} seed {seed}: {trained.stop_reason}, {trained.steps:,} steps, "
                f"{trained.seconds:.0f} s, train {trained.train}, greedy {trained.greedy_mean}"
            )
    return results
