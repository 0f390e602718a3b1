"""Trainers are built with everything they need from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from learner.common.exits import ExitCode, UserError
from learner.curriculum.lessons import no_lessons
from learner.observe.csvfile import CsvWriter
from learner.observe.tensorboard import TensorBoardWriter
from learner.publish.store import PolicyStore
from learner.run.trainer_factory import TrainerFactory, trainer_stats
from learner.trainers.base import Trainer
from tests.learner.ingest.parts import NAME
from tests.learner.starts import OPTIONS, Start, opened, saved


@contextmanager
def factory_of(start: Start, store: PolicyStore, *, seed: int = 3) -> Iterator[TrainerFactory]:
    """The factory of a start, whose files are closed at the end."""
    factory = TrainerFactory(
        OPTIONS,
        start.store.folder,
        ledger=start.parts.ledger,
        store=store,
        keeper=start.keeper,
        generation=4,
        seed=seed,
        device=torch.device("cpu"),
        lessons=no_lessons(),
        writers=[TensorBoardWriter(start.store.folder.path), CsvWriter(start.store.folder.path)],
        metrics=start.metrics,
    )
    try:
        yield factory
    finally:
        factory.close({})


@pytest.fixture
def store() -> Iterator[PolicyStore]:
    """Where policies go."""
    made = PolicyStore()
    yield made
    made.wakeup.close()


def build(start: Start, factory: TrainerFactory) -> Trainer:
    """Builds the trainer of the only behavior, which an actor declared."""
    return factory.build(start.parts.behaviors.all()[0])


def test_a_trainer_publishes_to_the_store(tmp_path: Path, store: PolicyStore) -> None:
    """Its first policy is there as soon as it starts, with the run's generation."""
    with opened(tmp_path) as folder:
        start = Start(folder, 4)
        start.parts.declared(start.parts.open().session)
        with factory_of(start, store) as factory:
            build(start, factory).start()
        published = store.latest(NAME)
        assert published is not None
        assert (published.description.generation, published.description.version) == (4, 0)
        assert published.description.behavior == NAME


def test_its_settings_and_statistics_are_written(tmp_path: Path, store: PolicyStore) -> None:
    """TensorBoard shows what the behavior was trained with."""
    with opened(tmp_path) as folder:
        start = Start(folder, 4)
        start.parts.declared(start.parts.open().session)
        with factory_of(start, store) as factory:
            trainer = build(start, factory)
            trainer.stats_reporter.add_stat("Losses/Value Loss", 0.25)
            factory.close({NAME: trainer})
        events: Any = EventAccumulator(str(folder.behavior(NAME)))  # type: ignore[no-untyped-call]
        events.Reload()
        (loss,) = events.Scalars("Losses/Value Loss")
        assert loss.value == 0.25
        assert events.Tags()["tensors"] == ["Hyperparameters"]


@pytest.mark.parametrize(("other", "expected"), [(3, True), (4, False)])
def test_the_seed_decides_the_first_weights(tmp_path: Path, store: PolicyStore, other: int, expected: bool) -> None:
    """Runs of one seed begin with the same networks."""
    with opened(tmp_path) as folder:
        start = Start(folder, 1)
        start.parts.declared(start.parts.open().session)
        with factory_of(start, store) as one, factory_of(start, store, seed=other) as two:
            first, second = (build(start, factory) for factory in (one, two))
        ours, theirs = (trainer.get_policy(NAME).state_dict() for trainer in (first, second))
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items()) is expected


def test_an_initial_state_that_is_missing_ends_the_start(tmp_path: Path, store: PolicyStore) -> None:
    """A run that shall begin with another's networks does not begin with random ones in silence."""
    with opened(tmp_path) as folder:
        folder.initialize_from = tmp_path / "another"
        start = Start(folder, 1)
        start.parts.declared(start.parts.open().session)
        with factory_of(start, store) as factory, pytest.raises(UserError, match="cannot start from") as caught:
            build(start, factory)
        assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


def test_statistics_that_cannot_be_written_end_nothing(tmp_path: Path, store: PolicyStore) -> None:
    """Where a file is in the place of the behavior's folder, a resumed trainer is built all the same, with one line."""
    with opened(tmp_path) as folder:
        first = Start(folder, 1)
        trainer = first.join()
        first.train(trainer, 1)
        first.keeper.save_run_state({NAME: trainer})
        (folder.path / NAME).write_text("in the way")
    state = saved(tmp_path)
    with opened(tmp_path, resume=True) as folder:
        start = Start(folder, 2)
        start.keeper.restore(state)
        with structlog.testing.capture_logs() as logs, factory_of(start, store) as factory:
            assert build(start, factory).get_step > 0
        assert [line["event"] for line in logs if line["log_level"] != "info"] == ["stats_not_written"]


def test_news_are_those_of_the_trainer(tmp_path: Path) -> None:
    """What the status shows is read from the trainer, between its turns."""
    with opened(tmp_path) as folder:
        start = Start(folder, 1)
        trainer = start.join()
        assert trainer_stats(trainer).mean_return is None
        start.train(trainer, 1)
        news = trainer_stats(trainer)
        assert (news.version, news.env_steps_trained) == (1, trainer.steps_trained)
        assert news.episodes == trainer.episodes > 0
        assert news.mean_return == trainer.mean_return()
        assert not news.is_full
