"""Trainers are built with everything they need from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from learner.common.exits import ExitCode, UserError
from learner.run.assembly import Assembly
from learner.run.turns import trainer_stats
from learner.settings.load import load_run_options
from learner.trainers.base import Trainer
from tests.learner.ingest.parts import NAME, make_spec
from tests.learner.starts import SETTINGS, begun, opened


@contextmanager
def assembled(
    results: Path, *, resume: bool = False, seed: int = 3, initialize_from: Path | None = None
) -> Iterator[Assembly]:
    """A run whose only behavior was declared, without its service; its files are closed at the end."""
    run_file = results / "run.yaml"
    results.mkdir(exist_ok=True)
    run_file.write_text(
        yaml.safe_dump({"behaviors": {NAME: {"trainer_type": "ppo", **SETTINGS}}, "torch_settings": {"device": "cpu"}})
    )
    loaded = load_run_options(run_file, cli={"seed": str(seed)}, environ={})
    with opened(results, resume=resume) as folder:
        folder.initialize_from = initialize_from
        run = Assembly(loaded, folder)
        try:
            run.behaviors.declare(make_spec(NAME), 0, 1)
            yield run
        finally:
            run.close_statistics()
            run.store.wakeup.close()
            run.behaviors.to_service.close()


def build(run: Assembly) -> Trainer:
    """Builds the trainer of the only behavior."""
    return run.build_trainer(run.behaviors.all()[0])


def test_a_trainer_publishes_to_the_store(tmp_path: Path) -> None:
    """Its first policy is there as soon as it starts, with the run's generation."""
    with assembled(tmp_path) as run:
        build(run).start()
        published = run.store.latest(NAME)
        assert published is not None
        assert (published.description.generation, published.description.version) == (run.generation, 0)
        assert published.description.behavior == NAME


def test_its_settings_and_statistics_are_written(tmp_path: Path) -> None:
    """TensorBoard shows what the behavior was trained with."""
    with assembled(tmp_path) as run:
        trainer = build(run)
        run.loop._trainers = {NAME: trainer}
        trainer.stats_reporter.add_stat("Losses/Value Loss", 0.25)
    events: Any = EventAccumulator(str(tmp_path / "run" / NAME))  # type: ignore[no-untyped-call]
    events.Reload()
    (loss,) = events.Scalars("Losses/Value Loss")
    assert loss.value == 0.25
    assert events.Tags()["tensors"] == ["Hyperparameters"]


@pytest.mark.parametrize(("other", "expected"), [(3, True), (4, False)])
def test_the_seed_decides_the_first_weights(tmp_path: Path, other: int, expected: bool) -> None:
    """Runs of one seed begin with the same networks."""
    with assembled(tmp_path / "one") as one, assembled(tmp_path / "two", seed=other) as two:
        ours, theirs = (build(run).get_policy(NAME).state_dict() for run in (one, two))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items()) is expected


def test_an_initial_state_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    """A run that is to begin with another's networks does not begin with random ones in silence."""
    with assembled(tmp_path, initialize_from=tmp_path / "another") as run:
        with pytest.raises(UserError, match="cannot start from") as caught:
            build(run)
        assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


def test_statistics_that_cannot_be_written_end_nothing(tmp_path: Path) -> None:
    """Where a file is in the place of the behavior's folder, a resumed trainer is built all the same, with one line."""
    with begun(tmp_path, 1) as (folder, first, trainer):
        first.keeper.save_run_state({NAME: trainer})
        (folder.path / NAME).write_text("in the way")
    with structlog.testing.capture_logs() as logs, assembled(tmp_path, resume=True) as run:
        assert build(run).get_step > 0
    assert [line["event"] for line in logs if line["log_level"] != "info"] == ["stats_not_written"]


def test_news_are_those_of_the_trainer(tmp_path: Path) -> None:
    """What the status shows is read from the trainer, between its turns."""
    with begun(tmp_path) as (_, start, trainer):
        assert trainer_stats(trainer).mean_return is None
        start.train(trainer, 1)
        news = trainer_stats(trainer)
        assert (news.version, news.env_steps_trained) == (1, trainer.steps_trained)
        assert news.episodes == trainer.episodes > 0
        assert news.mean_return == trainer.mean_return()
        assert not news.is_full
