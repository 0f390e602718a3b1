"""The state of a run as JSON: the document of ``GET /api/status``, from which the page and the operators' commands draw."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from rollcast.limits import MAX_CHUNK_BYTES

from learner.shared.observe.behavior_state import (
    FIELDS,
    ActorNumbers,
    BehaviorState,
    Field,
    LedgerNumbers,
)
from learner.shared.observe.jsonfile import as_json
from learner.shared.observe.view import MAX_NAMED, ActorView, RunView, StatusView

MAX_DETAILS_BYTES: Final = MAX_CHUNK_BYTES
"""Most bytes of the details of all actors together; those of the last actors are left out."""
MAX_DOCUMENT_BYTES: Final = 64 * 2**20
"""Largest document that a reader accepts."""
_OF_RUN: Final = frozenset(
    (
        *("run_id", "state", "generation", "uptime_seconds", "address", "last_error"),
        *("lessons", "lockstep", "quarantined", "gpu"),
    )
)
_OWN_NUMBERS: Final = tuple(each for each in FIELDS if each.name in BehaviorState.__slots__)


def to_json(document: dict[str, Any]) -> bytes:
    """Returns a document as JSON, without NaN and infinities."""
    return json.dumps(as_json(document), allow_nan=False, separators=(",", ":")).encode("ascii")


def status_document(status: StatusView) -> dict[str, Any]:
    """Returns the document of a status. It contains no secrets.

    The details of an actor are null if those of the actors before it fill the room of all.
    """
    run, room = status.run, MAX_DETAILS_BYTES
    actors = []
    for view in status.actors:
        row = _plain(view)
        row["books"]["balanced"] = view.books.balanced
        if row["details"] is not None:
            room -= len(json.dumps(row["details"]))
        actors.append(row if room >= 0 else {**row, "details": None})
    return {
        "run_id": run.run_id,
        "state": run.state.value,
        "generation": run.generation,
        "uptime_seconds": run.uptime_seconds,
        "address": run.address,
        "version": status.version,
        "last_error": run.last_error,
        "verdict": _plain(run.bottleneck),
        "behaviors": [_behavior(view) for view in run.behaviors],
        "lessons": [_plain(lesson) for lesson in run.lessons],
        "lockstep": None if run.lockstep is None else _plain(run.lockstep),
        "gpu": None if run.gpu is None else _plain(run.gpu),
        "actors": actors,
        "quarantined": [_plain(view) for view in run.quarantined[-MAX_NAMED:]],
        "actors_away": len(run.away) + status.more_away,
        "away": [_plain(each) for each in run.away[:MAX_NAMED]],
        "actor_command": run.actor_command,
    }


def _behavior(state: BehaviorState) -> dict[str, Any]:
    shown = {each.status or each.name: state.shown(each) for each in state.fields if each.status is not None}
    labels = {
        each.status or each.name: each.label
        for each in state.fields
        if each.label and each.status is not None and not each.keyed_by
    }
    game = None if state.game is None else {**_plain(state.game), "moves": state.game.moves.split("\n")}
    return {
        "name": state.name,
        **shown,
        "labels": labels,
        "books": {**state.books, "balanced": state.is_balanced},
        "actor_books": state.actor_books,
        "game": game,
        "numbers": state.all_numbers(),
        "own_labels": {each.name: each.label for each in state.own_fields if each.label},
    }


def status_of(document: Mapping[str, Any]) -> StatusView:
    """Returns the status in a document, which may be anyone's. Its behaviors have no game.

    Raises:
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: It is no such document.
    """
    run = {name: document[name] for name in _OF_RUN}
    run |= {"bottleneck": document["verdict"], "away": document["away"], "behaviors": []}
    behaviors = tuple(_state_of(row) for row in document["behaviors"])
    away = document["actors_away"] - len(document["away"])
    actors = _decoded(tuple[ActorView, ...], document["actors"])
    return StatusView(
        replace(_decoded(RunView, run), behaviors=behaviors, actors=len(actors)),
        actors,
        _decoded(str, document["version"]),
        more_away=max(0, _decoded(int, away)),
    )


def _plain(value: Any) -> Any:
    """Returns a dataclass as dictionaries; those of the views hold plain values and are not copied."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in _hints(value.__class__)}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Returns the types of the fields of a class."""
    return get_type_hints(kind)


def _state_of(row: Mapping[str, Any]) -> BehaviorState:
    hints = _hints(BehaviorState)
    own = {each.name: _decoded(hints[each.name], row[each.status or each.name]) for each in _OWN_NUMBERS}
    numbers, labels = _decoded(dict[str, float], row["numbers"]), _decoded(dict[str, str], row["own_labels"])
    return BehaviorState(
        _decoded(str, row["name"]),
        **own,
        numbers={name: value for name, value in numbers.items() if name not in own},
        own_fields=tuple(Field(name, "", None, label=label) for name, label in labels.items()),
        books=_decoded(LedgerNumbers, row["books"]),
        actor_books=_decoded(ActorNumbers, row["actor_books"]),
    )


def _decoded(kind: Any, value: Any) -> Any:
    """Returns a value of JSON as one of a type; null is NaN where a number must be. Unknown keys are left out.

    Raises:
        LookupError, TypeError, ValueError: It is none.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        (found,) = (part for part in parts if part is not types.NoneType)
        return None if value is None else _decoded(found, value)
    if origin is tuple:
        return tuple(_decoded(parts[0], each) for each in _require(list, value))
    if origin is dict:
        return {key: _decoded(parts[1], each) for key, each in _require(dict, value).items()}
    if dataclasses.is_dataclass(kind) or hasattr(kind, "__total__"):
        hints, given = _hints(kind), _require(dict, value)
        return kind(**{name: _decoded(hint, given[name]) for name, hint in hints.items() if name in given})
    if issubclass(kind, enum.Enum):
        return kind(value)
    return _require(kind, value) if kind is not float else _real(value)


def _real(value: Any) -> float:
    if value is None:
        return math.nan
    return float(value) if type(value) is int else float(_require(float, value))


def _require(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a value is no {kind.__name__}")
    return value
