"""Tests the document of a run's state: what is written is read, and whatever else is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from learner.shared.observe import document as document_module
from learner.shared.observe.behavior_state import BehaviorState, Field
from learner.shared.observe.document import status_document, status_of, to_json
from learner.shared.observe.view import (
    ActorDetails,
    ActorView,
    AwayView,
    Bottleneck,
    EnvironmentView,
    GpuUse,
    LessonView,
    LockstepView,
    PolicyView,
    QuarantineView,
    ReportView,
    RunState,
    RunView,
    StatusView,
)


def make_status() -> StatusView:
    """Returns a status that has each part once."""
    behavior = BehaviorState(
        "Walker",
        version=2,
        env_steps_taken=11,
        max_steps=50,
        mean_return_100=1.5,
        numbers={"loss": 1.0, "heat": 3.0, "games_won/1": 2.0},
        own_fields=(Field("heat", "How hot it is.", label="warmth"),),
    )
    details = ActorDetails(
        (ReportView(0, produced=12, acked=5, discarded={"reset": 7}),),
        (PolicyView(0, 4, 2, "broken"),),
        EnvironmentView(12, "it failed", "environment 3 has been in step()", 45.0),
        61.0,
    )
    return StatusView(
        RunView(
            "run",
            RunState.PAUSED,
            4,
            61.4,
            "127.0.0.1:1",
            actors=2,
            last_error="the disk is full",
            behaviors=(behavior,),
            bottleneck=Bottleneck("actors", "actor-bound: so it is", 0.1, 0.2, 0.3),
            lessons=(LessonView("mass", 1, 3, "middle"),),
            lockstep=LockstepView(2, 1, 5, 4, 64, "an actor left", {"left": 1}),
            quarantined=(QuarantineView("lab", "rig", 3.5, 2, "a column"),),
            away=(AwayView("far", 7, 9.5),),
            gpu=GpuUse(1, 2, 3, 0.5),
        ),
        (
            ActorView("rig", 3, connected=True, last_seen_seconds=1.5, details=details),
            ActorView("second", 4, True, 0.0),
        ),
        "1.2.3",
    )


def read(status: StatusView) -> Any:
    """Returns a document as a reader gets it."""
    return json.loads(to_json(status_document(status)))


def test_what_is_written_is_read() -> None:
    """A reader has what the learner had; of the behaviors' fields it has names and labels."""
    status, found = make_status(), status_of(read(make_status()))
    (ours,), (theirs,) = status.run.behaviors, found.run.behaviors
    assert replace(found.run, behaviors=()) == replace(status.run, behaviors=())
    assert (found.actors, found.version, found.more_away) == (status.actors, "1.2.3", 0)
    assert replace(theirs, numbers={}, own_fields=()) == replace(ours, numbers={}, own_fields=())
    assert theirs.all_numbers() == ours.all_numbers()
    assert [(each.name, each.label) for each in theirs.own_fields] == [("heat", "warmth")]


def test_a_reader_ignores_what_a_newer_learner_adds() -> None:
    """Unknown keys are left out at each place."""

    def extended(value: Any) -> Any:
        if isinstance(value, list):
            return [extended(each) for each in value]
        return {**{key: extended(each) for key, each in value.items()}, "new": 1} if isinstance(value, dict) else value

    document = read(make_status())
    counts = {"numbers", "own_labels", "discarded", "dropped", "lost", "left_out"}
    found = extended(document)
    for holder in (found["behaviors"][0], found["behaviors"][0]["books"], found["behaviors"][0]["actor_books"]):
        for key in counts & holder.keys():
            holder[key].pop("new")
    found["lockstep"]["left_out"].pop("new")
    for actor in found["actors"]:
        for holder in (actor["books"], *(actor["details"] or {"reports": []})["reports"]):
            for key in counts & holder.keys():
                holder[key].pop("new", None)
    assert status_of(found) == status_of(document)


def _damaged(value: Any) -> list[Any]:
    """Returns a document with each of its values replaced by others."""
    if isinstance(value, dict):
        return [{**value, key: other} for key, each in value.items() for other in _damaged(each)]
    if isinstance(value, list) and value:
        return [[other, *value[1:]] for other in _damaged(value[0])]
    return [None, -1, 1e308, math.nan, "\x1b[2J", [], {}, [[]], {"a": None}, True, 10**400]


def test_no_document_breaks_a_reader() -> None:
    """Whatever stands in the place of a value, the document is read or refused."""
    document, refused = read(make_status()), 0
    for each in _damaged(document):
        try:
            found = status_of(each)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            refused += 1
        else:
            assert isinstance(found, StatusView)
    assert refused > 500


@pytest.mark.parametrize("document", [{}, {"run_id": "run"}, {"behaviors": 1}, {"state": "unheard of"}])
def test_another_document_is_refused(document: dict[str, Any]) -> None:
    """What another server sends is no status."""
    with pytest.raises((LookupError, TypeError, ValueError)):
        status_of({**read(make_status()), **document} if "state" in document else document)


def test_details_beyond_the_room_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last actors lack their details, and all actors are there."""
    monkeypatch.setattr(document_module, "MAX_DETAILS_BYTES", 1000)
    status = make_status()
    many = replace(status, actors=status.actors[:1] * 50)
    detailed = [actor["details"] is not None for actor in read(many)["actors"]]
    assert len(detailed) == 50
    assert detailed == sorted(detailed, reverse=True)
    assert 0 < sum(detailed) < 10


def test_more_actors_are_away_than_are_named() -> None:
    """A long list is cut, and a reader knows how many are missing."""
    away = tuple(AwayView(f"far {number}", number, 1.0) for number in range(250))
    status = make_status()
    found = status_of(read(replace(status, run=replace(status.run, away=away))))
    assert (len(found.run.away), found.more_away) == (100, 150)
    assert read(found)["actors_away"] == 250
