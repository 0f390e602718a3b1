"""The commands `rollcast-learner runs` and `rollcast-learner compare`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from learner.common.exits import ExitCode

_RETURN = "Environment/Cumulative Reward"


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Sets up the command `runs`."""
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="where run folders are")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_runs)


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Sets up the command `compare`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names of runs, or paths of run folders")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="where run folders are")
    parser.add_argument("--out", metavar="FILE.png", type=Path, default=Path("compare.png"), help="the picture")
    parser.add_argument("--key", metavar="KEY", default=_RETURN, help=f"the statistic (default: {_RETURN})")
    parser.set_defaults(run=_compare)


def _runs(parsed: argparse.Namespace) -> int:
    from learner.commands.runs.table import runs_text  # noqa: PLC0415 - help needs none of it

    sys.stdout.write(runs_text(Path(parsed.results_dir), as_json=parsed.json) + "\n")
    return ExitCode.OK


def _compare(parsed: argparse.Namespace) -> int:
    from learner.commands.runs.compare import compare  # noqa: PLC0415 - help needs none of it

    path = compare(Path(parsed.results_dir), parsed.runs, parsed.key, parsed.out)
    sys.stdout.write(f"{path}\n")
    return ExitCode.OK
