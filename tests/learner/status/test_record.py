"""The record of a run: journal, progress and callbacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from learner.callbacks.base import CheckpointSaved, EpisodesFinished, PolicyUpdated, RunEnded, RunStarted
from learner.callbacks.runner import CallbackRunner
from learner.ingest.session import ActorSession
from learner.observe.view import BehaviorView, RunState, RunView, empty_books
from learner.status import record as record_module
from learner.status.record import MAX_NAMED_ACTORS, RunRecord
from learner.status.run_status import TrainerStats
from tests.e2e.processes import wait_until

VIEW = RunView("run", RunState.WAITING, 1, 5.0, "127.0.0.1:1")


class Listener:
    """Remembers everything it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.on_start = self.on_update = self.on_episode = self.on_checkpoint = self.on_end = self.heard.append


class Watched:
    """A record of a run that a test plays.

    Attributes:
        view: what the run looks like.
        sessions: who is there.
    """

    def __init__(self, folder: Path, *, resumed: bool = False) -> None:
        self.folder = folder
        self.view = VIEW
        self.sessions: list[ActorSession] = []
        self.listener = Listener()
        self.record = RunRecord(
            folder,
            generation=1,
            resumed=resumed,
            seed=3,
            view=lambda: self.view,
            live=lambda: self.sessions,
            callbacks=[CallbackRunner("listener", self.listener)],
        )

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
    """A record that looks often, begun."""
    monkeypatch.setattr(record_module, "LOOK_SECONDS", 0.01)
    made = Watched(tmp_path)
    with made.record:
        made.record.begin("127.0.0.1:5")
        yield made


def session(name: str) -> ActorSession:
    """Returns the session of an actor."""
    return ActorSession(
        session_id=f"id of {name}",
        epoch=1,
        actor_name=name,
        instance_id=name,
        actor_index=0,
        generation=1,
        lease_until=0.0,
        last_seen=0.0,
    )


def test_a_life(watched: Watched) -> None:
    """From start to end, each with what belongs to it."""
    started = watched.waits_for("started")
    assert (started["seed"], started["address"], started["generation"]) == (3, "127.0.0.1:5", 1)
    assert started["versions"]["python"]
    watched.sessions = [session("a"), session("b")]
    watched.waits_for("actor_joined")
    watched.view = replace(VIEW, state=RunState.PAUSED)
    watched.waits_for("paused")
    watched.view = replace(VIEW, state=RunState.TRAINING)
    watched.waits_for("unpaused")
    watched.sessions = watched.sessions[1:]
    assert watched.waits_for("actor_left")["actor"] == "a"
    failed = BehaviorView("Walker", books={**empty_books(), "dropped": {"not_finite_update": 64}})
    watched.view = replace(VIEW, behaviors=(failed,))
    assert watched.waits_for("update_failed")["steps"] == 64
    watched.record.note_saved("Walker", 500, watched.folder / "Walker-500.pt")
    watched.record.note_not_saved("disk full")
    watched.record.end("max_steps")
    assert watched.names() == [
        *("started", "actor_joined", "actor_joined", "paused", "unpaused", "actor_left"),
        *("update_failed", "checkpoint", "checkpoint_failed", "finished"),
    ]
    assert watched.events()[-1]["reason"] == "max_steps"
    versions = json.loads((watched.folder / "versions.json").read_text())
    assert (versions["seed"], versions["generation"]) == (3, 1)
    assert versions["packages"]["numpy"]
    assert json.loads((watched.folder / "progress.json").read_text())["state"] == "ended"


