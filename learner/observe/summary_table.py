"""The summary of a run as a table on the screen. Importing this imports rich."""

from __future__ import annotations

import sys

import structlog
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from learner.observe import text
from learner.observe.summary import BehaviorSummary, Summary

log = structlog.get_logger(__name__)


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """Prints the summary to standard output: a row per number, a column per behavior. Nobody needs to read it."""
    try:
        (console or Console()).print(summary_table(summary))
        sys.stdout.flush()
    except (
        OSError,
        ValueError,
        SystemExit,
    ) as error:  # the last is rich's, where standard output is a pipe's loose end
        log.debug("summary_not_shown", reason=str(error))


def summary_table(summary: Summary) -> RenderableType:
    """Returns the table of a summary below a line that says how the run ended."""
    reason = text.printable(summary.stop_reason)
    title = Text(f"run {text.printable(summary.run_id)} ended: {reason}", "bold")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"generation {summary.generation}", style="dim", no_wrap=True)
    for name in summary.behaviors:
        table.add_column(Text(text.printable(name)), justify="right", overflow="fold")
    columns = [_cells(behavior) for behavior in summary.behaviors.values()]
    if not columns:
        table.add_row("no actor came")
        return Group(title, table)
    for label in columns[0]:
        table.add_row(label, *(Text(column[label]) for column in columns))
    return Group(title, table)


def _cells(behavior: BehaviorSummary) -> dict[str, str]:
    ledger, actors = behavior.ledger, behavior.actor_books
    return {
        "steps taken": f"{behavior.env_steps_taken:,}",
        "steps trained": f"{behavior.env_steps_trained:,}",
        "steps a second": text.speed(behavior.env_steps_per_second),
        "while active": text.speed(behavior.env_steps_per_active_second),
        "time": _seconds(behavior.wall_seconds),
        "active time": _seconds(behavior.active_seconds),
        "target return": text.number(behavior.target_return),
        "time to target": _seconds(behavior.seconds_to_target),
        "steps to target": "-" if behavior.env_steps_to_target is None else f"{behavior.env_steps_to_target:,}",
        "episodes": f"{behavior.episodes:,}",
        "mean return": text.number(behavior.mean_return_100),
        "policy version": f"{behavior.policy_version:,}",
        "actors discarded": _by_reason(actors["discarded"]),
        "actors dropped": _by_reason(actors["dropped"]),
        "left with actors": f"{actors['outstanding']:,}",
        "received": f"{ledger['received']:,}",
        "trained": f"{ledger['trained']:,}",
        "dropped": _by_reason(ledger["dropped"]),
        "queued": f"{ledger['queued']:,}",
        "lost": _by_reason(ledger["lost"]),
        "came twice": f"{ledger['duplicate']:,}",
        "sessions unknown": f"{ledger['unknown']:,}",
        "model": "-" if behavior.onnx_path is None else text.printable(behavior.onnx_path),
    }


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else text.duration(seconds)


def _by_reason(counts: dict[str, int]) -> str:
    total = f"{sum(counts.values()):,}"
    reasons = ", ".join(f"{text.printable(reason)} {count:,}" for reason, count in counts.items() if count)
    return f"{total} ({reasons})" if reasons else total
