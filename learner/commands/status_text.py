"""The state of a run as an operator reads it in a terminal: text, or JSON for scripts."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TextIO

from google.protobuf.json_format import MessageToDict
from rollcast.v1 import control_pb2, session_pb2

from learner.observe import text

_HEADER = ("actor", "name", "link", "seen", "steps/s", "lag", "credit", "waits", "round trip")
_LEFT = frozenset({"name", "link", "waits"})


def status_document(status: control_pb2.StatusResponse, indent: int | None = 2) -> str:
    """Returns the state as JSON; zeros are written, so that every key is there."""
    document = MessageToDict(status, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return json.dumps(document, indent=indent)


def render_status(status: control_pb2.StatusResponse, page: str = "") -> str:
    """Returns the state as text: the run, what holds it back, a block for each behavior, a table of the actors.

    Args:
        status: the state.
        page: where the status page is, if that is known.
    """
    state = control_pb2.RunState.Name(status.state).removeprefix("RUN_STATE_").lower()
    lines = [f"run {status.run_id}, generation {status.generation}: {state}, up {status.uptime_seconds:.0f} s"]
    if page:
        lines.append(f"page {page}")
    if status.verdict.text:
        lines.append(f"bottleneck: {status.verdict.text}")
    for row in status.behaviors:
        lines += _behavior_lines(row)
    lines += [_lesson_line(row) for row in status.lessons if row.lessons > 1]
    if status.HasField("lockstep"):
        lines.append(_lockstep_line(status.lockstep))
    lines += _actor_lines(status)
    if status.last_error:
        lines.append(f"last error: {text.printable(status.last_error)}")
    return "\n".join(lines)


def _lesson_line(row: control_pb2.LessonStatus) -> str:
    name = text.printable(row.name, 80)
    return f"{text.printable(row.parameter, 80)}: lesson {row.number + 1} of {row.lessons}, {name}"


def _lockstep_line(row: control_pb2.LockstepStatus) -> str:
    said = "reproducible" if row.reproducible else f"NOT REPRODUCIBLE: {text.printable(row.reason)}"
    return (
        f"lock-step: {row.joined} of {row.actors} actors, round {row.round} done, {row.quota_steps} steps an agent, a restart "
        f"goes on after round {row.checkpoint_round}; {said}"
    )


def _behavior_lines(row: control_pb2.BehaviorStatus) -> list[str]:
    books = row.books
    mean_return = f"{row.mean_return_100:.1f}" if row.HasField("mean_return_100") else "none yet"
    return [
        (
            f"{text.printable(row.behavior)}: version {row.version}, {row.env_steps_taken} steps taken of "
            f"{row.max_steps}, {row.env_steps_per_second:.0f} a second"
        ),
        f"  mean return {mean_return} of the last 100 of {row.episodes} episodes{_measured(row)}, lag {row.mean_lag:.2f}",
        (
            f"  received {books.received} = trained {books.trained} + dropped ({_reasons(books.dropped)}) + queued "
            f"{books.queued} + lost ({_reasons(books.lost)}); duplicate {books.duplicate}; "
            f"unknown sessions {books.unknown_sessions}"
        ),
    ]


def _measured(row: control_pb2.BehaviorStatus) -> str:
    """Says what the last evaluation came to, and which checkpoint is the best, as far as there are any."""
    evaluated = f", {row.evaluation_return_mean:.1f} evaluated" if row.HasField("evaluation_return_mean") else ""
    best = f", best {row.best_return:.1f} at step {row.best_step}" if row.HasField("best_return") else ""
    return evaluated + best


def _actor_lines(status: control_pb2.StatusResponse) -> list[str]:
    """Returns a table with a row for each actor, each row followed by the actor's own books."""
    if not status.actors:
        return []
    names = [row.behavior for row in status.behaviors]
    table = _aligned([_HEADER, *(_cells(actor) for actor in status.actors)])
    lines = table[:1]
    for actor, row in zip(status.actors, table[1:], strict=True):
        lines += [row, *_books_lines(actor, names)]
    return lines


def _cells(actor: control_pb2.ActorStatus) -> tuple[str, ...]:
    waits = "-"
    if actor.HasField("wait_ratio"):
        waits = " ".join(part for part in (f"{actor.wait_ratio:.0%}", text.printable(actor.waits_for)) if part)
    return (
        str(actor.actor_index),
        text.printable(actor.actor_name, 40),
        "connected" if actor.connected else "away",
        f"{actor.last_seen_ms / 1000:.1f} s",
        text.speed(actor.env_steps_per_second),
        str(actor.lag_versions) if actor.HasField("lag_versions") else "-",
        f"{actor.credit_steps:,}",
        waits,
        f"{actor.round_trip_seconds * 1000:,.1f} ms" if actor.HasField("round_trip_seconds") else "-",
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if title in _LEFT else cell.rjust(width)
            for title, cell, width in zip(_HEADER, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _books_lines(actor: control_pb2.ActorStatus, names: Sequence[str]) -> list[str]:
    """Returns for each behavior the version that acts and the actor's own books."""
    versions = {report.behavior_index: report.version for report in actor.policies}
    errors = {report.behavior_index: report.error for report in actor.policies}
    books = {row.behavior_index: row for row in actor.books}
    lines = []
    for index in sorted(versions.keys() | books.keys()):
        name = text.printable(names[index]) if index < len(names) else str(index)
        line = f"       {name}, as last reported: version {versions.get(index, 'none yet')}"
        if index in books:
            row = books[index]
            line += (
                f", produced {row.produced_steps} = acked {row.acked_steps} + unacked {row.unacked_steps} + open "
                f"{row.open_steps} + discarded ({_reasons(row.discarded)}) + dropped ({_reasons(row.dropped)})"
            )
        lines.append(line)
        if errors.get(index):
            lines.append(f"       its newest policy does not act: {text.printable(errors[index])}")
    return lines


def _reasons(counts: Iterable[session_pb2.ReasonCount]) -> str:
    return ", ".join(f"{text.printable(entry.reason)} {entry.steps}" for entry in counts) or "none"


_CLEAR: Final = "\x1b[2J"
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K\n"
_BELOW: Final = "\x1b[J"


def watch(read: Callable[[], str], seconds: float, output: TextIO, *, separator: str = "\n\n") -> None:
    """Shows a text until Ctrl-C, which ends it in good order. To be called in the main thread.

    Args:
        read: returns the text.
        seconds: between two readings.
        output: where to.
        separator: between two texts where nothing can be drawn over.
    """
    is_terminal = output.isatty()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if is_terminal:
            output.write(_CLEAR)
        while True:
            due = time.monotonic() + seconds
            text = read()
            output.write(_drawn(text) if is_terminal else text + separator)
            output.flush()
            time.sleep(max(0.0, due - time.monotonic()))
    except KeyboardInterrupt:
        if is_terminal:
            output.write("\n")
    finally:
        signal.signal(signal.SIGINT, before)


def _drawn(text: str) -> str:
    """Returns what replaces the picture before; what does not fit the terminal is left out, as a scroll would spoil it."""
    columns, rows = shutil.get_terminal_size()
    lines = [line[at : at + columns] for line in text.splitlines() for at in range(0, max(1, len(line)), columns)]
    return _HOME + "".join(line + _END_OF_LINE for line in lines[: rows - 1]) + _BELOW
