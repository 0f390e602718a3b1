"""Draws the state of a run, and its results, as lines: for the panel, for ``rollcast status`` and for the end of a run.

A line is made of parts, each a text with a style of rich; `render_status` and `print_summary` leave the styles out. Text
of other machines becomes printable where a line is made, so a terminal obeys none of it.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import structlog
from rollcast.text import MAX_ERROR_CHARS, printable

from learner.shared.observe import text
from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.summary import BehaviorSummary, Summary
from learner.shared.observe.view import (
    MAX_NAMED,
    ActorDetails,
    ActorView,
    GpuUse,
    LockstepView,
    RunState,
    RunView,
    StatusView,
    TroubleView,
)

log = structlog.get_logger(__name__)

Part: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[Part, ...]

FULL_QUEUE: Final = 0.95
"""From this share on the queue is shown as full: the trainer is the bottleneck."""
SHOWN_TROUBLES: Final = 3
_LABEL_CHARS: Final = 12
_NAME_CHARS: Final = 40
_STATE_STYLES: Final = {
    RunState.WAITING: "yellow",
    RunState.TRAINING: "green",
    RunState.PAUSED: "yellow",
    RunState.DRAINING: "cyan",
    RunState.FAILED: "bold red",
}


def _line(*parts: Part) -> Line:
    """Returns a line whose parts have no control characters."""
    return tuple((printable(said), style) for said, style in parts)


def _row(label: str, *parts: Part, style: str = "dim") -> Line:
    """Returns a line that begins with a label."""
    return _line((label.ljust(_LABEL_CHARS), style), *parts)


def plain(line: Line) -> str:
    """Returns a line without styles."""
    return printable("".join(said for said, _ in line).rstrip(), MAX_ERROR_CHARS)


def render_status(status: StatusView, page: str = "") -> str:
    """Returns the state as text: the run, what limits it, a block for each behavior, a table of the actors.

    Args:
        status: State of the run.
        page: URL of the status page; empty if unknown.
    """
    run = replace(status.run, page=page)
    blocks = (line for row in run.behaviors for line in behavior_lines(row))
    lines = [*head_lines(run), *blocks, *_actor_lines(status), *error_lines(run)]
    return "\n".join(map(plain, lines))


def head_lines(run: RunView) -> list[Line]:
    """Returns the lines about the run as a whole: its state, page and bottleneck, failing actors, lessons, lock-step."""
    actors = f"{run.actors} actor{'' if run.actors == 1 else 's'}"
    lines = [
        _line(
            ("run ", "bold"),
            (run.run_id, "bold cyan"),
            (f", generation {run.generation}: ", ""),
            (run.state.value, _STATE_STYLES[run.state]),
            (f", up {text.duration(run.uptime_seconds)}, ", ""),
            (actors, "" if run.actors else "yellow"),
            (f" at {run.address}" if run.address else "", ""),
        )
    ]
    if run.page:
        lines.append(_row("page", (run.page, "")))
    lines += _trouble_lines(run)
    verdict = run.bottleneck
    shares = {"learner": verdict.learner_busy, "actors": verdict.actor_busy, "network": verdict.network_share}
    if verdict.name in shares:
        said = [(f"{name} {share:.0%}   ", "bold" if name == verdict.name else "") for name, share in shares.items()]
        lines.append(_row("bottleneck", *said, (verdict.text, "dim")))
    elif verdict.text:
        lines.append(_row("bottleneck", (verdict.text, "dim")))
    if run.gpu is not None:
        lines.append(_gpu_line(run.gpu))
    lessons = [each for each in run.lessons if each.lessons > 1]
    if lessons:
        said = [(f"{each.parameter} {each.number + 1}/{each.lessons} {each.name}   ", "") for each in lessons]
        lines.append(_row("lessons", *said))
    if run.lockstep is not None:
        lines.append(_lockstep_line(run.lockstep))
    return lines


def _trouble_lines(run: RunView) -> list[Line]:
    """Returns a line for each of the first actors with a problem, and one for the others."""
    lines = [_trouble_line(each) for each in run.troubles[:SHOWN_TROUBLES]]
    if run.troubled > SHOWN_TROUBLES:
        more = f"and {run.troubled - SHOWN_TROUBLES:,} more actors"
        lines.append(_row("", (more, "yellow"), ("; rollcast status shows them", "dim")))
    return lines


def _trouble_line(trouble: TroubleView) -> Line:
    failures = f"  {trouble.failures:,} failure{'' if trouble.failures == 1 else 's'}" if trouble.failures else ""
    given_up = f"  {trouble.given_up_steps:,} steps given up" if trouble.given_up_steps else ""
    said = (printable(trouble.actor, _NAME_CHARS), "bold"), (f"{failures}{given_up}  ", ""), (trouble.error, "dim")
    return _row("failing", *said, style="yellow")


def _gpu_line(gpu: GpuUse) -> Line:
    busy = "" if gpu.busy is None else f"{gpu.busy:.0%} busy   "
    memory = f"{text.size(gpu.reserved)} of {text.size(gpu.total)} reserved, {text.size(gpu.allocated)} in tensors"
    return _row("gpu", (busy, ""), (memory, "dim"))


def _lockstep_line(lockstep: LockstepView) -> Line:
    spoiled = (f"NOT REPRODUCIBLE: {lockstep.reason}", "yellow")
    return _row(
        "lock-step",
        ("reproducible", "green") if lockstep.is_reproducible else spoiled,
        (f"   {lockstep.joined} of {lockstep.actors} actors, round {lockstep.round:,} done, ", "dim"),
        (f"{lockstep.quota_steps:,} steps per agent, ", "dim"),
        (f"a restart continues after round {lockstep.checkpoint_round:,}", "dim"),
    )


def error_lines(run: RunView) -> list[Line]:
    """Returns the last error of the run, if any."""
    return [_row("last error", (run.last_error, ""), style="red")] if run.last_error else []


def behavior_lines(row: BehaviorState, bar: Line = (), trail: str = "") -> list[Line]:
    """Returns the block of a behavior.

    Args:
        row: The behavior.
        bar: Its progress as a bar; empty for none.
        trail: Its past returns as characters; empty for none.
    """
    steps = (
        *bar,
        (f"{row.env_steps_trained:,}", ""),
        (f" / {row.max_steps:,}", "dim"),
        (f"   {text.speed(row.steps_per_second)}/s", ""),
        (_time_left(row), "dim"),
        (f"   {row.env_steps_taken:,} taken", "dim"),
    )
    policy = [(f"version {row.version:,}   ", "")]
    for each in row.fields:
        value = row.value(each)
        if each.label and value is not None:
            count = int(value) if each.is_whole and math.isfinite(value) else value
            policy += [(f"{each.label} ", "dim"), (f"{text.figure(count)}   ", _warning(value, each.warn_above))]
    books = row.books
    dropped, lost = sum(books["dropped"].values()), sum(books["lost"].values())
    queue = (
        (f"{row.queue_fill:.0%}", "yellow" if row.queue_fill >= FULL_QUEUE else ""),
        (f" {text.size(row.queued_bytes)}, {row.queued_steps:,} steps", "dim"),
        ("   dropped ", "dim"),
        (_by_reason(books["dropped"]), "yellow" if dropped else ""),
        ("   lost ", "dim"),
        (_by_reason(books["lost"]), "yellow" if lost else ""),
    )
    equation = (
        f"received {books['received']:,} = trained {books['trained']:,} + dropped {dropped:,} + queued "
        f"{books['queued']:,} + lost {lost:,}; duplicate {books['duplicate']:,}; unknown sessions {books['unknown']:,}"
    )
    return [
        _line((row.name, "bold")),
        _row("  steps", *steps),
        _row("  return", *_returns(row, trail)),
        *_measured(row),
        _row("  policy", *policy),
        _row("  queue", *queue),
        _row("  books", (equation, "dim")),
    ]


def brief_line(row: BehaviorState) -> Line:
    """Returns a behavior in one line, for a low screen."""
    share = row.env_steps_trained / max(row.max_steps, 1)
    return _line(
        (row.name, "bold"),
        (f"   {share:.0%}   {text.speed(row.steps_per_second)}/s   return ", "dim"),
        *_mean(row),
        (f"   version {row.version:,}   queue {row.queue_fill:.0%}", "dim"),
    )


def _warning(value: float, limit: float) -> str:
    return "bold red" if value > limit else ""


def _time_left(row: BehaviorState) -> str:
    left = row.max_steps - row.env_steps_trained
    return f"   {text.duration(left / row.steps_per_second)} left" if left > 0 and row.steps_per_second > 0 else ""


def _mean(row: BehaviorState | BehaviorSummary) -> Line:
    mean, target = row.mean_return_100, row.target_return
    reached = mean is not None and target is not None and mean >= target
    said = (text.number(mean), "bold green" if reached else "bold")
    return (said,) if target is None else (said, (f" of {text.number(target)}", "dim"))


def _returns(row: BehaviorState | BehaviorSummary, trail: str = "") -> Line:
    return *_mean(row), (f"   {trail}" if trail else "", "cyan"), (f"   {row.episodes:,} episodes", "")


def _measured(row: BehaviorState) -> list[Line]:
    """Returns the result of the last evaluation and the best checkpoint, if any."""
    result, best = (row.numbers.get(name) for name in ("evaluation_return_mean", "best_return"))
    said = [] if result is None else [f"evaluation {text.number(result)}"]
    if best is not None:
        alone = " (unconfirmed: measured by actors of one principal)" if row.numbers.get("best_principals") == 1 else ""
        said.append(f"best checkpoint {text.number(best)} at step {row.numbers.get('best_step', 0):,.0f}{alone}")
    return [_row("  measured", ("   ".join(said), ""))] if said else []


_HEADER: Final = ("actor", "name", "link", "seen", "steps/s", "lag", "credit", "waits", "round trip")
_LEFT: Final = frozenset({"name", "link", "waits"})
_INDENT: Final = " " * 7


def _actor_lines(status: StatusView) -> list[Line]:
    """Returns a table with a row for each actor, each row followed by the actor's own counts; actors away and shut out."""
    run, lines = status.run, list[str]()
    names = [row.name for row in run.behaviors]
    table = text.aligned([_HEADER, *(_cells(actor) for actor in status.actors)], _LEFT)
    for actor, row in zip(status.actors, table[1:], strict=True):
        details = actor.details or ActorDetails()
        lines += [row, *_environment_lines(details), *_books_lines(details, names)]
    lines = [table[0], *lines] if status.actors else ["no actor is connected"]
    lines += [
        f"actor {printable(actor.name, _NAME_CHARS)} away for {text.duration(actor.seconds)}, may return to its session"
        for actor in run.away[:MAX_NAMED]
    ]
    more = max(0, len(run.away) - MAX_NAMED) + status.more_away
    lines += [f"{more} more away; they may return to their sessions"] if more else []
    for shut in run.quarantined[:MAX_NAMED]:
        whose = f" of {printable(shut.principal, 80)}" if shut.principal else ""
        lines.append(
            f"shut out: {printable(shut.name, 80)}{whose} for {text.duration(shut.seconds_left)} more, after faults of "
            f"form; the last: {printable(shut.fault)}"
        )
    return [((line, ""),) for line in lines]


