"""Tests that a trainer needs only what `Trainer` leaves open, by the one of the example package that has nothing else."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
import torch

from learner.training.trainers.base import Trainer
from tests.documents import ROOT
from tests.learner.training.trainers.in_process import Bench, CartPoleActor, make_bench

OPEN = {"create_policy", "receive", "is_trainable", "train", "sync_models", "model_state", "load_model_state"}
SETTINGS = {
    "hyperparameters": {"buffer_size": 512, "batch_size": 512, "learning_rate": 0.01},
    "network_settings": {"hidden_units": 32, "num_layers": 1},
    "time_horizon": 500,
    "max_steps": 24_000,
    "summary_freq": 4_000,
}


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the trainer of the example package."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "examples" / "rollcast_example"))
    return importlib.import_module("rollcast_example.reinforce").ReinforceTrainer


def trained(kind: Any, steps: int) -> tuple[Bench, Any]:
    """Returns a trainer after so many steps of CartPole."""
    bench = make_bench(SETTINGS)
    trainer = kind(bench.context())
    trainer.start()
    actor = CartPoleActor(bench)
    while trainer.get_step < steps and trainer.should_still_train:
        actor.run(128)
        trainer.advance()
    return bench, trainer


def test_it_has_only_what_is_left_open(kind: Any) -> None:
    """A trainer must have seven methods, and this one has no other that the base calls."""
    assert Trainer.__abstractmethods__ == OPEN
    assert {name for name in vars(kind) if hasattr(Trainer, name) and not name.startswith("_")} == OPEN


def test_it_learns_and_settles_each_step(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its policy becomes better, versions and summaries are counted, and each step is trained or dropped at the end."""
    written: list[int] = []
    monkeypatch.setattr(kind, "write_summary", lambda _, step: written.append(step))
    bench, trainer = trained(kind, 24_000)
    assert trainer.mean_return() > 60  # 20 by chance
    assert trainer.version == len(bench.published.progress) - 1 >= 20
    assert written == [4_000, 8_000, 12_000, 16_000, 20_000, 24_000]
    trainer.finish()
    trainer.settle()
    books = bench.ledger.books("CartPole")
    assert books.trained == trainer.steps_trained
    assert (books.queued, books.dropped["not_training"]) == (0, trainer.get_step - trainer.steps_trained)


def test_it_continues_from_its_state(kind: Any) -> None:
    """A saved state has the network, the optimizer and the counts."""
    bench, trainer = trained(kind, 2_000)
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    file.seek(0)
    resumed = kind(bench.context(seed=99))
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert (resumed.version, resumed.steps_trained) == (trainer.version, trainer.steps_trained)
    found, expected = resumed.policy.state_dict(), trainer.policy.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
