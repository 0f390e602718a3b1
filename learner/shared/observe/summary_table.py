"""Prints the summary of a run as a table, or as blocks if that is too wide. Importing this module imports rich."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import structlog
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rollcast.text import printable

from learner.shared.observe import text
from learner.shared.observe.summary import BehaviorSummary, Summary

_FOLDS = frozenset({"model", "not trained", "target reached"})
"""Rows that remain readable in a narrow column."""
_MEANINGS = {"not_training": ": left over at the end of training"}
"""What is said of reasons that look like a loss in the middle of a run."""
_NOTHING = frozenset({"-", "0"})
_INDENT_COLUMNS = 2
_REASONS = {
    "target_return": "target_return is reached",
    "target_rating": "target_rating is reached",
    "max_steps": "max_steps is reached",
    "max_wall_seconds": "max_wall_seconds are over",
    "signal": "it was asked to stop, by Ctrl-C or the process that started it",
    "operator": "an operator drained it",
    "actors_ended": "its actors have ended",
    "trainer_failed": "its trainers failed",
}
"""Reasons in words."""
_STOPPED = frozenset({"signal", "operator", "actors_ended"})
"""Reasons after which the run can go further."""

log = structlog.get_logger(__name__)


def print_summary(summary: Summary, console: Console | None = None, file: Path | None = None) -> None:
    """Prints the main numbers to standard output: a row per number, a column per behavior. A closed output is no error.

    If the columns are too narrow for their numbers, it prints a block per behavior.

    Args:
        summary: Summary of the run.
        console: Console to print on; None for standard output.
        file: File with every number, which the last line names; None for none.
    """
    try:
        console = console or Console()
        console.print(summary_table(summary, console.width))
        if file is not None:
            console.print(Text(f"every number: {printable(str(file))}", "dim"), soft_wrap=True)
        sys.stdout.flush()
    except (
        OSError,
        ValueError,
        SystemExit,
    ) as error:  # rich raises SystemExit if standard output is a closed pipe
        log.debug("summary_not_shown", reason=str(error))


def summary_table(summary: Summary, width_columns: int) -> RenderableType:
    """Returns the table of a summary, or its blocks, below a line with the reason of the end.

    Args:
        summary: Summary of the run.
        width_columns: Width of the screen, in columns.
    """
    is_stopped = summary.stop_reason in _STOPPED and summary.behaviors
    more = "; to continue it, add --resume to the same command" if is_stopped else ""
    reason = _REASONS.get(summary.stop_reason, printable(summary.stop_reason))
    title = Text(f"run {printable(summary.run_id)} ended: {reason}{more}", "bold")
    generation = f"generation {summary.generation}"
    columns = {printable(name): _cells(behavior) for name, behavior in summary.behaviors.items()}
    if not _fits(generation, columns, width_columns):
        return Group(title, Text(generation, "dim"), *(_block(name, cells) for name, cells in columns.items()))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(generation, style="dim", no_wrap=True)
    for name in columns:
        table.add_column(Text(name), justify="right", overflow="fold")
    if not columns:
        table.add_row("no actor declared a behavior" if summary.actors_opened else "no actor connected")
        return Group(title, table)
    for label in next(iter(columns.values())):
        table.add_row(label, *(Text(cells[label]) for cells in columns.values()))
    return Group(title, table)


def _fits(generation: str, columns: Mapping[str, Mapping[str, str]], width_columns: int) -> bool:
    """Returns whether every name and number fits on one line; reasons and paths may wrap."""
    if len(columns) < 2:
        return True
    needed = max(map(len, (generation, *{label for cells in columns.values() for label in cells})))
    for name, cells in columns.items():
        words = (word for label, cell in cells.items() if label not in _FOLDS for word in cell.split())
        needed += 2 + max(map(len, (name, *words)))
    return needed <= width_columns - 2


def _block(name: str, cells: Mapping[str, str]) -> RenderableType:
    """Returns the non-empty values of a behavior, below its name."""
    told = ", ".join(f"{label} {cell}" for label, cell in cells.items() if cell not in _NOTHING)
    return Group(Text(name, "bold"), Padding(Text(told, overflow="fold"), (0, 0, 0, _INDENT_COLUMNS)))


def _cells(behavior: BehaviorSummary) -> dict[str, str]:
    """Returns the rows of a behavior; ``summary.json`` has every number."""
    return {
        "steps trained": f"{behavior.env_steps_trained:,}",
        "not trained": _not_trained(behavior),
        "episodes": f"{behavior.episodes:,}",
        "mean return": _of_target(behavior),
        "target reached": _target_reached(behavior),
        "time": _seconds(behavior.wall_seconds),
        "steps per second": text.speed(behavior.env_steps_per_second),
        "model": "-" if behavior.onnx_path is None else printable(behavior.onnx_path),
    }


def _of_target(behavior: BehaviorSummary) -> str:
    target = "" if behavior.target_return is None else f" of {text.number(behavior.target_return)}"
    return f"{text.number(behavior.mean_return_100)}{target}"


def _target_reached(behavior: BehaviorSummary) -> str:
    if behavior.seconds_to_target is None or behavior.env_steps_to_target is None:
        return "-"
    return f"after {_seconds(behavior.seconds_to_target)}, {behavior.env_steps_to_target:,} steps"


def _not_trained(behavior: BehaviorSummary) -> str:
    """Returns the steps that were taken and not trained, with reasons."""
    ledger, actors = behavior.ledger, behavior.actor_books
    fates = {
        "dropped": _by_reason(ledger["dropped"]),
        "lost": _by_reason(ledger["lost"]),
        "queued": f"{ledger['queued']:,}",
        "given up by actors": _by_reason(Counter(actors["discarded"]) + Counter(actors["dropped"])),
        "not received": f"{actors['outstanding']:,}",
    }
    return ", ".join(f"{fate} {count}" for fate, count in fates.items() if count != "0") or "0"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else text.duration(seconds)


def _by_reason(counts: Mapping[str, int]) -> str:
    total = f"{sum(counts.values()):,}"
    reasons = ", ".join(
        f"{printable(reason)} {count:,}{_MEANINGS.get(reason, '')}" for reason, count in counts.items() if count
    )
    return f"{total} ({reasons})" if reasons else total
