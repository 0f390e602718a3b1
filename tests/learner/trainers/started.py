"""A PPO trainer that was started, with everything around it but the service."""

from __future__ import annotations

from typing import Any

from rollcast.specs import BehaviorSpec

from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.trainers.in_process import Bench, make_bench
from tests.learner.trainers.synthetic import CONTINUOUS, SyntheticActor


def make(
    spec: BehaviorSpec = CONTINUOUS, service: dict[str, Any] | None = None, **changes: Any
) -> tuple[Bench, PPOTrainer]:
    """A bench and a started trainer that updates after more than 60 steps."""
    hyper = {"buffer_size": 60, "batch_size": 16, "num_epoch": 2, "learning_rate": 1e-3, **changes.pop("hyper", {})}
    network = {"hidden_units": 16, "normalize": True, **changes.pop("network", {})}
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": hyper,
        "network_settings": network,
        "time_horizon": 20,
        "max_steps": 100_000,
        **changes,
    }
    bench = make_bench(settings, spec, **(service or {}))
    trainer = PPOTrainer(bench.context())
    trainer.start()
    return bench, trainer


def feed(bench: Bench, actor: SyntheticActor, updates: int, trainer: PPOTrainer) -> None:
    """Sends chunks of 20 steps until so many updates more are done."""
    end = trainer.version + updates
    while trainer.version < end:
        bench.put(actor.chunk([10, 7, 3]))
        trainer.advance()
