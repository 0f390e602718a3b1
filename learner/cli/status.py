"""The command ``status``: the state of a run as JSON for scripts, and a text that is shown again and again."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.view import ActorDetails, ActorView, StatusView

_MAX_TEXT_CHARS: Final = 512
_SMALL: Final = frozenset(("actor_index", "behavior_index", "agents", "number", "lessons", "times", "actors", "joined"))
"""Whole numbers of the JSON that fit 32 bits; the others are text, so that each reader keeps them."""
_WHOLE: Final = "version env_steps_trained max_steps env_steps_taken episodes queued_bytes best_step"
_REAL: Final = "mean_return_100 mean_lag log_prob_error_max evaluation_return_mean best_return env_steps_per_second=steps_per_second"
"""Numbers of a behavior that the JSON has beside ``numbers``."""
_LEDGER: Final = "received trained queued duplicate unknown_sessions=unknown dropped lost"
_REPORT: Final = (
    "behavior_index agents produced_steps=produced open_steps=open unacked_steps=unacked acked_steps=acked "
    "ghost_steps=ghost spooled_steps=spooled discarded dropped"
)


def status_document(status: StatusView, indent: int | None = 2) -> str:
    """Returns the state as JSON. Whole numbers that may be larger than 32 bits are text, so that each reader keeps them."""
    run, verdict = status.run, status.run.bottleneck
    lockstep = "actors joined round checkpoint_round quota_steps reason reproducible=is_reproducible"
    gpu = "busy_ratio=busy allocated_bytes=allocated reserved_bytes=reserved total_bytes=total"
    shares = "text learner_busy_ratio=learner_busy actor_busy_ratio=actor_busy network_ratio=network_share"
    shut_out = "actor_name=name principal remaining_ms=seconds_left times last_fault=fault"
    document = {
        **_row(run, "run_id generation"),
        "state": f"RUN_STATE_{run.state.name}",
        "uptime_seconds": run.uptime_seconds,
        "behaviors": [_behavior_row(each) for each in run.behaviors],
        "actors": [_actor_row(each) for each in status.actors],
        "last_error": run.last_error[:_MAX_TEXT_CHARS],
        "server_version": status.version,
        "verdict": {
            "bottleneck": f"BOTTLENECK_{'UNSPECIFIED' if verdict.name == 'none' else verdict.name.upper()}",
            **_row(verdict, shares),
        },
        "lessons": [
            _row(each, "parameter number lessons") | {"name": each.name[:_MAX_TEXT_CHARS]} for each in run.lessons
        ],
        "quarantined": [_row(each, shut_out) for each in run.quarantined],
        "actors_away": str(len(run.away) + status.more_away),
        "away": [_row(each, "actor_name=name actor_index=index away_ms=seconds") for each in run.away],
    }
    if run.gpu is not None:
        document["gpu"] = _row(run.gpu, gpu)
    if run.lockstep is not None:
        document["lockstep"] = _row(run.lockstep, lockstep) | {"reason": run.lockstep.reason[:_MAX_TEXT_CHARS]}
    return json.dumps(document, indent=indent)


def _row(view: Any, keys: str) -> dict[str, Any]:
    """Returns values of a view, by their keys in the JSON or ``key=name``; one that is not known is left out."""
    row = {}
    for word in keys.split():
        key, _, name = word.partition("=")
        value = view[name or key] if isinstance(view, Mapping) else getattr(view, name or key)
        if key.endswith("_ms"):
            value = str(round(value * 1000) if math.isfinite(value) else 0)
        elif isinstance(value, Mapping):
            value = [{"reason": reason, "steps": str(steps)} for reason, steps in sorted(value.items())]
        elif type(value) is int and key not in _SMALL:
            value = str(value)
        if value is not None:
            row[key] = value
    return row


def _behavior_row(state: BehaviorState) -> dict[str, Any]:
    known = state.all_numbers()
    whole = {name: int(known[name]) if math.isfinite(known[name]) else 0 for name in _WHOLE.split()}
    numbers = {name: value if math.isfinite(value) else "NaN" for name, value in known.items()}
    return {
        "behavior": state.name,
        **_row(whole, _WHOLE),
        **_row({"best_return": None, "evaluation_return_mean": None, "mean_return_100": None, **numbers}, _REAL),
        "books": _row(state.books, _LEDGER),
        "numbers": numbers,
        "labels": {each.name: each.label for each in state.own_fields if each.label},
    }


def _actor_row(actor: ActorView) -> dict[str, Any]:
    details = actor.details or ActorDetails()
    state = details.environments
    return {
        **_row(actor, "actor_name=name actor_index=index session_id connected last_seen_ms=last_seen_seconds"),
        "books": [_row(each, _REPORT) for each in details.reports],
        "policies": [_row(each, "behavior_index generation version error") for each in details.policies],
        **_row(actor, "env_steps_per_second=steps_per_second credit_steps waits_for"),
        **_row(actor, "wait_ratio=wait_share round_trip_seconds lag_versions=lag"),
        **_row(details, "environment_failed_seconds=failed_seconds"),
        **({} if state is None else {"environments": _row(state, "failures error hanging hanging_seconds")}),
    }


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
