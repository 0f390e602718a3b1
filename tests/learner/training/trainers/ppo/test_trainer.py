"""Tests the PPO trainer without the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
import torch
from rollcast.enums import GroupEnd, StatAggregation
from tensorboard.backend.event_processing import plugin_event_accumulator

from learner.shared.runfolder.names import safe_name
from learner.training.trainers.actor_critic.epochs import EpochSums, run_epochs
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.writers.tensorboard import TensorBoardWriter
from tests.learner.training.export.unity_behaviors import TRAINED
from tests.learner.training.trainers.started import feed, make
from tests.learner.training.trainers.synthetic import SyntheticActor

NORMALIZER_MEAN = "policy.body.encoder.encoders.0.normalizer.mean"

CURVES = {
    "Losses/Policy Loss",
    "Losses/Value Loss",
    "Policy/Entropy",
    "Policy/Learning Rate",
    "Policy/Epsilon",
    "Policy/Beta",
    "Policy/Extrinsic Reward",
    "Policy/Extrinsic Value Estimate",
    "Policy/Extrinsic Return Scale",
    "Environment/Cumulative Reward",
    "Environment/Episode Length",
}
GROUP_CURVES = {
    "Histograms/Environment/Cumulative Reward",
    "Environment/Group Cumulative Reward",
    "Histograms/Environment/Group Cumulative Reward",
}
OF_THE_PLAYER = {"Goals/Blue", "Distance", "Histograms/Distance"}


def weights(trainer: PPOTrainer) -> dict[str, torch.Tensor]:
    """Returns a copy of all parameters and buffers."""
    return {name: value.clone() for name, value in trainer.network.state_dict().items()}


def test_each_update_is_a_version() -> None:
    """An update begins at buffer_size, takes whole segments, and publishes the next version with its numbers."""
    bench, trainer = make(threaded=True)
    actor = SyntheticActor(bench)
    for _ in range(2):
        bench.put(actor.chunk([20]))
        assert trainer.advance()
    bench.put(actor.chunk([19]))
    assert trainer.advance()
    assert trainer.version == 0  # 59 of 60 steps
    bench.put(actor.chunk([6, 20]))
    trainer.advance()
    assert trainer.version == 1
    assert (trainer.steps_trained, trainer.update_buffer.taken_steps) == (65, 20)
    assert [progress.version for progress in bench.published.progress] == [0, 1]
    newest = bench.published.progress[-1]
    assert (newest.env_steps_trained, newest.optimizer_steps) == (65, 2 * (65 // 16))
    assert not trainer.advance()


def test_an_update_that_is_not_finite_is_undone() -> None:
    """A non-finite update restores weights, normalizer, optimizer and version, and counts its steps by reason."""
    bench, trainer = make()
    actor = SyntheticActor(bench)
    feed(bench, actor, 1, trainer)
    before, statistics = weights(trainer), trainer.statistics.state_dict()["0"]
    bench.put(SyntheticActor(bench, 9).chunk([20] * 4, columns={"reward": np.full(80, 3e38, np.float32)}))
    trainer.advance()
    assert torch.equal(statistics["m2"], trainer.statistics.state_dict()["0"]["m2"])
    books = bench.ledger.books("Continuous")
    assert trainer.version == 1
    assert books.dropped["not_finite_update"] > 60
    assert books.balanced
    assert bench.behavior.queue.pace.until_version == 1
    assert all(torch.equal(value, before[name]) for name, value in weights(trainer).items())
    feed(bench, actor, 1, trainer)
    assert trainer.version == 2
    assert all(value.isfinite().all() for value in bench.published.state.values())


def test_a_wrong_log_probability_names_its_actor() -> None:
    """An actor with wrong log-probabilities is named on its first fresh rows."""
    bench, trainer = make(hyper={"batch_size": 200})
    actor = SyntheticActor(bench)
    good, bad = actor.chunk([20, 20]), actor.chunk([20, 20])
    bad.columns["log_prob"] = bad.columns["log_prob"] + np.float32(0.01)
    bench.put(good, actor_index=4)
    bench.put(bad, actor_index=11)
    with structlog.testing.capture_logs() as logs:
        trainer.advance()
    assert trainer.numbers["log_prob_error_max"] == pytest.approx(0.01, rel=0.01)
    (warning,) = [entry for entry in logs if entry["event"] == "log_prob_error"]
    assert warning["actor_index"] == 11


def test_old_rows_are_no_error() -> None:
    """Log-probabilities of older versions are not compared."""
    bench, trainer = make(hyper={"batch_size": 200, "learning_rate": 0.05})
    actor = SyntheticActor(bench)
    old = actor.chunk([20, 20])
    feed(bench, actor, 1, trainer)
    bench.put(old)
    bench.put(actor.chunk([20, 20]))
    trainer.advance()
    assert trainer.version == 2
    assert trainer.numbers["mean_lag"] > 0
    assert trainer.numbers["log_prob_error_max"] < 1e-4


def test_the_normalizer_takes_in_the_steps_of_an_update() -> None:
    """An update's observations are in the statistics of actor, critic and published policy."""
    bench, trainer = make()
    actor = SyntheticActor(bench)
    chunk = actor.chunk([20, 20, 20, 20])
    rows = np.concatenate([chunk.columns["obs/state"]]).astype(np.float64)
    bench.put(chunk)
    trainer.advance()
    expected = rows.sum(0) / 81  # one pseudo row of zeros
    mean = bench.published.state["body.encoder.encoders.0.normalizer.mean"]
    np.testing.assert_allclose(expected, mean, rtol=1e-5)
    state = trainer.network.state_dict()
    critic = state["critic.body.encoder.encoders.0.normalizer.mean"]
    assert torch.equal(mean, critic)
    assert torch.equal(mean, state["policy.body.encoder.encoders.0.normalizer.mean"])


