"""Tests learned reward signals with replay memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from learner.shared.settings.hyperparameters import SACHyperparameters
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.replay_batches import Part
from learner.training.trainers.sac.trainer import SACTrainer, minibatch_losses
from tests.learner.training.networks.specs import behavior, entities, goal, vector
from tests.learner.training.trainers.in_process import Bench
from tests.learner.training.trainers.recurrent import RecurrentActor
from tests.learner.training.trainers.sac import started
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID, SyntheticActor

SMALL: Mapping[str, Any] = {"network_settings": {"hidden_units": 8, "normalize": True}}
SIGNALS: Mapping[str, Any] = {
    "extrinsic": {"gamma": 0.9},
    "curiosity": {"gamma": 0.8, "strength": 0.3, **SMALL},
    "rnd": {"gamma": 0.7, "strength": -0.2, **SMALL},
}
CROWDED = behavior(entities(), vector(), goal(), continuous=1, branches=(2, 3))


def make(
    spec: BehaviorSpec = CONTINUOUS, network: Mapping[str, Any] = MappingProxyType({}), **hyper: Any
) -> tuple[Bench, SACTrainer]:
    """Returns a started trainer with all signals and an update per step from the 20th on."""
    hyper = {"buffer_size": 1000, "buffer_init_steps": 20, "steps_per_update": 1, **hyper}
    return started.make(
        spec, hyper=hyper, network={"hidden_units": 8, "normalize": False, **network}, reward_signals=SIGNALS
    )


def run(bench: Bench, actor: SyntheticActor, trainer: SACTrainer, chunks: int) -> None:
    """Sends chunks of 20 steps and pays all updates that are owed for them."""
    for _ in range(chunks):
        bench.put(actor.chunk([20]))
        started.settle(trainer)


@pytest.mark.parametrize("spec", [CONTINUOUS, BRANCHES, CROWDED], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains_with_all_signals(spec: BehaviorSpec) -> None:
    """Signals learn from drawn steps, report under ML-Agents' names, and stay finite."""
    bench, trainer = make(spec)
    run(bench, SyntheticActor(bench), trainer, 3)
    reported = {name: summary.value for name, summary in bench.stats.write_stats(0).items()}
    assert trainer.optimizer_steps > 20
    for name in ("Curiosity Forward Loss", "Curiosity Inverse Loss", "RND Loss"):
        assert math.isfinite(reported[f"Losses/{name}"])
    assert all(math.isfinite(reported[f"Policy/{name} Value"]) for name in ("Extrinsic", "Curiosity", "Rnd"))
    assert bool(trainer.signals.is_finite())


def test_rewards_are_those_of_the_present_signals() -> None:
    """Drawn steps are evaluated by the current signals."""
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
    assert not torch.equal(before[:, 2], after[:, 2])


