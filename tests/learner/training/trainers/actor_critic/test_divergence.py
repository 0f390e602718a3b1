"""Tests what an update measures of the divergence of its policy, and how the divergence limits it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rollcast.specs import ActionSpec, BehaviorSpec

from learner.training.trainers.actor_critic.loss import log_probability
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from tests.learner.training.networks.specs import vector
from tests.learner.training.trainers.started import KINDS, feed, make, make_kind
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor

FOUR_AXES = BehaviorSpec("Walker", (vector(),), ActionSpec(4))


def rate_of(trainer: ActorCriticTrainer) -> float:
    """Returns the present learning rate."""
    return float(trainer.optimizer.learning_rate)


@pytest.mark.parametrize("ratio", ["per_action", "joint"])
@pytest.mark.parametrize("parts", [1, 2])
def test_divergence_and_clip_are_of_whole_actions_over_the_last_epoch(
    monkeypatch: pytest.MonkeyPatch, ratio: str, parts: int
) -> None:
    """Both numbers equal those of the ratios of whole actions of every minibatch of the last epoch.

    A mean over axes, or over the last minibatch alone, differs: with four axes it was a quarter.
    """
    hyper = {"ratio": ratio, "learning_rate": 3e-3, "gradient_accumulation": parts, "num_epoch": 3}
    bench, trainer = make(FOUR_AXES, hyper=hyper)
    seen: list[torch.Tensor] = []
    loss = trainer.loss

    def watched(output: Any, values: Any, batch: Any, coefficients: Any) -> Any:
        with torch.no_grad():
            now = log_probability(output, batch.continuous, batch.discrete, "per_action").sum(1)
            seen.append(now - batch.log_prob.sum(1))
        return loss(output, values, batch, coefficients)

    monkeypatch.setattr(trainer, "loss", watched)
    feed(bench, SyntheticActor(bench), 1, trainer)
    last = torch.cat(seen[-(len(seen) // 3) :]).double()
    assert len(last) > 16
    assert trainer.numbers["approx_kl"] == pytest.approx(float((last.exp() - 1 - last).mean()), rel=1e-3)
    assert trainer.numbers["clip_ratio"] == pytest.approx(
        float(((last.exp() - 1).abs() > 0.2).double().mean()), abs=0.02
    )
    assert trainer.numbers["approx_kl"] > 0
    assert trainer.numbers["update_epochs"] == 3


@pytest.mark.parametrize(
    ("target", "minibatches", "epochs"), [(None, 8, 2), (1e9, 8, 2), (1e-9, 1, 0), (3e-4, None, None)]
)
def test_a_target_ends_the_update(target: float | None, minibatches: int | None, epochs: int | None) -> None:
    """The update ends before the minibatch beyond the limit: the first is always taken."""
    hyper = {"target_kl": target, "learning_rate": 3e-3, "batch_size": 20, "buffer_size": 80}
    bench, trainer = make(FOUR_AXES, hyper=hyper)
    feed(bench, SyntheticActor(bench), 1, trainer)
    if minibatches is None:
        assert 1 < trainer.optimizer.steps < 8
    else:
        assert (trainer.optimizer.steps, trainer.numbers["update_epochs"]) == (minibatches, epochs)
    assert trainer.version == 1


def test_a_target_counts_whole_minibatches() -> None:
    """A minibatch in parts is judged as a whole, and its gradient is left out as a whole."""
    steps = []
    for parts in (1, 2):
        hyper = {"target_kl": 3e-4, "learning_rate": 3e-3, "batch_size": 20, "buffer_size": 80}
        bench, trainer = make(FOUR_AXES, hyper={**hyper, "gradient_accumulation": parts})
        feed(bench, SyntheticActor(bench), 1, trainer)
        steps.append(trainer.optimizer.steps)
    assert steps[0] == steps[1]


@pytest.mark.parametrize("trainer_type", ["ppo", "appo"])
def test_an_adaptive_rate_rises_and_falls(trainer_type: str) -> None:
    """A rate that hardly moves the policy rises with each minibatch; one that moves it far falls; both are shown."""
    hyper = {"learning_rate_schedule": "adaptive", "learning_rate": 1e-5}
    bench, trainer = make_kind(KINDS[trainer_type], trainer_type, CONTINUOUS, hyper=hyper)
    feed(bench, SyntheticActor(bench), 1, trainer)
    assert rate_of(trainer) == pytest.approx(1e-5 * 1.5**trainer.optimizer.steps, rel=1e-4)
    assert trainer.numbers["learning_rate"] == pytest.approx(rate_of(trainer))
    shown = bench.stats.summary("Policy/Learning Rate")
    assert shown is not None
    assert shown.mean == pytest.approx(rate_of(trainer))

    bench, trainer = make_kind(
        KINDS[trainer_type], trainer_type, CONTINUOUS, hyper={**hyper, "learning_rate": 9e-3, "desired_kl": 1e-6}
    )
    feed(bench, SyntheticActor(bench), 1, trainer)
    assert rate_of(trainer) < 9e-3


def test_a_warm_up_begins_low() -> None:
    """The first update has the share of the rate that its steps are of the warm-up."""
    bench, trainer = make(hyper={"learning_rate_warmup": 1000, "learning_rate_schedule": "cosine"}, max_steps=10**9)
    feed(bench, SyntheticActor(bench), 1, trainer)
    assert trainer.numbers["learning_rate"] == pytest.approx(1e-3 * trainer.get_step / 1000, rel=1e-3)