def _cells(actor: ActorView) -> tuple[str, ...]:
    waits = "-"
    if actor.wait_share is not None:
        waits = " ".join(part for part in (f"{actor.wait_share:.0%}", printable(actor.waits_for)) if part)
    return (
        str(actor.index),
        printable(actor.name, _NAME_CHARS),
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
        lines.append(f"{_INDENT}{printable(state.hanging)} for {state.hanging_seconds:.0f} s")
    if state.failures:
        times = "once" if state.failures == 1 else f"{state.failures} times"
        ago = text.duration(details.failed_seconds or 0.0)
        lines.append(f"{_INDENT}environments failed {times}, most recently {ago} ago: {printable(state.error)}")
    return lines


def _books_lines(details: ActorDetails, names: Sequence[str]) -> list[str]:
    """Returns for each behavior the version that acts and the actor's own counts."""
    policies = {each.behavior_index: each for each in details.policies}
    reports = {each.behavior_index: each for each in details.reports}
    lines = []
    for index in sorted(policies.keys() | reports.keys()):
        name = printable(names[index]) if index < len(names) else str(index)
        policy, row = policies.get(index), reports.get(index)
        line = f"{_INDENT}{name}, last report: version {'none yet' if policy is None else policy.version}"
        if row is not None:
            line += (
                f", produced {row.produced:,} = acked {row.acked:,} + unacked {row.unacked:,} + open {row.open:,} + "
                f"spooled {row.spooled:,} + discarded {_by_reason(row.discarded)} + dropped {_by_reason(row.dropped)}"
            )
        lines.append(line)
        if policy is not None and policy.error:
            lines.append(f"{_INDENT}its newest policy cannot be used: {printable(policy.error)}")
    return lines


_MEANINGS: Final = {"not_training": ": left over at the end of training"}
"""What is said of reasons that look like a loss in the middle of a run."""


def _by_reason(counts: Mapping[str, int]) -> str:
    """Returns the sum of counts, and each reason in brackets, the largest first."""
    told = sorted(((steps, reason) for reason, steps in counts.items() if steps), reverse=True)
    reasons = ", ".join(f"{printable(reason)} {steps:,}{_MEANINGS.get(reason, '')}" for steps, reason in told)
    return f"{sum(counts.values()):,}{f' ({reasons})' if reasons else ''}"


_ENDS: Final = {
    "target_return": "target_return is reached",
    "target_rating": "target_rating is reached",
    "max_steps": "max_steps is reached",
    "max_wall_seconds": "max_wall_seconds are over",
    "signal": "it was asked to stop, by Ctrl-C or the process that started it",
    "operator": "an operator drained it",
    "actors_ended": "its actors have ended",
    "trainer_failed": "its trainers failed",
}
"""Reasons of the end in words."""
_STOPPED: Final = frozenset({"signal", "operator", "actors_ended"})
"""Reasons after which the run can go further."""


def print_summary(summary: Summary, file: Path | None = None) -> None:
    """Prints the main numbers of a run that has ended to standard output. A closed output is no error.

    Args:
        summary: Summary of the run.
        file: File with every number, which the last line names; None for none.
    """
    try:
        sys.stdout.write(render_summary(summary, file) + "\n")
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        log.debug("summary_not_shown", reason=str(error))


def render_summary(summary: Summary, file: Path | None = None) -> str:
    """Returns the reason of the end, a block for each behavior, and the name of the file."""
    lines = [*map(plain, _summary_lines(summary)), *([] if file is None else [f"every number: {file}"])]
    return "\n".join(printable(line, MAX_ERROR_CHARS) for line in lines)


def _summary_lines(summary: Summary) -> Iterator[Line]:
    is_stopped = summary.stop_reason in _STOPPED and summary.behaviors
    more = "; to continue it, add --resume to the same command" if is_stopped else ""
    reason = _ENDS.get(summary.stop_reason, summary.stop_reason)
    yield _line(
        (f"run {printable(summary.run_id, 80)}, generation {summary.generation}, ended: {reason}{more}", "bold")
    )
    if not summary.behaviors:
        yield _line(("no actor declared a behavior" if summary.actors_opened else "no actor connected", ""))
    for name, row in summary.behaviors.items():
        yield _line((name, "bold"))
        speed = f"{text.speed(row.env_steps_per_second)}/s"
        yield _row("  steps", (f"{row.env_steps_trained:,} trained in {_seconds(row.wall_seconds)}   {speed}", ""))
        yield from (_row(f"  {fate}", (count, "")) for fate, count in _untrained(row).items() if count != "0")
        yield _row("  return", *_returns(row))
        if row.seconds_to_target is not None and row.env_steps_to_target is not None:
            reached = f"reached after {_seconds(row.seconds_to_target)}, {row.env_steps_to_target:,} steps"
            yield _row("  target", (reached, ""))
        if row.onnx_path is not None:
            yield _row("  model", (row.onnx_path, ""))


def _untrained(row: BehaviorSummary) -> dict[str, str]:
    """Returns the steps that were taken and not trained, with reasons."""
    ledger, actors = row.ledger, row.actor_books
    return {
        "dropped": _by_reason(ledger["dropped"]),
        "lost": _by_reason(ledger["lost"]),
        "queued": f"{ledger['queued']:,}",
        "given up": _by_reason(Counter(actors["discarded"]) + Counter(actors["dropped"])),
        "at actors": f"{actors['outstanding']:,}",
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else text.duration(seconds)
