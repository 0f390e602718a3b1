"""Formats the state of a run for operators: as text, or as JSON for scripts."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TextIO

from google.protobuf.json_format import MessageToDict
from rollcast.text import MAX_ERROR_CHARS, printable
from rollcast.v1 import control_pb2, session_pb2

from learner.shared.observe import text
from learner.shared.observe.behavior_state import FIELDS
from learner.shared.observe.view import MAX_NAMED
from learner.start.list_runs import age

_HEADER = ("actor", "name", "link", "seen", "steps/s", "lag", "credit", "waits", "round trip")
_MEAN_EPISODES: Final = 100
_LEFT = frozenset({"name", "link", "waits"})


def status_document(status: control_pb2.StatusResponse, indent: int | None = 2) -> str:
    """Returns the state as JSON; includes zeros, so that every key is present."""
    document = MessageToDict(status, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return json.dumps(document, indent=indent)


def render_status(status: control_pb2.StatusResponse, page: str = "") -> str:
    """Returns the state as text: the run, what limits it, a block for each behavior, a table of the actors.

    Whatever answers at the address, each line is one line, and a terminal obeys none of it.

    Args:
        status: State of the run.
        page: URL of the status page; empty if unknown.
    """
    names = control_pb2.RunState.DESCRIPTOR.values_by_number
    state = names[status.state].name if status.state in names else f"unknown state {status.state}"
    state = state.removeprefix("RUN_STATE_").lower()
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
    lines += [_quarantine_line(row) for row in status.quarantined[:MAX_NAMED]]
    if status.last_error:
        lines.append(f"last error: {printable(status.last_error)}")
    return "\n".join(printable(line, MAX_ERROR_CHARS) for line in lines)


def _lesson_line(row: control_pb2.LessonStatus) -> str:
    name = printable(row.name, 80)
    return f"{printable(row.parameter, 80)}: lesson {row.number + 1} of {row.lessons}, {name}"


def _lockstep_line(row: control_pb2.LockstepStatus) -> str:
    said = "reproducible" if row.reproducible else f"NOT REPRODUCIBLE: {printable(row.reason)}"
    return (
        f"lock-step: {row.joined} of {row.actors} actors, round {row.round} done, {row.quota_steps} steps per agent, a "
        f"restart continues after round {row.checkpoint_round}; {said}"
    )


def _quarantine_line(row: control_pb2.QuarantinedActor) -> str:
    whose = f" of {printable(row.principal, 80)}" if row.principal else ""
    return (
        f"shut out: {printable(row.actor_name, 80)}{whose} for {text.duration(row.remaining_ms / 1000)} more, after faults "
        f"of form; the last: {printable(row.last_fault)}"
    )


def _behavior_lines(row: control_pb2.BehaviorStatus) -> list[str]:
    books = row.books
    numbers = _numbers(row)
    return [
        (
            f"{printable(row.behavior)}: version {row.version}, {row.env_steps_taken} steps taken of "
            f"{row.max_steps}, {row.env_steps_per_second:.0f} per second"
        ),
        f"  {_mean_return(row)}{_measured(row)}",
        *([f"  {numbers}"] if numbers else []),
        (
            f"  received {books.received} = trained {books.trained} + dropped ({_reasons(books.dropped)}) + queued "
            f"{books.queued} + lost ({_reasons(books.lost)}); duplicate {books.duplicate}; "
            f"unknown sessions {books.unknown_sessions}"
        ),
    ]


def _mean_return(row: control_pb2.BehaviorStatus) -> str:
    if not row.HasField("mean_return_100"):
        return f"no mean return after {row.episodes} episodes" if row.episodes else "no episode has ended yet"
    over = f"last {_MEAN_EPISODES} of {row.episodes}" if row.episodes > _MEAN_EPISODES else f"{row.episodes}"
    return f"mean return {row.mean_return_100:.1f} of the {over} episode{'s' if row.episodes != 1 else ''}"


def _numbers(row: control_pb2.BehaviorStatus) -> str:
    """Returns the numbers with a label, in the table of fields or among the trainer's own fields."""
    said = {}
    for each in FIELDS:
        value = row.numbers[each.name] if each.label and each.name in row.numbers else None
        if value is not None:
            said[each.label] = text.figure(int(value) if each.is_whole and math.isfinite(value) else value)
    own = {label: text.number(row.numbers[name]) for name, label in sorted(row.labels.items()) if name in row.numbers}
    return ", ".join(f"{printable(label)} {value}" for label, value in {**said, **own}.items())


