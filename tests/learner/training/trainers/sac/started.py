"""A started SAC trainer without the service."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from rollcast.specs import BehaviorSpec

from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor


def make(
    spec: BehaviorSpec = CONTINUOUS, service: dict[str, Any] | None = None, **changes: Any
) -> tuple[Bench, SACTrainer]:
    """Returns a bench and a started trainer with an update for every second step after sixteen."""
    hyper = {"buffer_size": 200, "batch_size": 16, "steps_per_update": 2, **changes.pop("hyper", {})}
    network = {"hidden_units": 16, "normalize": True, **changes.pop("network", {})}
    settings = {
        "trainer_type": "sac",
        "hyperparameters": hyper,
        "network_settings": network,
        "time_horizon": 20,
        "max_steps": 100_000,
        **changes,
    }
    bench = make_bench(settings, spec, **(service or {}))
    trainer = SACTrainer(bench.context())
    trainer.start()
    return bench, trainer


def feed(bench: Bench, actor: SyntheticActor, trainer: SACTrainer, chunks: int = 1) -> None:
    """Sends chunks of 20 steps, and lets the trainer do all it owes for each."""
    for _ in range(chunks):
        bench.put(actor.chunk([10, 7, 3]))
        settle(trainer)


def settle(trainer: SACTrainer) -> None:
    """Runs the trainer until it waits."""
    while trainer.advance():
        pass


def saved(trainer: SACTrainer) -> dict[str, Any]:
    """Returns the parts that a checkpoint restores."""
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def resumed(bench: Bench, trainer: SACTrainer, folder: Path) -> SACTrainer:
    """Saves a trainer and its replay memory, and returns one of another seed that has loaded them."""
    state = saved(trainer)
    trainer.save_experience(folder)
    again = SACTrainer(bench.context(seed=99))
    again.load_state_dict(state)
    again.load_experience(folder)
    again.start()
    return again
