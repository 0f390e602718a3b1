"""Formats the state of a run for operators: as text, or as JSON for scripts."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, TextIO

from rollcast.text import MAX_ERROR_CHARS, printable

from learner.shared.observe import text
from learner.shared.observe.behavior_state import FIELDS, BehaviorState
from learner.shared.observe.view import (
    MAX_NAMED,
    ActorDetails,
    ActorView,
    EnvironmentView,
    LessonView,
    LockstepView,
    PolicyView,
    QuarantineView,
    ReportView,
    StatusView,
)
from learner.start.list_runs import age

_HEADER = ("actor", "name", "link", "seen", "steps/s", "lag", "credit", "waits", "round trip")
_MEAN_EPISODES: Final = 100
_LEFT = frozenset({"name", "link", "waits"})
_MAX_TEXT_CHARS: Final = 512
_WHOLE: Final = (
    "version",
    "env_steps_trained",
    "max_steps",
    "env_steps_taken",
    "episodes",
    "queued_bytes",
    "best_step",
)
_REAL: Final = {
    **{name: name for name in ("mean_return_100", "mean_lag", "log_prob_error_max")},
    **{name: name for name in ("evaluation_return_mean", "best_return")},
    "env_steps_per_second": "steps_per_second",
}
"""Numbers of a behavior that the JSON has beside ``numbers``, the real ones by key."""


def status_document(status: StatusView, indent: int | None = 2) -> str:
    """Returns the state as JSON. Whole numbers that may be larger than 32 bits are text, so that each reader keeps them."""
    run, verdict = status.run, status.run.bottleneck
    document = {
        "run_id": run.run_id,
        "generation": str(run.generation),
        "state": f"RUN_STATE_{run.state.name}",
        "uptime_seconds": run.uptime_seconds,
        "behaviors": [_behavior_row(each) for each in run.behaviors],
        "actors": [_actor_row(each) for each in status.actors],
        "last_error": run.last_error[:_MAX_TEXT_CHARS],
        "server_version": status.version,
        "verdict": {
            "bottleneck": f"BOTTLENECK_{'UNSPECIFIED' if verdict.name == 'none' else verdict.name.upper()}",
            "text": verdict.text,
            "learner_busy_ratio": verdict.learner_busy,
            "actor_busy_ratio": verdict.actor_busy,
            "network_ratio": verdict.network_share,
        },
        "lessons": [{**asdict(each), "name": each.name[:_MAX_TEXT_CHARS]} for each in run.lessons],
        "quarantined": [_quarantined_row(each) for each in run.quarantined],
        "actors_away": str(len(run.away) + status.more_away),
        "away": [
            {"actor_name": each.name, "actor_index": each.index, "away_ms": _milliseconds(each.seconds)}
            for each in run.away
        ],
    }
    if run.lockstep is not None:
        row = _with_text(run.lockstep, "round", "checkpoint_round", "quota_steps")
        del row["left_out"]
        row |= {"reproducible": run.lockstep.is_reproducible, "reason": run.lockstep.reason[:_MAX_TEXT_CHARS]}
        document["lockstep"] = row
    return json.dumps(document, indent=indent)


def _behavior_row(state: BehaviorState) -> dict[str, Any]:
    books, numbers = dict[str, Any](state.books), state.all_numbers()
    return {
        "behavior": state.name,
        **{name: str(int(numbers[name])) if math.isfinite(numbers[name]) else "0" for name in _WHOLE},
        **{key: _finite(numbers[name]) for key, name in _REAL.items() if name in numbers},
        "books": {
            **{name: str(books[name]) for name in ("received", "trained", "queued", "duplicate")},
            "unknown_sessions": str(books["unknown"]),
            **{name: _counts(books[name]) for name in ("dropped", "lost")},
        },
        "numbers": {name: _finite(value) for name, value in numbers.items()},
        "labels": {each.name: each.label for each in state.own_fields if each.label},
    }


def _actor_row(actor: ActorView) -> dict[str, Any]:
    details = actor.details or ActorDetails()
    row: dict[str, Any] = {
        "actor_name": actor.name,
        "actor_index": actor.index,
        "session_id": actor.session_id,
        "connected": actor.connected,
        "last_seen_ms": _milliseconds(actor.last_seen_seconds),
        "books": [_report_row(each) for each in details.reports],
        "policies": [_with_text(each, "generation", "version") for each in details.policies],
        "env_steps_per_second": actor.steps_per_second,
        "credit_steps": str(actor.credit_steps),
        "waits_for": actor.waits_for,
    }
    known = {
        "wait_ratio": actor.wait_share,
        "round_trip_seconds": actor.round_trip_seconds,
        "lag_versions": None if actor.lag is None else str(actor.lag),
        "environment_failed_seconds": details.failed_seconds,
        "environments": None if details.environments is None else _with_text(details.environments, "failures"),
    }
    return row | {name: value for name, value in known.items() if value is not None}


def _report_row(report: ReportView) -> dict[str, Any]:
    steps = ("produced", "open", "unacked", "acked", "ghost", "spooled")
    return {
        "behavior_index": report.behavior_index,
        "agents": report.agents,
        **{f"{name}_steps": str(getattr(report, name)) for name in steps},
        "discarded": _counts(report.discarded),
        "dropped": _counts(report.dropped),
    }


def _quarantined_row(view: QuarantineView) -> dict[str, Any]:
    times = {"remaining_ms": _milliseconds(view.seconds_left), "times": view.times}
    return {"actor_name": view.name, "principal": view.principal, **times, "last_fault": view.fault}


def _with_text(view: LockstepView | PolicyView | EnvironmentView, *names: str) -> dict[str, Any]:
    """Returns a view as a row, some of whose numbers are text."""
    return asdict(view) | {name: str(getattr(view, name)) for name in names}


def _counts(counts: Mapping[str, int]) -> list[dict[str, str]]:
    return [{"reason": reason, "steps": str(steps)} for reason, steps in sorted(counts.items())]


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN"


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000) if math.isfinite(seconds) else 0)


def render_status(status: StatusView, page: str = "") -> str:
    """Returns the state as text: the run, what limits it, a block for each behavior, a table of the actors.

    Whatever answers at the address, each line is one line, and a terminal obeys none of it.

    Args:
        status: State of the run.
        page: URL of the status page; empty if unknown.
    """
    run = status.run
    lines = [f"run {run.run_id}, generation {run.generation}: {run.state.value}, up {run.uptime_seconds:.0f} s"]
    if page:
        lines.append(f"page {page}")
    if run.bottleneck.text:
        lines.append(f"bottleneck: {run.bottleneck.text}")
    for row in run.behaviors:
        lines += _behavior_lines(row)
    lines += [_lesson_line(row) for row in run.lessons if row.lessons > 1]
    if run.lockstep is not None:
        lines.append(_lockstep_line(run.lockstep))
    lines += _actor_lines(status)
    lines += [_quarantine_line(row) for row in run.quarantined[:MAX_NAMED]]
    if run.last_error:
        lines.append(f"last error: {printable(run.last_error)}")
    return "\n".join(printable(line, MAX_ERROR_CHARS) for line in lines)


def _lesson_line(row: LessonView) -> str:
    name = printable(row.name, 80)
    return f"{printable(row.parameter, 80)}: lesson {row.number + 1} of {row.lessons}, {name}"


def _lockstep_line(row: LockstepView) -> str:
    said = "reproducible" if row.is_reproducible else f"NOT REPRODUCIBLE: {printable(row.reason)}"
    return (
        f"lock-step: {row.joined} of {row.actors} actors, round {row.round} done, {row.quota_steps} steps per agent, a "
        f"restart continues after round {row.checkpoint_round}; {said}"
    )


def _quarantine_line(row: QuarantineView) -> str:
    whose = f" of {printable(row.principal, 80)}" if row.principal else ""
    return (
        f"shut out: {printable(row.name, 80)}{whose} for {text.duration(row.seconds_left)} more, after faults "
        f"of form; the last: {printable(row.fault)}"
    )


def _behavior_lines(row: BehaviorState) -> list[str]:
    books = row.books
    numbers = _numbers(row)
    return [
        (
            f"{printable(row.name)}: version {row.version}, {row.env_steps_taken} steps taken of "
            f"{row.max_steps}, {row.steps_per_second:.0f} per second"
        ),
        f"  {_mean_return(row)}{_measured(row)}",
        *([f"  {numbers}"] if numbers else []),
        (
            f"  received {books['received']} = trained {books['trained']} + dropped ({_reasons(books['dropped'])}) + queued "
            f"{books['queued']} + lost ({_reasons(books['lost'])}); duplicate {books['duplicate']}; "
            f"unknown sessions {books['unknown']}"
        ),
    ]


def _mean_return(row: BehaviorState) -> str:
    if row.mean_return_100 is None:
        return f"no mean return after {row.episodes} episodes" if row.episodes else "no episode has ended yet"
    over = f"last {_MEAN_EPISODES} of {row.episodes}" if row.episodes > _MEAN_EPISODES else f"{row.episodes}"
    return f"mean return {row.mean_return_100:.1f} of the {over} episode{'s' if row.episodes != 1 else ''}"


def _numbers(row: BehaviorState) -> str:
    """Returns the numbers with a label, in the table of fields or among the trainer's own fields."""
    said = {}
    for each in FIELDS:
        value = row.value(each) if each.label else None
        if value is not None:
            said[each.label] = text.figure(int(value) if each.is_whole and math.isfinite(value) else value)
    own = {each.label: text.number(row.value(each)) for each in row.own_fields if row.value(each) is not None}
    return ", ".join(f"{printable(label)} {value}" for label, value in {**said, **own}.items())