@pytest.mark.parametrize(("steps_per_update", "signal_steps", "share"), [(1.0, 4.0, 0.25), (4.0, 1.0, 4.0)])
def test_signals_learn_as_often_as_they_are_to(
    steps_per_update: float, signal_steps: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals update once per ``reward_signal_steps_per_update`` steps, independently of the policy."""
    bench, trainer = make(steps_per_update=steps_per_update, reward_signal_steps_per_update=signal_steps)
    count = 0
    update = trainer.signals.update

    def counted(transitions: Transitions) -> None:
        nonlocal count
        count += 1
        update(transitions)

    monkeypatch.setattr(trainer.signals, "update", counted)
    run(bench, SyntheticActor(bench), trainer, 4)
    assert count == pytest.approx(share * trainer.optimizer_steps, abs=max(1.0, share))


def test_signals_do_not_learn_for_ever() -> None:
    """An update of the policy makes at most a thousand updates of signals."""
    with pytest.raises(ValidationError, match="greater than or equal"):
        SACHyperparameters.model_validate({"reward_signal_steps_per_update": 1e-20})
    for steps, signal_steps, least in ((1.0, 1e-4, 1e-3), (20.0, 0.01, 0.02), (1.0, 0.5, 0.5)):
        found = SACHyperparameters(steps_per_update=steps, reward_signal_steps_per_update=signal_steps)
        assert found.reward_signal_steps_per_update == pytest.approx(least)


def test_what_a_saved_state_owes_is_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """The debt of signals in a saved state is limited to one update."""
    bench, trainer = make()
    trainer.load_state_dict({**trainer.state_dict(), "model": {**trainer.model_state(), "signal_steps": 1e300}})
    trainer.debt.free_steps = 0
    updates: list[Transitions] = []
    monkeypatch.setattr(trainer.signals, "update", updates.append)
    run(bench, SyntheticActor(bench), trainer, 1)
    assert trainer.optimizer_steps <= len(updates) <= trainer.optimizer_steps + 1


def test_signals_are_saved_with_the_trainer() -> None:
    """A trainer with other weights continues with the saved signals."""
    bench, trainer = make()
    run(bench, SyntheticActor(bench), trainer, 3)
    other = SACTrainer(bench.context(seed=99))
    other.load_state_dict(started.saved(trainer))
    rows, following = trainer.memory.draw(32)
    seen = trainer._batches.transitions(rows, following)
    assert torch.equal(trainer.signals.evaluate(seen), other.signals.evaluate(seen))


ENDS = [SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED, SegmentEnd.CUT, SegmentEnd.TERMINATED]


def ended(spec: BehaviorSpec, *, remembers: bool) -> SACTrainer:
    """Returns a trainer whose memory holds segments with every end, two of which begin an episode."""
    memory = {"memory_size": 6, "sequence_length": 5} if remembers else None
    bench, trainer = make(spec, network={"memory": memory}, buffer_init_steps=1000)
    actor = (RecurrentActor if remembers else SyntheticActor)(bench)
    lengths = [4, 3, 5, 8]
    columns: dict[str, NDArray[Any]] = {
        "end": np.array(ENDS, np.uint8),
        "first_step": np.array([0, 7, 0, 5], np.uint32),
    }
    if isinstance(actor, RecurrentActor):
        chunk = actor.play([(agent, steps, end) for agent, (steps, end) in enumerate(zip(lengths, ENDS, strict=True))])
        chunk.columns.update(columns)
    else:
        chunk = actor.chunk(lengths, columns=columns)
    bench.put(chunk)
    started.settle(trainer)
    return trainer


def bootstraps(trainer: SACTrainer, part: Part) -> torch.Tensor:
    """Returns what each step of a minibatch gets from the values after it, ``[B, K]``."""
    batch = trainer._batches.read(part)
    axes = trainer.policy.spec.action.continuous_size
    noise = torch.randn((2, part.steps, axes), generator=torch.Generator().manual_seed(0)) if axes else None
    return minibatch_losses(trainer.networks, batch, noise).targets - batch.rewards


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("spec", [CONTINUOUS, HYBRID, CROWDED], ids=lambda spec: spec.name)
def test_no_value_of_a_terminal_observation_counts(spec: BehaviorSpec, *, remembers: bool) -> None:
    """A terminal observation, which is never trained, changes no target; that of an interrupted episode does."""
    trainer = ended(spec, remembers=remembers)
    (part,) = trainer._batches.draw(64)
    storage, rows = trainer.memory.storage, part.places.rows
    before = bootstraps(trainer, part)
    is_terminal = storage["terminated"][rows].bool()
    assert 0 < int(is_terminal.sum()) < len(rows)
    assert not before[is_terminal, 0].any()
    assert before[is_terminal, 1:].all()
    finals = torch.tensor([4, 8, 14, 23])
    name = next(name for name in storage if name.endswith(("state", "vector")))
    for final, end in zip(finals, ENDS, strict=True):
        storage[name][final] += 3.0
        after = bootstraps(trainer, part)
        assert torch.equal(after, before) is (end == SegmentEnd.TERMINATED), (end, int(final))
        before = after


@pytest.mark.parametrize("remembers", [False, True])
def test_the_value_behind_an_end_is_that_of_a_beginning(*, remembers: bool) -> None:
    """Behind a terminal step, the policy and the targets see the start of an episode, without any memory."""
    trainer = ended(CONTINUOUS, remembers=remembers)
    with torch.no_grad():
        for logarithm in trainer.networks.temperatures.parameters():
            logarithm.fill_(-30.0)
    (part,) = trainer._batches.draw(500)
    batch = trainer._batches.read(part)
    storage = trainer.memory.storage
    is_terminal = storage["terminated"][part.places.rows].bool()
    starts = storage["obs/state"][trainer.memory.starts.live()[0]]
    assert len(starts) == 2
    noise = torch.zeros(2, part.steps, 2)
    found = minibatch_losses(trainer.networks, batch, noise).targets - batch.rewards
    networks = trainer.networks
    with torch.no_grad():
        memory = torch.zeros(2, 6) if remembers else None
        actions = torch.tanh(networks.policy([starts], None, memory).mean)
        sizes = torch.tensor([2]) if remembers else None
        values = networks.target.values(networks.target.encode([starts], sizes), actions).squeeze(3).amin(0)
    expected = trainer.signals.gamma[1:].float() * values[:, 1:]
    distances = (found[is_terminal, 1:].unsqueeze(1) - expected).abs().amax(2)
    assert float(distances.amin(1).max()) < 1e-5
    chosen = distances.argmin(1)
    assert set(chosen.tolist()) == {0, 1}
    true = trainer._batches.transitions(*part.places)
    torch.testing.assert_close(batch.rewards, trainer.signals.evaluate(true).float())
