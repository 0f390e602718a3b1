"""A minibatch that is computed in parts teaches what it teaches at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.common.exits import UserError
from learner.optimizers.adam import FlatAdam
from learner.optimizers.reduce import SingleLearner
from learner.settings.load import load_run_options
from learner.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.trainers.appo.trainer import APPOTrainer
from learner.trainers.impala.trainer import IMPALATrainer
from learner.trainers.ppo.trainer import PPOTrainer
from learner.trainers.registry import build
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.recurrent import CUT, TERMINATED, RecurrentActor, recurrent_settings
from tests.learner.trainers.started import make_kind
from tests.learner.trainers.synthetic import CONTINUOUS, HYBRID, SyntheticActor

KINDS: Mapping[str, Any] = {"ppo": PPOTrainer, "appo": APPOTrainer, "impala": IMPALATrainer}


def trained(name: str, spec: BehaviorSpec, parts: int, lengths: list[int], **hyper: object) -> ActorCriticTrainer:
    """Trains one update on the same steps, each minibatch in so many parts."""
    bench, trainer = make_kind(KINDS[name], name, spec, hyper={"gradient_accumulation": parts, **hyper})
    bench.put(SyntheticActor(bench).chunk(lengths))
    assert trainer.advance()
    done: ActorCriticTrainer = trainer
    return done


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("spec", [CONTINUOUS, HYBRID], ids=lambda spec: spec.name)
@pytest.mark.parametrize("name", KINDS)
def test_parts_add_up_to_the_gradient_of_the_whole(name: str, spec: BehaviorSpec, clip: float | None) -> None:
    """Weights after an update are the same, and as many gradient steps were taken; clipping sees the whole gradient."""
    whole, parts = (trained(name, spec, count, [20] * 4, max_grad_norm=clip) for count in (1, 4))
    assert whole.optimizer_steps == parts.optimizer_steps == 10
    for (key, value), (_, other) in zip(
        whole.network.state_dict().items(), parts.network.state_dict().items(), strict=True
    ):
        torch.testing.assert_close(value, other, rtol=1e-3, atol=2e-6, msg=lambda text, key=key: f"{key}: {text}")  # type: ignore[misc]


def remembered(parts: int) -> ActorCriticTrainer:
    """Trains one update of a network with a memory; sequences of four steps and shorter ones."""
    bench = make_bench(recurrent_settings(hyper={"gradient_accumulation": parts}), CONTINUOUS)
    trainer: Any = build(bench.context())
    trainer.start()
    bench.put(RecurrentActor(bench).play([(0, 10, CUT), (1, 10, CUT), (2, 10, TERMINATED), (3, 10, CUT), (4, 7, CUT)]))
    assert trainer.advance()
    done: ActorCriticTrainer = trainer
    return done


def test_sequences_of_parts_add_up_too() -> None:
    """Parts are whole sequences, of different numbers of steps, each of which counts the same."""
    whole, parts = remembered(1), remembered(2)
    assert whole.optimizer_steps == parts.optimizer_steps
    for (key, value), (_, other) in zip(
        whole.network.state_dict().items(), parts.network.state_dict().items(), strict=True
    ):
        torch.testing.assert_close(value, other, rtol=1e-3, atol=2e-6, msg=lambda text, key=key: f"{key}: {text}")  # type: ignore[misc]


def test_what_makes_no_whole_minibatch_is_left_out() -> None:
    """Of 70 steps in parts of 4, minibatches of 16 take 64; the rest waits for no later epoch."""
    trainer = trained("ppo", CONTINUOUS, 4, [20, 20, 20, 10])
    assert trainer.optimizer_steps == 2 * 4


def test_fewer_steps_than_a_minibatch_are_trained_at_once() -> None:
    """A buffer smaller than `batch_size` makes one step an epoch of all its whole parts."""
    trainer = trained("ppo", CONTINUOUS, 4, [20] * 4, batch_size=100)
    assert trainer.optimizer_steps == 2


def test_weights_of_parts_are_their_steps() -> None:
    """Parts of different length count by their steps; what was put aside is used once."""
    layer = torch.nn.Linear(1, 1, bias=False)
    optimizer = FlatAdam(layer, 0.1, SingleLearner())
    with torch.no_grad():
        for gradient, steps in ((1.0, 3), (5.0, 1)):
            layer.weight.grad = layer.weight.grad.fill_(gradient) if layer.weight.grad is not None else None
            optimizer.accumulate(steps)
        optimizer.step()
        assert float(optimizer.gradient_norm()) == 2.0
        optimizer.accumulate(1)
        optimizer.forget()
        optimizer.step()
    assert float(optimizer.gradient_norm()) == 2.0


def test_parts_must_be_equal() -> None:
    """A batch that cannot be divided is refused with both numbers."""
    sets = ["behaviors.A.hyperparameters.gradient_accumulation=3", "behaviors.A.trainer_type=ppo"]
    with pytest.raises(UserError, match="batch_size 1024 cannot be divided into gradient_accumulation 3 equal parts"):
        load_run_options(None, set_items=sets, environ={})
