"""Tests that all reductions over learners use one interface."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from learner.optimizers.reduce import SingleLearner
from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.synthetic import CONTINUOUS, SyntheticActor

SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 60, "batch_size": 16, "num_epoch": 2},
    "network_settings": {"hidden_units": 8, "normalize": True},
    "time_horizon": 20,
}


class Counting(SingleLearner):
    """A learner that counts its reductions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def gradients(self, gradient: Tensor, rows: int = 1, beside: Tensor | None = None) -> Tensor | None:
        """Counts."""
        self.calls["gradients"] += 1
        return super().gradients(gradient, rows, beside)

    def sums(self, values: Tensor) -> Tensor:
        """Counts."""
        self.calls["sums"] += 1
        return values

    def moments(self, batch: Tensor) -> Tensor:
        """Counts."""
        self.calls["moments"] += 1
        return batch


def run_update(reduce: Counting) -> PPOTrainer:
    """Feeds enough for one update."""
    bench = make_bench(SETTINGS, CONTINUOUS)
    trainer = PPOTrainer(bench.context(reduce=reduce))
    trainer.start()
    bench.put(SyntheticActor(bench).chunk([20] * 4))
    trainer.advance()
    return trainer


def test_gradients_moments_and_sums_pass_it() -> None:
    """Gradients, moments of advantages and of value targets, and sums of observations are reduced."""
    reduce = Counting()
    trainer = run_update(reduce)
    assert reduce.calls == {"gradients": trainer.optimizer_steps, "sums": 2, "moments": 2}


def test_one_learner_changes_nothing() -> None:
    """With one learner the interface is the identity."""
    single, values = SingleLearner(), torch.randn(3)
    assert single.sums(values) is single.moments(values) is values
    assert single.gather(values).tolist() == [values.tolist()]
    assert single.broadcast(b"state") == b"state"