def test_callbacks_hear_of_it(watched: Watched) -> None:
    """Updates and episodes since the turn before, checkpoints, and the end last."""
    record = watched.record
    news = TrainerStats(version=0, episodes=2, mean_return=3.0)
    record.note_turn("Walker", news, [1.0, 5.0])
    record.note_turn("Walker", replace(news, version=1, env_steps_trained=256), [1.0, 5.0])
    record.note_turn("Walker", replace(news, version=1, episodes=9), [4.0, 5.0, 6.0])
    record.note_saved("", 256, watched.folder / "run_state.pt")
    record.end("signal")
    started, *rest = watched.listener.heard
    assert isinstance(started, RunStarted)
    assert (started.run_id, started.folder, started.seed) == (watched.folder.name, watched.folder, 3)
    assert rest == [
        EpisodesFinished("Walker", 2, 2, (1.0, 5.0)),
        PolicyUpdated("Walker", 1, 256, 2, 3.0, 0.0, 0.0),
        EpisodesFinished("Walker", 9, 7, (4.0, 5.0, 6.0)),
        CheckpointSaved("", 256, watched.folder / "run_state.pt"),
        RunEnded("signal", "", watched.folder),
    ]


def test_a_resumed_run_tells_only_of_what_is_new(tmp_path: Path) -> None:
    """The counters of the checkpoint are the beginning; the best return is that of all starts."""
    watched = Watched(tmp_path)
    watched.record.note_turn("Walker", TrainerStats(version=3, episodes=50, mean_return=8.0, is_full=True), [])
    watched.view = replace(VIEW, behaviors=(BehaviorView("Walker"),))
    watched.record.begin("127.0.0.1:5")
    watched.record.end("signal")
    again = Watched(tmp_path, resumed=True)
    again.view = watched.view
    news = TrainerStats(version=3, episodes=50, mean_return=2.0, is_full=True)
    again.record.begin("127.0.0.1:5")
    again.record.note_turn("Walker", news, [1.0])
    again.record.note_turn("Walker", replace(news, version=4), [1.0])
    again.record.end("signal")
    assert [type(event) for event in again.listener.heard] == [RunStarted, PolicyUpdated, RunEnded]
    assert json.loads((tmp_path / "progress.json").read_text())["behaviors"]["Walker"]["best_return"] == 8.0
    assert [name for name in again.names() if name in ("started", "resumed")] == ["started", "resumed"]


def test_many_actors_at_once_are_one_line(watched: Watched) -> None:
    """A crowd that joins and leaves writes as much as one actor."""
    watched.sessions = [session(str(number)) for number in range(MAX_NAMED_ACTORS + 1)]
    assert watched.waits_for("actors_joined")["count"] == MAX_NAMED_ACTORS + 1
    watched.sessions = []
    assert watched.waits_for("actors_left")["actors"] == 0


def test_an_error_nobody_told_of_is_the_end(tmp_path: Path) -> None:
    """An address that is taken, a fault of ours: the journal and the callbacks have it."""
    watched = Watched(tmp_path)

    def start() -> None:
        with watched.record:
            raise RuntimeError("address taken")

    with pytest.raises(RuntimeError):
        start()
    assert [(event["event"], event["error"]) for event in watched.events()] == [("failed", "address taken")]
    assert watched.listener.heard == [RunEnded("error", "address taken", tmp_path)]


def test_a_folder_that_takes_nothing_costs_the_record_alone(watched: Watched, tmp_path: Path) -> None:
    """What cannot be written is told of, and the run ends as it would have ended."""
    watched.waits_for("started")
    wait_until((tmp_path / "versions.json").exists, "the first files")
    (tmp_path / "progress.json").unlink(missing_ok=True)
    (tmp_path / "progress.json").mkdir()
    (tmp_path / "progress.json" / "x").touch()
    with capture_logs() as logs:
        watched.record.end("signal")
    assert [line["event"] for line in logs] == ["progress_not_kept"]


def test_a_view_that_raises_is_told_of(watched: Watched) -> None:
    """The record goes on looking."""
    watched.waits_for("started")
    view, watched.view = watched.view, None  # type: ignore[assignment]
    with capture_logs() as logs:
        wait_until(lambda: logs, "it is told of")
    watched.view = replace(view, state=RunState.PAUSED)
    watched.waits_for("paused")
    assert logs[0]["event"] == "record_failed"
