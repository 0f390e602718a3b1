"""Tests the record of a run: journal, progress and callbacks."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from learner.link.to_trainers import Actor, Actors
from learner.shared.observe.behavior_state import BehaviorState, empty_books
from learner.shared.observe.view import RunState, RunView
from learner.training.curriculum.lessons import LessonChange
from learner.training.run import record as record_module
from learner.training.run.record import MAX_NAMED_ACTORS, RunRecord
from learner.training.trainers.parts import Ending
from learner.training.trainers.roster import Roster
from tests.e2e.processes import wait_until
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import begun

VIEW = RunView("run", RunState.WAITING, 1, 5.0, "127.0.0.1:1")


class Watched:
    """A record of a run that the test controls."""

    def __init__(self, folder: Path, *, resumed: bool = False) -> None:
        self.folder = folder
        self.roster = Roster()
        self.roster.view = VIEW
        self._is_ended = False
        self.record = RunRecord(
            folder,
            generation=1,
            resumed=resumed,
            seed=3,
            roster=self.roster,
        )

    def shows(self, *names: str) -> None:
        """Sets the connected actors."""
        self.roster.newest = Actors(
            tuple(Actor(f"id of {name}", name, 0, is_connected=True, agents={}, teams={}) for name in names)
        )

    def end(self, reason: str = "signal") -> None:
        """Ends the run, once."""
        if not self._is_ended:
            self._is_ended = True
            self.record.finish({}, Ending(reason))

    def events(self) -> list[dict[str, Any]]:
        """Returns the journal."""
        path = self.folder / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def names(self) -> list[str]:
        """Returns the names of the events."""
        return [event["event"] for event in self.events()]

    def waits_for(self, name: str) -> dict[str, Any]:
        """Waits until an event is in the journal, and returns it."""
        wait_until(lambda: name in self.names(), name)
        return next(event for event in self.events() if event["event"] == name)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Returns a started record with a short interval."""
    monkeypatch.setattr(record_module, "LOOK_SECONDS", 0.01)
    made = Watched(tmp_path)
    made.record.begin("127.0.0.1:5")
    yield made
    made.end()


def test_a_life(watched: Watched) -> None:
    """Start, updates and end are recorded with their details."""
    started = watched.waits_for("started")
    assert (started["seed"], started["address"], started["generation"]) == (3, "127.0.0.1:5", 1)
    assert started["versions"]["python"]
    watched.shows("a", "b")
    watched.waits_for("actor_joined")
    watched.roster.view = replace(VIEW, state=RunState.PAUSED)
    watched.waits_for("paused")
    watched.roster.view = replace(VIEW, state=RunState.TRAINING)
    watched.waits_for("resumed")
    watched.shows("b")
    assert watched.waits_for("actor_left")["actor"] == "a"
    failed = BehaviorState("Walker", books={**empty_books(), "dropped": {"not_finite_update": 64}})
    watched.roster.view = replace(VIEW, behaviors=(failed,))
    assert watched.waits_for("update_failed")["steps"] == 64
    watched.record.note_saved("Walker", 500, watched.folder / "Walker-500.pt")
    watched.record.note_not_saved("disk full")
    watched.record.note_lesson(LessonChange("mass", 1, 3, "middle", "first", require_reset=False))
    watched.end("max_steps")
    assert watched.names() == [
        *("started", "actor_joined", "actor_joined", "paused", "resumed", "actor_left"),
        *("update_failed", "checkpoint", "checkpoint_failed", "lesson_begun", "finished"),
    ]
    assert watched.events()[-1]["reason"] == "max_steps"
    lesson = watched.events()[-2]
    assert (lesson["parameter"], lesson["lesson"], lesson["number"]) == ("mass", "middle", 2)
    versions = json.loads((watched.folder / "versions.json").read_text())
    assert (versions["seed"], versions["generation"]) == (3, 1)
    assert versions["packages"]["numpy"]
    assert json.loads((watched.folder / "progress.json").read_text())["state"] == "ended"


def test_the_best_return_is_that_of_all_starts(tmp_path: Path) -> None:
    """Only a full mean is a best return, and it never falls."""
    with begun(tmp_path / "results") as (_, _, trainer):
        returns = trainer.reward_buffer
        assert returns.maxlen is not None
        watched = Watched(tmp_path)
        watched.roster.view = replace(VIEW, behaviors=(BehaviorState(NAME),))
        watched.record.begin("127.0.0.1:5")
        returns.append(99.0)
        watched.record.after_turn({NAME: trainer})
        for value in (8.0, 2.0):
            returns.extend([value] * returns.maxlen)
            watched.record.after_turn({NAME: trainer})
        watched.end()
        again = Watched(tmp_path, resumed=True)
        again.roster.view = watched.roster.view
        again.record.begin("127.0.0.1:5")
        again.record.after_turn({NAME: trainer})
        again.end()
    assert json.loads((tmp_path / "progress.json").read_text())["behaviors"][NAME]["best_return"] == 8.0
    assert [event["resumed"] for event in again.events() if event["event"] == "started"] == [False, True]


def test_many_actors_at_once_are_one_line(watched: Watched) -> None:
    """Many actors that join or leave together are one line."""
    watched.shows(*(str(number) for number in range(MAX_NAMED_ACTORS + 1)))
    assert watched.waits_for("actors_joined")["count"] == MAX_NAMED_ACTORS + 1
    watched.shows()
    assert watched.waits_for("actors_left")["actors"] == 0


def test_an_error_before_the_start_is_the_end(tmp_path: Path) -> None:
    """An error before the start is in the journal."""
    watched = Watched(tmp_path)
    watched.record.finish({}, Ending("error", RuntimeError("address taken"), has_begun=False, has_settled=False))
    assert [(event["event"], event["error"]) for event in watched.events()] == [("failed", "address taken")]


def test_versions_that_cannot_be_read_cost_their_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record goes on if no file can be opened when it collects the versions."""

    def fail() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(record_module, "versions", fail)
    monkeypatch.setattr(record_module, "LOOK_SECONDS", 0.01)
    watched = Watched(tmp_path)
    with capture_logs() as logs:
        watched.record.begin("127.0.0.1:5")
        watched.shows("a")
        watched.waits_for("actor_joined")
        watched.end()
    assert [line["event"] for line in logs] == ["versions_not_kept"]


def test_a_folder_that_takes_nothing_costs_the_record_alone(watched: Watched, tmp_path: Path) -> None:
    """A folder that cannot be written costs only the record."""
    watched.waits_for("started")
    wait_until((tmp_path / "versions.json").exists, "the first files")
    (tmp_path / "progress.json").unlink(missing_ok=True)
    (tmp_path / "progress.json").mkdir()
    (tmp_path / "progress.json" / "x").touch()
    with capture_logs() as logs:
        watched.end()
    assert [line["event"] for line in logs] == ["progress_not_kept"]
