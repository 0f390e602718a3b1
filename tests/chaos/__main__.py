"""Runs `python -m tests.chaos --seconds 300 --seed 1`: a training during faults."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.plan import draw
from tests.chaos.run import TARGET, carry_out


def main() -> int:
    """Returns 0 if all went as it should."""
    parser = argparse.ArgumentParser(
        description="Trains and plays matches amid faults, and checks the books all the while."
    )
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps the logs and the run; a folder that is removed by default")
    given = parser.parse_args()
    plan = draw(given.seconds, given.seed)
    with tempfile.TemporaryDirectory() as passing:
        folder = given.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            report = carry_out(plan, folder, lambda line: print(line, flush=True))  # noqa: T201
        except AssertionError as error:
            print(f"FAILED: {error}")  # noqa: T201
            return 1
    print(report.document())  # noqa: T201
    return 0 if report.seen.best_return >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