def test_an_update_trains_what_it_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epochs train with the normalizer that is published afterwards."""
    bench, trainer = make()
    seen: list[torch.Tensor] = []

    def watch(*arguments: Any, **options: Any) -> EpochSums:
        seen.append(trainer.network.state_dict()[NORMALIZER_MEAN].clone())
        return run_epochs(*arguments, **options)

    monkeypatch.setattr("learner.training.trainers.actor_critic.trainer.run_epochs", watch)
    feed(bench, SyntheticActor(bench), 2, trainer)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], bench.published.state[NORMALIZER_MEAN.removeprefix("policy.")])


def test_an_initial_state_brings_the_networks_alone() -> None:
    """An initial state brings weights, moments and statistics, and counters start at 0."""
    bench, trainer = make()
    feed(bench, SyntheticActor(bench), 2, trainer)
    _, other = make()
    other.load_initial_state(trainer.state_dict())
    assert all(torch.equal(value, weights(other)[name]) for name, value in weights(trainer).items())
    assert (other.version, other.get_step, other.episodes) == (0, 0, 0)


def test_schedules_follow_the_steps() -> None:
    """Learning rate, epsilon and beta fall over max_steps to their minimum and are reported."""
    bench, trainer = make(max_steps=140, hyper={"epsilon": 0.3, "beta": 0.01})
    bench.put(SyntheticActor(bench).chunk([20, 20, 20, 10]))
    trainer.advance()
    values = {name: bench.stats.summary(f"Policy/{name}") for name in ("Learning Rate", "Epsilon", "Beta")}
    means = {name: summary.mean for name, summary in values.items() if summary is not None}
    assert means == pytest.approx({"Learning Rate": 5e-4, "Epsilon": 0.2, "Beta": 0.005}, rel=0.01)


def test_training_ends_at_max_steps() -> None:
    """After max_steps nothing is trained, waiting steps are dropped, and the ring is freed.

    Nothing more is collected, so that the ring gives its memory back.
    """
    bench, trainer = make(max_steps=100)
    actor = SyntheticActor(bench)
    for _ in range(5):
        assert trainer.should_still_train
        bench.put(actor.chunk([20]))
        trainer.advance()
    assert not trainer.should_still_train
    assert trainer.version == 1
    assert trainer.get_step == 100
    assert trainer.ring.capacity_steps > 100
    for _ in range(2):  # as the loop does: messages between the two belong to the first
        trainer.finish()
        trainer.settle()
        assert trainer.ring.capacity_steps == 0
    books = bench.ledger.books("Continuous")
    assert (books.trained, dict(books.dropped), books.queued) == (60, {"not_training": 40}, 0)
    assert (trainer.get_step, trainer.steps_trained) == (100, 60)
    again = PPOTrainer(bench.context())
    again.load_state_dict(trainer.state_dict())
    assert again.get_step == 100
    assert not again.should_still_train


def test_a_buffer_that_is_full_at_max_steps_is_trained() -> None:
    """If max_steps is a multiple of buffer_size, every step is trained."""
    bench, trainer = make(max_steps=120)
    actor = SyntheticActor(bench)
    for _ in range(6):
        assert trainer.should_still_train
        bench.put(actor.chunk([20]))
        trainer.advance()
    assert not trainer.should_still_train
    assert (trainer.version, trainer.steps_trained) == (2, 120)


def test_curves_have_the_known_names(tmp_path: Path) -> None:
    """Curves have ML-Agents' names, players' own keys, and a separate group for Rollcast's."""
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
        "episode/group_end": np.full(2, GroupEnd.TERMINATED, np.uint8),
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
    assert {tag for tag in tags if not tag.startswith("Rollcast/")} == CURVES | GROUP_CURVES | OF_THE_PLAYER
    assert {event.step for event in reader.Tensors("Losses/Policy Loss")} == {100}
    points = {
        tag: float(reader.Tensors(tag)[0].tensor_proto.float_val[0])
        for tag in tags
        if not tag.startswith("Histograms/")
    }
    assert (points["Environment/Cumulative Reward"], points["Environment/Group Cumulative Reward"]) == (4.0, 2.0)
    assert (points["Policy/Extrinsic Reward"], points["Goals/Blue"], points["Distance"]) == (6.0, 5.0, 3.0)


def with_group(*rewards: float) -> dict[str, Any]:
    """Returns columns of one segment with a reward of 1 per step and these group rewards."""
    return {
        "reward": np.ones(len(rewards), np.float32),
        "group_reward": np.array(rewards, np.float32),
        "group": np.array([7], np.uint64),
    }


def test_group_rewards_are_part_of_the_reward_with_one_warning() -> None:
    """Group rewards are added with one warning, and zeros cause none."""
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
