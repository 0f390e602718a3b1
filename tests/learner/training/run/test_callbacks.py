"""Tests the events that callbacks get from a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.training.callbacks.base import (
    CheckpointSaved,
    EpisodesFinished,
    PolicyUpdated,
    RunEnded,
    RunRequests,
    RunStarted,
)
from learner.training.run.training import Callbacks
from learner.training.trainers.parts import Ending
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import begun

HEARD: list[object] = []


class Listener:
    """Records all its events."""

    def __init__(self) -> None:
        HEARD.clear()
        self.on_start = self.on_update = self.on_episode = self.on_checkpoint = self.on_end = HEARD.append


LISTENER = f"{__name__}:Listener"


def started(folder: Path) -> RunStarted:
    """Returns the first event of a run."""
    requests = RunRequests(*[lambda: None] * 3)
    return RunStarted("run", folder, 1, resumed=False, seed=3, address="127.0.0.1:5", requests=requests)


def test_they_hear_of_updates_and_episodes_since_the_turn_before(tmp_path: Path) -> None:
    """Updates and episodes since the last turn arrive in order with checkpoints, and the end last."""
    callbacks = Callbacks([LISTENER], tmp_path, resumed=False)
    with begun(tmp_path / "results") as (_, start, trainer):
        callbacks.tell(started(tmp_path))
        callbacks.after_turn({NAME: trainer})
        start.train(trainer, 1)
        callbacks.after_turn({NAME: trainer})
        callbacks.after_turn({NAME: trainer})
        callbacks.tell(CheckpointSaved("", 256, tmp_path / "run_state.pt"))
        callbacks.finish({NAME: trainer}, Ending("signal"))
        episodes, returns, mean = trainer.episodes, tuple(trainer.reward_buffer), trainer.mean_return()
        updated = PolicyUpdated(NAME, 1, trainer.steps_trained, episodes, mean, trainer.stats().numbers)
    assert isinstance(HEARD[0], RunStarted)
    assert HEARD[1:] == [
        EpisodesFinished(NAME, episodes, episodes, returns),
        updated,
        CheckpointSaved("", 256, tmp_path / "run_state.pt"),
        RunEnded("signal", "", tmp_path),
    ]


def test_a_resumed_run_tells_only_of_what_is_new(tmp_path: Path) -> None:
    """A resumed run has no events of earlier updates."""
    callbacks = Callbacks([LISTENER], tmp_path, resumed=True)
    with begun(tmp_path / "results", 1) as (_, start, trainer):
        callbacks.after_turn({NAME: trainer})
        assert not HEARD
        start.train(trainer, 1)
        callbacks.after_turn({NAME: trainer})
        callbacks.finish({NAME: trainer}, Ending("signal"))
    assert [type(event) for event in HEARD] == [EpisodesFinished, PolicyUpdated, RunEnded]


@pytest.mark.parametrize(
    ("has_begun", "error"), [(False, "address taken"), (True, "RuntimeError: address taken")], ids=["before", "after"]
)
def test_an_error_is_told_with_the_end(tmp_path: Path, has_begun: bool, error: str) -> None:
    """The end event has the error: a user's message alone, another one with its type."""
    callbacks = Callbacks([LISTENER], tmp_path, resumed=False)
    callbacks.finish({}, Ending("error", RuntimeError("address taken"), has_begun=has_begun))
    assert [RunEnded("error", error, tmp_path)] == HEARD
