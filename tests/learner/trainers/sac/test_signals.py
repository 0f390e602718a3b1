"""Reward signals that learn, in a trainer that draws from replay memory."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from rollcast.specs import BehaviorSpec

from learner.rewards.transitions import Transitions
from learner.settings.hyperparameters import SACHyperparameters
from learner.trainers.sac.trainer import SACTrainer
from tests.learner.networks.specs import behavior, entities, goal, vector
from tests.learner.trainers.in_process import Bench, make_bench
from tests.learner.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID, SyntheticActor

SMALL: Mapping[str, Any] = {"network_settings": {"hidden_units": 8, "normalize": True}}
SIGNALS: Mapping[str, Any] = {
    "extrinsic": {"gamma": 0.9},
    "curiosity": {"gamma": 0.8, "strength": 0.3, **SMALL},
    "rnd": {"gamma": 0.7, "strength": -0.2, **SMALL},
}
CROWDED = behavior(entities(), vector(), goal(), continuous=1, branches=(2, 3))


def make(spec: BehaviorSpec = CONTINUOUS, **hyper: Any) -> tuple[Bench, SACTrainer]:
    """A started trainer that takes one update a step from the 20th on."""
    settings = {
        "trainer_type": "sac",
        "hyperparameters": {"batch_size": 16, "buffer_size": 1000, "buffer_init_steps": 20, **hyper},
        "network_settings": {"hidden_units": 8},
        "reward_signals": SIGNALS,
        "time_horizon": 20,
        "max_steps": 100_000,
    }
    bench = make_bench(settings, spec)
    trainer = SACTrainer(bench.context())
    trainer.start()
    return bench, trainer


def run(bench: Bench, actor: SyntheticActor, trainer: SACTrainer, chunks: int) -> None:
    """Sends chunks of 20 steps and pays all updates that are owed for them."""
    for _ in range(chunks):
        bench.put(actor.chunk([20]))
        while trainer.advance():
            pass


@pytest.mark.parametrize("spec", [CONTINUOUS, BRANCHES, HYBRID, CROWDED], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains_with_all_signals(spec: BehaviorSpec) -> None:
    """Signals learn from the steps that are drawn, and report under ML-Agents' names; everything stays finite."""
    bench, trainer = make(spec)
    run(bench, SyntheticActor(bench), trainer, 3)
    reported = {name: summary.value for name, summary in bench.stats.write_stats(0).items()}
    assert trainer.optimizer_steps > 20
    for name in ("Curiosity Forward Loss", "Curiosity Inverse Loss", "RND Loss"):
        assert math.isfinite(reported[f"Losses/{name}"])
    assert all(math.isfinite(reported[f"Policy/{name} Value"]) for name in ("Extrinsic", "Curiosity", "Rnd"))
    assert bool(trainer.signals.is_finite())


def test_rewards_are_those_of_the_present_signals() -> None:
    """What is drawn twice is evaluated twice: a step that was new is not any more."""
    bench, trainer = make()
    run(bench, SyntheticActor(bench), trainer, 2)
    rows, following = trainer.memory.draw(32)
    seen = trainer._batches.transitions(rows, following)
    before = trainer.signals.evaluate(seen)
    for _ in range(50):
        trainer.signals.update(seen)
    after = trainer.signals.evaluate(seen)
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.equal(before[:, 1], after[:, 1])
    assert after[:, 2].abs().mean() < before[:, 2].abs().mean()


@pytest.mark.parametrize(("steps_per_update", "signal_steps", "share"), [(1.0, 4.0, 0.25), (4.0, 1.0, 4.0)])
def test_signals_learn_as_often_as_they_are_to(
    steps_per_update: float, signal_steps: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One update of theirs for every ``reward_signal_steps_per_update`` steps, more or fewer than the policy has."""
    bench, trainer = make(steps_per_update=steps_per_update, reward_signal_steps_per_update=signal_steps)
    count = 0
    update = trainer.signals.update

    def counted(transitions: Transitions) -> None:
        nonlocal count
        count += 1
        update(transitions)

    monkeypatch.setattr(trainer.signals, "update", counted)
    run(bench, SyntheticActor(bench), trainer, 6)
    assert count == pytest.approx(share * trainer.optimizer_steps, abs=max(1.0, share))


def test_signals_do_not_learn_for_ever() -> None:
    """An update of the policy brings at most a thousand of theirs; a step of next to nothing would not end at all."""
    for steps in (1e-20, 1e-4):
        with pytest.raises(ValidationError, match=r"reward_signal|greater than or equal"):
            SACHyperparameters.model_validate({"reward_signal_steps_per_update": steps})
    with pytest.raises(ValidationError, match="at most 1000 are allowed"):
        SACHyperparameters(steps_per_update=20.0, reward_signal_steps_per_update=0.01)
    assert SACHyperparameters(reward_signal_steps_per_update=1e-3).reward_signal_steps_per_update == 1e-3


def test_what_a_saved_state_owes_is_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state of other settings, or one that somebody wrote, does not keep signals learning for ever."""
    bench, trainer = make()
    trainer.load_state_dict({**trainer.state_dict(), "model": {**trainer.model_state(), "signal_steps": 1e300}})
    trainer.debt.free_steps = 0
    updates: list[Transitions] = []
    monkeypatch.setattr(trainer.signals, "update", updates.append)
    bench.put(SyntheticActor(bench).chunk([20]))
    while trainer.advance():
        pass
    assert trainer.optimizer_steps <= len(updates) <= trainer.optimizer_steps + 1


def test_signals_are_saved_with_the_trainer() -> None:
    """A trainer with other weights continues with theirs."""
    bench, trainer = make()
    run(bench, SyntheticActor(bench), trainer, 3)
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    file.seek(0)
    other = SACTrainer(bench.context(seed=99))
    other.load_state_dict(torch.load(file, weights_only=True))
    rows, following = trainer.memory.draw(32)
    seen = trainer._batches.transitions(rows, following)
    assert torch.equal(trainer.signals.evaluate(seen), other.signals.evaluate(seen))
