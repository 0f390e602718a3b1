"""Defines the commands `runs` and `backup`."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from learner.cli.run_flags import count_of, run_folder
from learner.shared.exits import ExitCode


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `runs`."""
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="folder of all runs (default: results)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--remove-older-than", metavar="DAYS", type=_days,
        help="name the runs that no learner has and nobody wrote to for DAYS days; with --yes, remove them",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="remove them")
    parser.set_defaults(run=_runs)


def _runs(parsed: argparse.Namespace) -> int:
    from learner.start.list_runs import runs_text  # noqa: PLC0415 - not for help
    from learner.start.old_runs import old_runs_text  # noqa: PLC0415 - as above

    results_dir = Path(parsed.results_dir)
    if parsed.remove_older_than is None:
        text = runs_text(results_dir, as_json=parsed.json)
    else:
        text = old_runs_text(results_dir, parsed.remove_older_than, is_meant=parsed.yes, as_json=parsed.json)
    sys.stdout.write(text + "\n")
    return ExitCode.OK


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `backup`."""
    parser.add_argument("which", metavar="RUN", help="folder or id of the run")
    parser.add_argument(
        "target", metavar="DIR", type=Path, help="folder of the copies; each has the run's id and the time"
    )
    parser.add_argument("--keep", metavar="N", type=count_of, help="remove all copies of this run but the newest N")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="folder of all runs (default: results)")
    parser.set_defaults(run=_backup)


def _backup(parsed: argparse.Namespace) -> int:
    from learner.start.backup import back_up  # noqa: PLC0415 - as above

    results_dir = Path(parsed.results_dir)
    folder = run_folder(parsed.which, results_dir)
    root, place = results_dir.resolve(), folder.resolve()
    run_id = place.relative_to(root).as_posix() if root in place.parents else place.name
    sys.stdout.write(f"{back_up(folder, parsed.target, run_id=run_id, keep=parsed.keep)}\n")
    return ExitCode.OK


def _days(text: str) -> float:
    """Parses an age; 0 would take each run that has just ended."""
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0.0 < days <= 36500.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days above 0")
    return days