def _measured(row: control_pb2.BehaviorStatus) -> str:
    """Returns the result of the last evaluation and the best checkpoint, if any."""
    evaluated = (
        f", {row.evaluation_return_mean:.1f} in the last evaluation" if row.HasField("evaluation_return_mean") else ""
    )
    best = f", best checkpoint {row.best_return:.1f} at step {row.best_step}" if row.HasField("best_return") else ""
    alone = (
        " (unconfirmed: measured by actors of one principal)"
        if best and row.numbers.get("best_principals") == 1
        else ""
    )
    return evaluated + best + alone


def _actor_lines(status: control_pb2.StatusResponse) -> list[str]:
    """Returns a table with a row for each actor, each row followed by the actor's own counts."""
    away = [
        f"actor {printable(actor.actor_name, 40)} away for {age(actor.away_ms / 1000)}, may return to its session"
        for actor in status.away[:MAX_NAMED]
    ]
    if status.actors_away > len(away):
        away.append(f"{status.actors_away - len(away)} more away; they may return to their sessions")
    if not status.actors:
        return ["no actor is connected", *away]
    names = [row.behavior for row in status.behaviors]
    table = text.aligned([_HEADER, *(_cells(actor) for actor in status.actors)], _LEFT)
    lines = table[:1]
    for actor, row in zip(status.actors, table[1:], strict=True):
        lines += [row, *_environment_lines(actor), *_books_lines(actor, names)]
    return lines + away


def _cells(actor: control_pb2.ActorStatus) -> tuple[str, ...]:
    waits = "-"
    if actor.HasField("wait_ratio"):
        waits = " ".join(part for part in (f"{actor.wait_ratio:.0%}", printable(actor.waits_for)) if part)
    return (
        str(actor.actor_index),
        printable(actor.actor_name, 40),
        "connected" if actor.connected else "silent",
        f"{actor.last_seen_ms / 1000:.1f} s",
        text.speed(actor.env_steps_per_second),
        str(actor.lag_versions) if actor.HasField("lag_versions") else "-",
        f"{actor.credit_steps:,}",
        waits,
        f"{actor.round_trip_seconds * 1000:,.1f} ms" if actor.HasField("round_trip_seconds") else "-",
    )


def _environment_lines(actor: control_pb2.ActorStatus) -> list[str]:
    """Returns the problems of the actor's environments: a call that does not return, failures."""
    state, lines = actor.environments, []
    if state.hanging:
        lines.append(f"       {printable(state.hanging)} for {state.hanging_seconds:.0f} s")
    if state.failures:
        times = "once" if state.failures == 1 else f"{state.failures} times"
        ago = text.duration(actor.environment_failed_seconds)
        lines.append(f"       environments failed {times}, most recently {ago} ago: {printable(state.error)}")
    return lines


def _books_lines(actor: control_pb2.ActorStatus, names: Sequence[str]) -> list[str]:
    """Returns for each behavior the version that acts and the actor's own counts."""
    versions = {report.behavior_index: report.version for report in actor.policies}
    errors = {report.behavior_index: report.error for report in actor.policies}
    books = {row.behavior_index: row for row in actor.books}
    lines = []
    for index in sorted(versions.keys() | books.keys()):
        name = printable(names[index]) if index < len(names) else str(index)
        line = f"       {name}, last report: version {versions.get(index, 'none yet')}"
        if index in books:
            row = books[index]
            line += (
                f", produced {row.produced_steps} = acked {row.acked_steps} + unacked {row.unacked_steps} + open "
                f"{row.open_steps} + spooled {row.spooled_steps} + discarded ({_reasons(row.discarded)}) + dropped ({_reasons(row.dropped)})"
            )
        lines.append(line)
        if errors.get(index):
            lines.append(f"       its newest policy cannot be used: {printable(errors[index])}")
    return lines


def _reasons(counts: Iterable[session_pb2.ReasonCount]) -> str:
    return ", ".join(f"{printable(entry.reason)} {entry.steps}" for entry in counts) or "none"


_CLEAR: Final = "\x1b[2J"
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K\n"
_BELOW: Final = "\x1b[J"


def watch(read: Callable[[], str], seconds: float, output: TextIO, *, separator: str = "\n\n") -> None:
    """Shows a text repeatedly until Ctrl-C, which ends it normally. Call it in the main thread.

    Args:
        read: Returns the text.
        seconds: Seconds between two readings.
        output: Output stream.
        separator: Text between two texts if the output is not a terminal.
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
    """Returns the text that replaces the previous picture, without lines beyond the terminal, which would scroll it."""
    columns, rows = shutil.get_terminal_size()
    lines = [line[at : at + columns] for line in text.splitlines() for at in range(0, max(1, len(line)), columns)]
    return _HOME + "".join(line + _END_OF_LINE for line in lines[: rows - 1]) + _BELOW
