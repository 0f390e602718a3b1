"""A policy that has diverged is not published: its parameters may be numbers, and what it does with them is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rollcast.specs import BehaviorSpec

from learner.trainers import registry
from learner.trainers.base import Trainer
from learner.trainers.rl import TrainerFailedError
from tests.learner.networks.specs import behavior
from tests.learner.trainers.in_process import Bench, make_bench
from tests.learner.trainers.recurrent import CUT, RecurrentActor, RememberingAgent
from tests.learner.trainers.synthetic import SyntheticActor

MEMORY: dict[str, Any] = {"memory": {"memory_size": 8, "sequence_length": 8}}
CONTINUOUS = behavior(continuous=2)
DISCRETE = behavior(branches=(3,))
BOTH = [(1, 40, CUT), (2, 40, CUT)]


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
@pytest.mark.parametrize("network", [{}, MEMORY], ids=["plain", "memory"])
@pytest.mark.parametrize("trainer_type", sorted(registry.own_trainers()))
def test_a_policy_that_cannot_act_is_undone_and_not_published(
    trainer_type: str, network: dict[str, Any], spec: BehaviorSpec
) -> None:
    """Whatever is published acts, although such steps leave parameters that are numbers; the third in a row ends it."""
    own = {} if trainer_type == "sac" else {"num_epoch": 1}
    bench = make_bench(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {"batch_size": 64, "buffer_size": 64, "learning_rate": 1e20, **own},
            "network_settings": {"hidden_units": 8, "num_layers": 2, "normalize": False, **network},
            "time_horizon": 40,
            "max_steps": 10_000,
        },
        spec,
    )
    trainer = registry.build(bench.context())
    trainer.start()
    with pytest.raises(TrainerFailedError, match=r"not finite: lower learning_rate"):
        _train(bench, trainer)


def _train(bench: Bench, trainer: Trainer) -> None:
    """Acts by what is published, which must be able to, and lets the trainer do all it can."""
    actor = RecurrentActor(bench) if bench.behavior.memory_size else SyntheticActor(bench)
    if isinstance(actor, RecurrentActor):
        actor.agents = {1: RememberingAgent(), 2: RememberingAgent()}
    for _ in range(6):
        chunk = actor.play(BOTH) if isinstance(actor, RecurrentActor) else actor.chunk([40, 40])
        assert np.isfinite(chunk.columns["log_prob"]).all()
        bench.put(chunk)
        while trainer.advance():
            pass