def _measured(row: BehaviorState) -> str:
    """Returns the result of the last evaluation and the best checkpoint, if any."""
    result, best_return = (row.numbers.get(name) for name in ("evaluation_return_mean", "best_return"))
    evaluated = f", {result:.1f} in the last evaluation" if result is not None else ""
    if best_return is None:
        return evaluated
    alone = row.numbers.get("best_principals") == 1
    step = row.numbers.get("best_step", 0)
    return (
        f"{evaluated}, best checkpoint {best_return:.1f} at step {step:.0f}"
        f"{' (unconfirmed: measured by actors of one principal)' if alone else ''}"
    )


def _actor_lines(status: StatusView) -> list[str]:
    """Returns a table with a row for each actor, each row followed by the actor's own counts."""
    run = status.run
    away = [
        f"actor {printable(actor.name, 40)} away for {age(actor.seconds)}, may return to its session"
        for actor in run.away[:MAX_NAMED]
    ]
    more = len(run.away) - len(away) + status.more_away
    if more:
        away.append(f"{more} more away; they may return to their sessions")
    if not status.actors:
        return ["no actor is connected", *away]
    names = [row.name for row in run.behaviors]
    table = text.aligned([_HEADER, *(_cells(actor) for actor in status.actors)], _LEFT)
    lines = table[:1]
    for actor, row in zip(status.actors, table[1:], strict=True):
        details = actor.details or ActorDetails()
        lines += [row, *_environment_lines(details), *_books_lines(details, names)]
    return lines + away


