"""Group rewards under ppo: part of each agent's reward, and said so once."""

from __future__ import annotations

from typing import Any

import numpy as np
import structlog

from tests.learner.publish.unity_behaviors import TRAINED
from tests.learner.trainers.started import make
from tests.learner.trainers.synthetic import SyntheticActor


def with_group(*rewards: float) -> dict[str, Any]:
    """Columns of one segment with an own reward of 1 a step and these group rewards."""
    return {
        "reward": np.ones(len(rewards), np.float32),
        "group_reward": np.array(rewards, np.float32),
        "group": np.array([7], np.uint64),
    }


def test_group_rewards_are_part_of_the_reward_with_one_warning() -> None:
    """As in ML-Agents, each step is worth its own reward plus its group's; zeros are no reason to warn."""
    bench, trainer = make(TRAINED["hybrid"])
    actor = SyntheticActor(bench)
    with structlog.testing.capture_logs() as logs:
        bench.put(actor.chunk([3], columns=with_group(0.0, 0.0, 0.0)))
        trainer.advance()
        assert logs == []
        for _ in range(2):
            bench.put(actor.chunk([3], columns=with_group(0.5, 0.0, 2.0)))
            trainer.advance()
    assert [(line["log_level"], line["event"], line["behavior"]) for line in logs] == [
        ("warning", "group_rewards", "Ball#2")
    ]
    plan = trainer.update_buffer.plan()
    rewards = trainer.update_buffer.ring.storage["reward"].index_select(0, plan.step_rows)
    assert rewards.tolist() == [1.0, 1.0, 1.0, 1.5, 1.0, 3.0, 1.5, 1.0, 3.0]
