"""Tests SAC in lock-step: the updates of a round, and the replay memory of a state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import ColumnRole

from learner.training.buffers.replay_file import FILE_NAME, OTHER_FILE_NAME
from learner.training.lockstep.round_queue import RoundQueue
from learner.training.trainers import replay
from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.trainers.in_process import Bench
from tests.learner.training.trainers.sac.started import make, saved
from tests.learner.training.trainers.sac.test_trainer import weights
from tests.learner.training.trainers.synthetic import SyntheticActor

PLACE = ("env", "agent", "episode", "first_step")


def role_of(column: str) -> ColumnRole:
    """Returns the role of a chunk's column."""
    if column.startswith("final_obs/"):
        return ColumnRole.FINAL
    return ColumnRole.SEGMENT if column in {*PLACE, "length", "end"} else ColumnRole.STEP


def make_rounds(**hyper: Any) -> tuple[Bench, SACTrainer]:
    """Returns a bench and a trainer in lock-step."""
    return make(service={"lockstep": {}}, hyper={"save_replay_buffer": True, **hyper})


def play(bench: Bench, actor: SyntheticActor, trainer: SACTrainer, rounds: int = 1) -> None:
    """Plays rounds of 20 steps."""
    queue = bench.queue
    assert isinstance(queue, RoundQueue)
    for _ in range(rounds):
        chunk = actor.chunk([10, 7, 3], columns={name: np.arange(3) for name in PLACE})
        chunk.roles.update({name: role_of(name) for name in chunk.columns})
        bench.put(chunk)
        queue.release(["session"])
        trainer.advance()


def test_a_turn_makes_all_updates_that_a_round_owes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn makes all owed updates of a round and publishes one version."""
    monkeypatch.setattr(replay, "PUBLISH_SECONDS", 0.0)
    bench, trainer = make_rounds(steps_per_update=0.1, max_update_debt=0)
    actor = SyntheticActor(bench)
    play(bench, actor, trainer, 2)
    assert trainer.version == trainer.optimizer_steps == 400
    assert [progress.version for progress in bench.published.progress] == [0, 200, 400]
    assert (trainer.untrained_steps, trainer.ring.steps) == (0, 40)


def test_a_round_that_owes_nothing_is_a_version() -> None:
    """A round without owed updates publishes a version with the same weights."""
    bench, trainer = make_rounds(buffer_init_steps=40)
    before = {name: value.clone() for name, value in bench.published.state.items()}
    play(bench, SyntheticActor(bench), trainer, 2)
    assert (trainer.version, trainer.optimizer_steps) == (2, 0)
    assert [progress.version for progress in bench.published.progress] == [0, 1, 2]
    assert all(torch.equal(value, before[name]) for name, value in bench.published.state.items())


def test_a_state_goes_with_the_memory_of_its_moment(tmp_path: Path) -> None:
    """A state loads the replay memory of its own moment after a kill."""
    bench, trainer = make_rounds()
    actor = SyntheticActor(bench)
    states = []
    for _ in range(3):
        play(bench, actor, trainer)
        trainer.save_experience(tmp_path)
        states.append((saved(trainer), trainer.memory.steps))
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME, OTHER_FILE_NAME}
    for state, steps in states[1:]:
        again = SACTrainer(bench.context(seed=5))
        again.load_state_dict(state)
        assert not again.load_experience(tmp_path)
        assert again.memory.steps == steps
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    again.start()
    play(bench, actor, again)
    again.save_experience(tmp_path)
    assert [path.name for path, data in files.items() if path.read_bytes() == data] == [FILE_NAME], "the third one's"
    oldest = SACTrainer(bench.context(seed=5))
    oldest.load_state_dict(states[0][0])
    assert "not at step 20" in oldest.load_experience(tmp_path)
    assert oldest.memory.steps == 0


def test_a_state_that_nothing_was_trained_for_misses_nothing(tmp_path: Path) -> None:
    """The first state needs no replay memory, and later ones do."""
    bench, trainer = make_rounds()
    assert not trainer.load_experience(tmp_path)
    play(bench, SyntheticActor(bench), trainer)
    assert "does not exist" in trainer.load_experience(tmp_path)
    bench, trainer = make_rounds(save_replay_buffer=False)
    assert not trainer.load_experience(tmp_path)
    play(bench, SyntheticActor(bench), trainer)
    assert trainer.load_experience(tmp_path) == "hyperparameters.save_replay_buffer is false"


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """A resumed run continues bit for bit, also during the first steps and after evictions."""
    for rounds in (1, 12):
        results = []
        for interrupted in (False, True):
            bench, trainer = make_rounds(buffer_init_steps=50, buffer_size=45, batch_size=8)
            actor = SyntheticActor(bench)
            play(bench, actor, trainer, rounds)
            if interrupted:
                state = saved(trainer)
                trainer.save_experience(tmp_path)
                trainer = SACTrainer(bench.context(seed=99))
                trainer.load_state_dict(state)
                assert not trainer.load_experience(tmp_path)
                trainer.start()
            play(bench, actor, trainer, 4)
            results.append((weights(trainer), trainer.version, trainer.optimizer_steps))
        (first, *one), (second, *two) = results
        assert one == two
        assert all(torch.equal(value, second[name]) for name, value in first.items())