def _cells(actor: ActorView) -> tuple[str, ...]:
    waits = "-"
    if actor.wait_share is not None:
        waits = " ".join(part for part in (f"{actor.wait_share:.0%}", printable(actor.waits_for)) if part)
    return (
        str(actor.index),
        printable(actor.name, 40),
        "connected" if actor.connected else "silent",
        f"{actor.last_seen_seconds:.1f} s",
        text.speed(actor.steps_per_second),
        "-" if actor.lag is None else str(actor.lag),
        f"{actor.credit_steps:,}",
        waits,
        "-" if actor.round_trip_seconds is None else f"{actor.round_trip_seconds * 1000:,.1f} ms",
    )


def _environment_lines(details: ActorDetails) -> list[str]:
    """Returns the problems of the actor's environments: a call that does not return, failures."""
    state, lines = details.environments, list[str]()
    if state is None:
        return lines
    if state.hanging:
        lines.append(f"       {printable(state.hanging)} for {state.hanging_seconds:.0f} s")
    if state.failures:
        times = "once" if state.failures == 1 else f"{state.failures} times"
        ago = text.duration(details.failed_seconds or 0.0)
        lines.append(f"       environments failed {times}, most recently {ago} ago: {printable(state.error)}")
    return lines


def _books_lines(details: ActorDetails, names: list[str]) -> list[str]:
    """Returns for each behavior the version that acts and the actor's own counts."""
    policies = {each.behavior_index: each for each in details.policies}
    reports = {each.behavior_index: each for each in details.reports}
    lines = []
    for index in sorted(policies.keys() | reports.keys()):
        name, policy, row = (
            printable(names[index]) if index < len(names) else str(index),
            policies.get(index),
            reports.get(index),
        )
        line = f"       {name}, last report: version {'none yet' if policy is None else policy.version}"
        if row is not None:
            line += (
                f", produced {row.produced} = acked {row.acked} + unacked {row.unacked} + open {row.open} + spooled "
                f"{row.spooled} + discarded ({_reasons(row.discarded)}) + dropped ({_reasons(row.dropped)})"
            )
        lines.append(line)
        if policy is not None and policy.error:
            lines.append(f"       its newest policy cannot be used: {printable(policy.error)}")
    return lines


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{printable(reason)} {steps}" for reason, steps in sorted(counts.items())) or "none"


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
