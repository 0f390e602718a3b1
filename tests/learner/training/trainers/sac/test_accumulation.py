"""Tests that divided minibatches of SAC teach the same as whole ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.shared.exits import UserError
from learner.shared.settings.load import load_run_options
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.networks.specs import behavior, goal, vector
from tests.learner.training.trainers.in_process import CARTPOLE
from tests.learner.training.trainers.recurrent import RecurrentActor
from tests.learner.training.trainers.sac.started import feed, make
from tests.learner.training.trainers.sac.test_recurrent import make_recurrent, play
from tests.learner.training.trainers.sac.test_trainer import weights
from tests.learner.training.trainers.synthetic import CONTINUOUS, HYBRID, SyntheticActor

GOALS = behavior(goal(), vector(), continuous=1, branches=(3,))


def trained(spec: BehaviorSpec, parts: int, **hyper: Any) -> SACTrainer:
    """Makes two updates on the same steps with the same noise, each minibatch in so many parts."""
    bench, trainer = make(spec, hyper={"gradient_accumulation": parts, "steps_per_update": 20, **hyper})
    draw, pieces = trainer.noise, list[Tensor]()

    def cut(both: int, steps: int) -> Tensor | None:
        if not pieces:
            noise = draw(both, steps * parts)
            pieces.extend([] if noise is None else torch.split(noise, steps, 1))
        return pieces.pop(0) if pieces else None

    trainer.noise = cut  # type: ignore[assignment, method-assign]
    feed(bench, SyntheticActor(bench), trainer, 2)
    return trainer


def same(one: SACTrainer, other: SACTrainer) -> None:
    """Compares weights, moments and gradients, which say more than Adam's first steps do."""
    for name, value in weights(one).items():
        torch.testing.assert_close(
            weights(other)[name],
            value,
            rtol=1e-3,
            atol=2e-5,
            msg=lambda text, name=name: f"{name}: {text}",  # type: ignore[misc]
        )
    for name, optimizer in one.optimizers.items():
        found, wanted = other.optimizers[name].state_dict()["first"], optimizer.state_dict()["first"]
        for key, value in wanted.items():
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-6, msg=f"{name} {key}")


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("spec", [CARTPOLE, CONTINUOUS, HYBRID, GOALS], ids=lambda spec: spec.name)
def test_parts_add_up_to_the_gradient_of_the_whole(spec: BehaviorSpec, clip: float | None) -> None:
    """Parts give the gradients of policy, critics and temperatures, and clip the whole gradient."""
    whole, parts = (trained(spec, count, max_grad_norm=clip) for count in (1, 4))
    assert whole.optimizer_steps == parts.optimizer_steps == 2
    same(whole, parts)


def test_sequences_of_parts_add_up_too() -> None:
    """Parts of whole sequences with different lengths add up to the same gradient."""
    trainers = []
    for count in (1, 2):
        bench, trainer = make_recurrent(CARTPOLE, hyper={"gradient_accumulation": count, "steps_per_update": 21})
        play(bench, RecurrentActor(bench), trainer, 2)
        trainers.append(trainer)
    assert trainers[0].optimizer_steps == trainers[1].optimizer_steps == 2
    drawn = trainers[1]._batches.draw(16, 2)
    assert [part.sequences.sequences for part in drawn if part.sequences is not None] == [2, 2]
    same(*trainers)


def test_signals_learn_from_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals learn as often as from whole minibatches."""
    bench, trainer = make(
        reward_signals={"extrinsic": {}, "curiosity": {}}, hyper={"gradient_accumulation": 4, "steps_per_update": 20}
    )
    seen: list[Transitions] = []
    monkeypatch.setattr(trainer.signals, "update", seen.append)
    feed(bench, SyntheticActor(bench), trainer, 2)
    assert [len(each.reward) for each in seen] == [4] * 8


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["hyperparameters.gradient_accumulation=3"], "batch_size 128 cannot be divided into .* 3 equal parts"),
        (["trainer_type=ppo", "hyperparameters.gradient_accumulation=3"], "batch_size 1024 cannot be divided into"),
        (
            ["hyperparameters.gradient_accumulation=4", "network_settings.memory.sequence_length=64"],
            "sequence_length is 64, more than hyperparameters.batch_size 128 in 4 parts",
        ),
    ],
)
def test_parts_must_be_equal(sets: list[str], message: str) -> None:
    """A batch that cannot be divided, or a sequence longer than a part, is refused."""
    with pytest.raises(UserError, match=message):
        load_run_options(None, set_items=[f"behaviors.A.{each}" for each in ["trainer_type=sac", *sets]], environ={})
