"""Reward signals that learn, in every trainer of this family, and beside memories and minibatches in parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.rewards.learned import LearnedReward
from learner.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.trainers.in_process import Bench, make_bench
from tests.learner.trainers.recurrent import CUT, TERMINATED, RecurrentActor, recurrent_settings
from tests.learner.trainers.started import KINDS, feed, make_kind
from tests.learner.trainers.synthetic import CONTINUOUS, HYBRID, SyntheticActor

SMALL: Mapping[str, Any] = {"network_settings": {"hidden_units": 8, "normalize": True}}
SIGNALS: Mapping[str, Any] = {"extrinsic": {}, "curiosity": {"strength": 0.3, **SMALL}, "rnd": {"gamma": 0.9, **SMALL}}
LOSSES = ("Curiosity Forward Loss", "Curiosity Inverse Loss", "RND Loss", "Policy Loss", "Value Loss")


def steps_of(trainer: ActorCriticTrainer) -> list[int]:
    """How many steps each signal that learns has taken."""
    return [signal.optimizer.steps for signal in trainer.signals._signals if isinstance(signal, LearnedReward)]


def check(bench: Bench, trainer: ActorCriticTrainer, parts: int = 1) -> None:
    """Looks at what updates left behind whose minibatches had so many parts; some parts made no whole minibatch."""
    reported = {name: summary.value for name, summary in bench.stats.write_stats(0).items()}
    assert all(math.isfinite(reported[f"Losses/{name}"]) for name in LOSSES)
    curious, surprised = steps_of(trainer)
    assert curious == surprised
    assert 0 <= curious - parts * trainer.optimizer_steps < 4 * parts  # two updates of two epochs
    assert bool(trainer.signals.is_finite())


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("spec", [CONTINUOUS, HYBRID], ids=lambda spec: spec.name)
@pytest.mark.parametrize("name", KINDS)
def test_every_trainer_teaches_its_signals(name: str, spec: BehaviorSpec, parts: int) -> None:
    """They take a step for each minibatch, or for each part of one: what they see at once must fit, too."""
    bench, trainer = make_kind(KINDS[name], name, spec, reward_signals=SIGNALS, hyper={"gradient_accumulation": parts})
    feed(bench, SyntheticActor(bench), 2, trainer)
    check(bench, trainer, parts)


def test_a_policy_with_a_memory_has_signals_without() -> None:
    """Sequences are cut for the policy; a signal sees their steps, each with what was seen after it."""
    bench = make_bench(recurrent_settings(reward_signals=SIGNALS), CONTINUOUS)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    actor = RecurrentActor(bench)
    for _ in range(2):
        bench.put(actor.play([(0, 10, CUT), (1, 10, CUT), (2, 10, TERMINATED), (3, 10, CUT), (4, 7, CUT)]))
        assert trainer.advance()
    check(bench, trainer)


@pytest.mark.parametrize("name", KINDS)
def test_a_signal_alone_is_enough(name: str) -> None:
    """Without extrinsic the environment's reward counts for nothing: other rewards give the same weights."""
    found = []
    for scale in (1.0, 50.0):
        bench, trainer = make_kind(KINDS[name], name, reward_signals={"rnd": SMALL})
        actor = SyntheticActor(bench)
        for _ in range(2):
            chunk = actor.chunk([20] * 4)
            chunk.columns["reward"] = chunk.columns["reward"] * scale
            bench.put(chunk)
            assert trainer.advance()
        found.append(trainer.network.state_dict())
    assert all(torch.equal(value, found[1][key]) for key, value in found[0].items())
