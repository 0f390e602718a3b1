"""Runs `python -m tests.nightly.chaos.checker DIR`: checks the histories of a run."""

import argparse
import sys
from pathlib import Path

from tests.nightly.chaos.checker.check import check_folder
from tests.nightly.chaos.checker.violations import report


def main() -> int:
    """Returns 0 if all invariants hold."""
    parser = argparse.ArgumentParser(description="Checks the histories that ROLLCAST_HISTORY=DIR wrote.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-lag", action="append", default=[], metavar="BEHAVIOR=VERSIONS")
    given = parser.parse_args()
    lags = {name: int(versions) for name, _, versions in (text.rpartition("=") for text in given.max_lag)}
    violations = check_folder(given.folder, lags)
    print(report(violations) if violations else "all invariants hold")  # noqa: T201
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
