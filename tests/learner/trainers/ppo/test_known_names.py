"""The curves of a training under the names that ML-Agents gives them, as TensorBoard reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import structlog
from rollcast.enums import StatAggregation
from tensorboard.backend.event_processing import plugin_event_accumulator

from learner.checkpoints.names import safe_name
from learner.observe.tensorboard import TensorBoardWriter
from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.publish.unity_behaviors import TRAINED
from tests.learner.trainers.started import make
from tests.learner.trainers.synthetic import SyntheticActor

KNOWN = {
    "Environment/Cumulative Reward",
    "Environment/Cumulative Reward_hist",
    "Environment/Episode Length",
    "Environment/Group Cumulative Reward",
    "Environment/Group Cumulative Reward_hist",
    "Losses/Policy Loss",
    "Losses/Value Loss",
    "Policy/Entropy",
    "Policy/Learning Rate",
    "Policy/Epsilon",
    "Policy/Beta",
    "Policy/Extrinsic Reward",
    "Policy/Extrinsic Value Estimate",
}
OF_THE_PLAYER = {"Goals/Blue", "Distance", "Distance_hist"}


def test_curves_have_the_known_names(tmp_path: Path) -> None:
    """Those of ppo with groups, a player's own statistics under their own keys, and Rollcast's in a group of theirs."""
    spec = TRAINED["hybrid"]
    bench, _ = make(spec, summary_freq=100)
    writer = TensorBoardWriter(tmp_path, safe_name)
    bench.stats._writers.append(writer)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    actor = SyntheticActor(bench)
    columns = {
        "episode/return": np.array([3.0, 5.0], np.float32),
        "episode/group_return": np.array([2.0, 2.0], np.float32),
        "episode/length": np.array([9, 9], np.uint32),
        "stat/key": np.array([0, 1, 1], np.uint32),
        "stat/value": np.array([1.0, 2.0, 4.0], np.float32),
        "stat/aggregation": np.array(
            [StatAggregation.SUM, StatAggregation.HISTOGRAM, StatAggregation.HISTOGRAM], np.uint8
        ),
    }
    for _ in range(5):
        chunk = actor.chunk([12, 8], episodes=2, columns=columns, stat_keys=("Goals/Blue", "Distance"))
        bench.put(chunk)
        trainer.advance()
    writer.close()
    (folder,) = tmp_path.iterdir()
    assert folder.name == "Ball#2"
    reader: Any = plugin_event_accumulator.EventAccumulator(str(folder))  # type: ignore[no-untyped-call]
    tags = set(reader.Reload().Tags()["tensors"])
    assert {tag for tag in tags if not tag.startswith("Rollcast/")} == KNOWN | OF_THE_PLAYER
    points = {tag: float(reader.Tensors(tag)[0].tensor_proto.float_val[0]) for tag in tags if "_hist" not in tag}
    assert (points["Environment/Cumulative Reward"], points["Environment/Group Cumulative Reward"]) == (4.0, 2.0)
    assert (points["Policy/Extrinsic Reward"], points["Goals/Blue"], points["Distance"]) == (6.0, 5.0, 3.0)


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
