"""Parses the command line of ``rollcast compare``; loads numpy only after the arguments are checked."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from rollcast.parsers import add_old_spelling

from learner.cli.run_flags import needing_extra, whole
from learner.shared.exits import ExitCode

_RETURN = "Environment/Cumulative Reward"
_EPILOG = """\
Runs whose settings differ only in the seed form a group. For each group, the table has the interquartile mean over the
seeds (IQM, the mean of the middle half) with a 95 % bootstrap interval, and the probability that a run of the group
scores more than a run of the first group.

  rollcast compare base-1 base-2 base-3 wide-1 wide-2 wide-3 --svg wide.svg
  rollcast compare results/* --by hyperparameters.learning_rate --at 500000
  rollcast compare results/* --by trainer_type --scale CartPole=22,500 --scale Pendulum=-1200,-150
"""


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names of runs, or paths of run folders")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="folder of all runs (default: results)")
    parser.add_argument(
        "--by", metavar="WHAT", default="settings",
        help="groups: settings (default), name (without its end such as -1 or _s1), run (each alone), "
        "or a setting such as trainer_type",
    )  # fmt: skip
    parser.add_argument("--behavior", metavar="NAME", help="compare only this behavior")
    parser.add_argument(
        "--key", metavar="KEY", default=_RETURN,
        help=f"statistic (default: {_RETURN}); of runs that evaluate themselves: Evaluation/Cumulative Reward",
    )  # fmt: skip
    parser.add_argument(
        "--window", metavar="N", type=whole(1, 1000), default=20,
        help="a point of a curve is the mean of the newest N episodes or more (default: 20)",
    )  # fmt: skip
    add_old_spelling(parser, "--episodes", "--window")
    parser.add_argument(
        "--at", metavar="STEPS", type=_steps, help="compare at this environment step (default: at each run's end)"
    )
    parser.add_argument(
        "--scale", metavar="BEHAVIOR=LOW,HIGH", action="append", default=[], type=_scale,
        help="scores that count as 0 and 1; given for every behavior, adds a table over all behaviors",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, with all curves")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write the curves to FILE")
    parser.add_argument("--x", choices=("steps", "time"), default="steps", help="x-axis of the curves (default: steps)")
    parser.set_defaults(run=_compare)


def _compare(parsed: argparse.Namespace) -> int:
    with needing_extra("compare"):
        from learner.cli.compare_runs import Request, compare  # noqa: PLC0415 - help needs none of it
        from learner.cli.comparison_report import report_json, report_text, write_svg  # noqa: PLC0415 - see above
    report = compare(
        Request(
            results_dir=Path(parsed.results_dir),
            runs=parsed.runs,
            key=parsed.key,
            by=parsed.by,
            behavior=parsed.behavior,
            episodes=parsed.window,
            at_steps=parsed.at,
            scales=dict(parsed.scale),
        )
    )
    if parsed.svg is not None:
        write_svg(report, parsed.x, parsed.svg)
    sys.stdout.write((report_json(report) if parsed.json else report_text(report)) + "\n")
    return ExitCode.OK


def _steps(text: str) -> int:
    """Parses a number of steps, such as 500000 or 5e5."""
    try:
        steps = float(text)
    except ValueError:
        steps = math.nan
    if not 0 <= steps <= 1e15 or steps != int(steps):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of environment steps")
    return int(steps)


def _scale(text: str) -> tuple[str, tuple[float, float]]:
    """Parses ``BEHAVIOR=LOW,HIGH``."""
    name, _, limits = text.rpartition("=")
    try:
        low, high = map(float, limits.split(","))
    except ValueError:
        low = high = math.nan
    if not name or not math.isfinite(high - low) or low == high:
        raise argparse.ArgumentTypeError(f"{text!r} is not BEHAVIOR=LOW,HIGH with two different numbers")
    return name, (low, high)
