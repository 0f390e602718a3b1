"""Runs `python -m tests.nightly.chaos`: a training amid faults for each of three seeds, with a checker of everything that happened."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.processes import ROOT
from tests.nightly.chaos.plan import REFERENCE_SECONDS, draw
from tests.nightly.chaos.run import TARGET, carry_out

SEEDS = 3
SEED_DIGITS = 8


def seeds_of_commit() -> list[int]:
    """Returns the seeds that the hash of the commit gives."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    digits = found.stdout.strip()
    return [int(digits[start : start + SEED_DIGITS], 16) for start in range(0, SEEDS * SEED_DIGITS, SEED_DIGITS)]


def main() -> int:
    """Returns 0 if all went as it should."""
    parser = argparse.ArgumentParser(description="Trains and plays matches amid faults, and checks what happened.")
    parser.add_argument("--seconds", type=float, default=REFERENCE_SECONDS, help="length of each run")
    parser.add_argument("--seeds", type=int, nargs="+", help="by default three, from the hash of the commit")
    parser.add_argument("--folder", type=Path, help="keeps logs and histories; a folder that is removed by default")
    given = parser.parse_args()
    is_good = True
    for seed in given.seeds or seeds_of_commit():
        with tempfile.TemporaryDirectory() as passing:
            folder = (given.folder or Path(passing)) / f"seed-{seed}"
            folder.mkdir(parents=True)
            is_good &= _passes(given.seconds, seed, folder)
    return 0 if is_good else 1


def _passes(seconds: float, seed: int, folder: Path) -> bool:
    plan = draw(seconds, seed)
    print(f"seed {seed}: {plan.faults} faults in {seconds:g} s, {plan.kills_of_learner} kills of the learner")  # noqa: T201
    try:
        report = carry_out(plan, folder, lambda line: print(line, flush=True))  # noqa: T201
    except AssertionError as error:
        print(f"seed {seed} FAILED: {error}")  # noqa: T201
        return False
    print(report.document())  # noqa: T201
    print(f"seed {seed}: best return {report.seen.best_return:.1f} of {TARGET:g}")  # noqa: T201
    return report.seen.best_return >= TARGET


if __name__ == "__main__":
    sys.exit(main())
