"""Tests the common parts of actor-critic trainers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.shared.exits import ExitCode, UserError
from learner.training.networks.encoders import VectorEncoder
from learner.training.networks.policy import PolicyOutput
from learner.training.rewards.learned import LearnedReward
from learner.training.trainers.actor_critic.experience import _BYTES_AT_ONCE, _ROWS_AT_ONCE
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, Loss, LossTerms
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.impala.trainer import impala_loss
from learner.training.trainers.ppo.trainer import PPOTrainer, ppo_loss
from tests.learner.training.networks.specs import behavior, entities, goal, vector
from tests.learner.training.trainers.in_process import CARTPOLE, Bench, make_bench
from tests.learner.training.trainers.loss_cases import make_batch, make_output, make_values
from tests.learner.training.trainers.recurrent import CUT, TERMINATED, RecurrentActor, recurrent_settings
from tests.learner.training.trainers.segments import experience_of, loop, of_chunk, of_steps
from tests.learner.training.trainers.started import KINDS, feed, make, make_kind, uninterrupted_and_resumed
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID, SyntheticActor


class _Reporting(PPOTrainer):
    """PPO whose loss reports an additional scalar."""

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        self.heard: list[Mapping[str, float]] = []

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        terms = super().loss(output, values, batch, coefficients)
        return LossTerms(terms.total, {**terms.scalars, "largest_return": batch.returns.max()})

    def after_update(self, scalars: Mapping[str, float]) -> None:
        self.heard.append(scalars)


def test_what_a_loss_reports_is_shown_and_handed_to_its_trainer() -> None:
    """A scalar of the loss is a statistic, and `after_update` gets its mean."""
    bench, trainer = make_kind(_Reporting, "ppo")
    feed(bench, SyntheticActor(bench), 1, trainer)
    (heard,) = trainer.heard
    assert set(heard) == {"policy_loss", "value_loss", "entropy", "largest_return"}
    assert heard["largest_return"] == bench.stats.value("Losses/Largest Return") != 0
    bench.put(SyntheticActor(bench, 9).chunk([20] * 4, columns={"reward": np.full(80, 3e38, np.float32)}))
    trainer.advance()
    assert (trainer.version, len(trainer.heard)) == (1, 1)


def _changed(change: Callable[[LossTerms, PPOTrainer, int], Any]) -> type[PPOTrainer]:
    """PPO whose loss returns the result of ``change``, which gets the trainer and the number of losses."""

    class Odd(PPOTrainer):
        losses = 0

        def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
            self.losses += 1
            changed: LossTerms = change(super().loss(output, values, batch, coefficients), self, self.losses)
            return changed

    return Odd


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda terms, *_: terms.total, "returned a Tensor: it must return LossTerms"),
        (
            lambda terms, *_: LossTerms(terms.total.detach(), terms.scalars),
            r"has a total of shape \[\], without a gradient",
        ),
        (
            lambda terms, *_: LossTerms(terms.total.expand(4, 1), terms.scalars),
            r"has a total of shape \[4, 1\]: it must be a scalar",
        ),
        (lambda terms, *_: LossTerms(terms.total, {}), "reports no scalars"),
        (
            lambda terms, *_: LossTerms(terms.total, {"x": terms.total.reshape(1)}),
            r"reports a tensor of shape \[1\] as 'x'",
        ),
        (
            lambda terms, _, losses: LossTerms(terms.total, {f"x{losses}": terms.total}),
            "reported first x1 and later x2",
        ),
    ],
)
def test_what_is_no_loss_is_told_in_one_line(change: Callable[..., Any], message: str) -> None:
    """An invalid loss ends the run with one line that names it and the correction."""
    bench, trainer = make_kind(_changed(change), "ppo")
    with pytest.raises(UserError, match=rf"the loss \S*Odd\.loss {message}") as caught:
        feed(bench, SyntheticActor(bench), 1, trainer)
    assert caught.value.exit_code is ExitCode.TRAINER_FAILED


def test_a_loss_that_takes_gradients_itself_changes_nothing() -> None:
    """Gradients that a loss drops or replaces do not affect the optimizer's."""

    def drops(terms: LossTerms, trainer: PPOTrainer, _: int) -> LossTerms:
        trainer.network.zero_grad()
        return terms

    def replaces(terms: LossTerms, trainer: PPOTrainer, _: int) -> LossTerms:
        for parameter in trainer.network.parameters():
            parameter.grad = torch.ones_like(parameter)
        return terms

    found = []
    for change in (lambda terms, *_: terms, drops, replaces):
        bench, trainer = make_kind(_changed(change), "ppo")
        feed(bench, SyntheticActor(bench), 2, trainer)
        found.append(trainer.optimizer.parameters)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


class _KeepingValues(PPOTrainer):
    """PPO whose loss sees how far values have moved."""

    keeps_values = True

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        self.moved: list[Tensor] = []

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        assert batch.old_values is not None
        self.moved.append((values - batch.old_values).detach().abs().max())
        return super().loss(output, values, batch, coefficients)


def test_a_loss_sees_the_values_from_before_the_update() -> None:
    """In the first minibatch the old values equal the critic's."""
    bench, trainer = make_kind(_KeepingValues, "ppo")
    feed(bench, SyntheticActor(bench), 1, trainer)
    assert trainer.moved[0] < 1e-5 < trainer.moved[-1]


SMALL: Mapping[str, Any] = {"network_settings": {"hidden_units": 8, "normalize": True}}
SIGNALS: Mapping[str, Any] = {
    "extrinsic": {"gamma": 0.95, "strength": 0.5},
    "curiosity": {"gamma": 0.9, "strength": 0.3, **SMALL},
    "rnd": {"gamma": 0.8, "strength": -0.2, **SMALL},
}
CROWDED = behavior(entities(), vector(), goal(), continuous=1, branches=(2, 3))
LISTS = behavior(entities(), vector(), entities("others", (3, 2)), branches=(3,))
LOSSES = ("Curiosity Forward Loss", "Curiosity Inverse Loss", "RND Loss", "Policy Loss", "Value Loss")


def state_tensors(state: Any, path: str = "") -> dict[str, Tensor]:
    """Returns every tensor of a nested state by its path."""
    if isinstance(state, Tensor):
        return {path: state}
    if not isinstance(state, Mapping):
        return {}
    return {name: found for key, part in state.items() for name, found in state_tensors(part, f"{path}/{key}").items()}


def values(bench: Bench) -> dict[str, float]:
    """Returns every statistic since the last call by name."""
    return {name: summary.value for name, summary in bench.stats.write_stats(0).items()}


def steps_of(trainer: ActorCriticTrainer) -> list[int]:
    """Returns the number of steps of each learned signal."""
    return [signal.optimizer.steps for signal in trainer.signals._signals if isinstance(signal, LearnedReward)]


@pytest.mark.parametrize(
    ("name", "spec", "hyper"),
    [
        *(
            ("ppo", spec, {"shared_critic": spec in {CARTPOLE, HYBRID}})
            for spec in (CARTPOLE, CONTINUOUS, BRANCHES, CROWDED)
        ),
        *((name, HYBRID, {"gradient_accumulation": parts}) for name in KINDS for parts in (1, 4)),
    ],
    ids=str,
)
def test_every_kind_of_behavior_trains_with_all_signals(name: str, spec: BehaviorSpec, hyper: dict[str, Any]) -> None:
    """Two updates have finite losses and one value per signal; signals learn from each minibatch or each part of one."""
    bench, trainer = make_kind(KINDS[name], name, spec, reward_signals=SIGNALS, hyper=hyper)
    before = state_tensors(trainer.signals.state_dict())
    feed(bench, SyntheticActor(bench), 2, trainer)
    after = state_tensors(trainer.signals.state_dict())
    reported = values(bench)
    assert all(math.isfinite(reported[f"Losses/{name}"]) for name in LOSSES)
    assert all(math.isfinite(reported[f"Policy/{name} Value Estimate"]) for name in ("Extrinsic", "Curiosity", "Rnd"))
    assert all(value.isfinite().all() for value in after.values())
    weight = "/curiosity/network/body.layers.linear.0.weight"
    assert not torch.equal(after[weight], before[weight])
    assert trainer.collected_rewards.keys() == {"extrinsic", "curiosity", "rnd"}
    assert trainer.collected_rewards["curiosity"] > 0 > trainer.collected_rewards["rnd"]
    (curious, surprised), parts = steps_of(trainer), hyper.get("gradient_accumulation", 1)
    assert curious == surprised
    assert 0 <= curious - parts * trainer.optimizer_steps < 4 * parts  # two updates of two epochs


def test_advantages_of_all_streams_are_averaged() -> None:
    """The mean of all signals' advantages is normalized; returns are separate.

    Returns of the signals continue after a terminal step, and extrinsic ones do not.
    """
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"buffer_size": 1000, "batch_size": 16, "lambd": 0.9, "normalize_values": False},
        "network_settings": {"hidden_units": 8},
        "reward_signals": SIGNALS,
        "time_horizon": 40,
    }
    lengths = [7, 1, 40, 3, 2, 1]
    bench = make_bench(settings, HYBRID)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    chunk = SyntheticActor(bench).chunk(lengths)
    for _ in range(2):  # the second buffer is evaluated by signals that have learned
        bench.put(chunk)
    trainer.collect()
    plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
    rows = torch.arange(0, sum(lengths))
    following = plan.rows[plan.steps + 1][: len(rows)]
    seen = trainer._maker.transitions.at(storage, plan.step_rows[: len(rows)], following, torch.zeros(len(rows)))
    trainer.signals.update(seen)
    experience = experience_of(trainer)
    given = of_chunk(trainer, chunk, (0.95, 0.9, 0.8), trainer.signals.evaluate(seen).numpy())
    expected = of_steps(given, loop(given, 0.9, 1.0, 1.0).advantages)
    values = of_steps(given, given.values)
    returns = experience.sources["returns"].values[: len(rows)].numpy()
    np.testing.assert_allclose(expected + values, returns, rtol=1e-4, atol=1e-5)
    mean = np.concatenate([expected.mean(1)] * 2)
    advantages = experience.sources["advantage"].values[:, 0].numpy()
    np.testing.assert_allclose((mean - mean.mean()) / mean.std(), advantages, rtol=1e-3, atol=1e-4)
    left = 1 - (expected.var(0).sum() / (expected + values).var(0).sum())
    assert float(experience.explained) == pytest.approx(left, rel=1e-3)
    assert experience.values.tolist() == pytest.approx(values.mean(0).tolist(), rel=1e-4)


def test_interrupted_training_equals_uninterrupted_training() -> None:
    """Five updates equal two, a save, a load and three more, bit for bit, with signals."""
    states = [trainer.state_dict() for trainer in uninterrupted_and_resumed(reward_signals=SIGNALS)]
    assert [{key: each[key] for key in each if key != "model"} for each in states[:1]] == [
        {key: each[key] for key in each if key != "model"} for each in states[1:]
    ]
    first, second = (state_tensors(state) for state in states)
    assert first.keys() == second.keys()
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []


@pytest.mark.parametrize("whose", ["the policy's", "a signal's"])
def test_an_update_that_is_not_finite_is_undone_with_its_signals(whose: str) -> None:
    """A non-finite update restores weights and statistics of the signals."""
    bench, trainer = make(reward_signals=SIGNALS, network={"normalize": False})
    actor = SyntheticActor(bench)
    feed(bench, actor, 1, trainer)
    before = state_tensors(trainer.model_state())
    if whose == "a signal's":
        (_, curiosity, _) = trainer.signals._signals
        rate, curiosity.optimizer.learning_rate = curiosity.optimizer.learning_rate, 1e30  # type: ignore[attr-defined]
        bench.put(SyntheticActor(bench, 9).chunk([20] * 4))
        trainer.advance()
        curiosity.optimizer.learning_rate = rate  # type: ignore[attr-defined]
    else:
        bench.put(SyntheticActor(bench, 9).chunk([20] * 4, columns={"reward": np.full(80, 3e38, np.float32)}))
        trainer.advance()
    assert trainer.version == 1
    after = state_tensors(trainer.model_state())
    moved = [name for name, value in after.items() if not torch.equal(value, before[name])]
    assert moved == ["/shuffle/state"]
    feed(bench, actor, 1, trainer)
    assert trainer.version == 2
    assert all(math.isfinite(value) for value in values(bench).values())


def test_episodes_are_told_what_each_signal_brings() -> None:
    """`Policy/<Signal> Reward` is the sum over an episode."""
    bench, trainer = make(reward_signals=SIGNALS)
    actor = SyntheticActor(bench)

    def update(end: SegmentEnd) -> dict[str, float]:
        ends = {"end": np.full(4, end, np.uint8)}
        bench.put(actor.chunk([20, 20, 20, 20], columns=ends))
        trainer.advance()
        return dict(trainer.collected_rewards)

    parts = [update(SegmentEnd.CUT), update(SegmentEnd.CUT)]
    assert "Policy/Rnd Reward" not in values(bench)
    parts.append(update(SegmentEnd.TRUNCATED))
    expected = {name: sum(part[name] for part in parts) / 4 for name in ("curiosity", "rnd")}
    reported = values(bench)
    assert reported["Policy/Curiosity Reward"] == pytest.approx(expected["curiosity"])
    assert reported["Policy/Rnd Reward"] == pytest.approx(expected["rnd"])


@pytest.mark.parametrize("name", KINDS)
def test_a_signal_alone_is_enough(name: str) -> None:
    """Without extrinsic, the environment's reward does not change the weights."""
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


def trained(parts: int, lengths: Sequence[int] = (20,) * 4, **hyper: object) -> ActorCriticTrainer:
    """Trains one update on the same steps, each minibatch in so many parts."""
    bench, trainer = make(HYBRID, hyper={"gradient_accumulation": parts, **hyper})
    bench.put(SyntheticActor(bench).chunk(list(lengths)))
    assert trainer.advance()
    return trainer


def remembered(parts: int) -> ActorCriticTrainer:
    """Trains one update of a network with a memory; sequences of four steps and shorter ones."""
    bench = make_bench(recurrent_settings(hyper={"gradient_accumulation": parts}), CONTINUOUS)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    bench.put(RecurrentActor(bench).play([(0, 10, CUT), (1, 10, CUT), (2, 10, TERMINATED), (3, 10, CUT), (4, 7, CUT)]))
    assert trainer.advance()
    return trainer


@pytest.mark.parametrize(
    ("train", "parts"),
    [(trained, 4), (partial(trained, max_grad_norm=0.05), 4), (remembered, 2)],
    ids=["plain", "clipped", "memory"],
)
def test_parts_add_up_to_the_gradient_of_the_whole(train: Callable[[int], ActorCriticTrainer], parts: int) -> None:
    """Parts give the same weights and number of steps as whole minibatches, and clip the whole gradient."""
    whole, divided = train(1), train(parts)
    assert whole.optimizer_steps == divided.optimizer_steps
    for key, value in whole.network.state_dict().items():
        torch.testing.assert_close(divided.network.state_dict()[key], value, rtol=1e-3, atol=2e-6, msg=key)


def test_the_number_of_minibatches() -> None:
    """Steps that make no whole minibatch are left out; fewer steps than `batch_size` are trained at once."""
    assert trained(4).optimizer_steps == 2 * (80 // 16)
    assert trained(4, [20, 20, 20, 10]).optimizer_steps == 2 * 4  # 64 of 70
    assert trained(4, batch_size=100).optimizer_steps == 2


@pytest.mark.parametrize("name", KINDS)
def test_the_run_file_weighs_the_value_loss(name: str) -> None:
    """It is a half without a word; with 0 the critic learns nothing."""
    bench, trainer = make_kind(KINDS[name], name)
    assert trainer._coefficients().value == 0.5
    bench, trainer = make_kind(KINDS[name], name, hyper={"value_coefficient": 0.0, "normalize_values": False})
    before = trainer.network.value_head.values.weight.clone()
    feed(bench, SyntheticActor(bench), 1, trainer)
    assert torch.equal(trainer.network.value_head.values.weight, before)


def test_normalized_observations_are_clipped_as_the_run_file_says() -> None:
    """In actor and critic, and in what actors run; at 5 without a word."""
    for network, clip in (({}, 5.0), ({"observation_clip": 10.0}, 10.0)):
        _, trainer = make_kind(PPOTrainer, "ppo", network=network)
        encoders = [each for each in trainer.network.modules() if isinstance(each, VectorEncoder) and each.normalizer]
        assert len(encoders) >= 2
        for encoder in encoders:
            assert float(encoder(torch.full((1, encoder.size), 1e9)).max()) == clip


@pytest.mark.parametrize(("ratio", "shared_critic"), [("per_action", False), ("joint", True)])
@pytest.mark.parametrize(
    "spec",
    [CARTPOLE, CONTINUOUS, BRANCHES, HYBRID, CROWDED, LISTS],
    ids=["cartpole", "continuous", "branches", "hybrid", "goal and list", "lists"],
)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_behavior_trains(name: str, spec: BehaviorSpec, ratio: str, *, shared_critic: bool) -> None:
    """Two updates change every weight, agree with actors, and balance the books."""
    hyper = {"ratio": ratio, "shared_critic": shared_critic}
    bench, trainer = make_kind(KINDS[name], name, spec, hyper=hyper, network={"num_layers": 1 + shared_critic})
    before = {key: value.clone() for key, value in trainer.network.named_parameters()}
    actor = SyntheticActor(bench, masked=not shared_critic and bool(spec.action.discrete_branches))
    for _ in range(2):
        feed(bench, actor, 1, trainer)
        assert trainer.numbers["log_prob_error_max"] < 1e-4
    after = dict(trainer.network.named_parameters())
    same = [key for key, value in after.items() if torch.equal(value, before[key])]
    assert [key for key in same if not key.endswith("key.bias")] == []  # it adds the same to all scores of a row
    books = bench.ledger.books(spec.name)
    assert books.balanced
    assert (books.trained, trainer.get_step) == (
        trainer.steps_trained,
        trainer.steps_trained + trainer.update_buffer.taken_steps,
    )


def test_long_lists_are_valued_in_small_parts() -> None:
    """Values of long lists are computed in parts that fit the bound."""
    _, trainer = make(behavior(entities(shape=(400, 3)), branches=(2,)))
    rows = trainer._maker._rows_at_once
    scores = 4 * 4 * 400 * 400  # of each head, of which a forward pass has three at once
    assert rows == _BYTES_AT_ONCE // (3 * scores) < _ROWS_AT_ONCE
    _, plain = make(CONTINUOUS)
    assert plain._maker._rows_at_once == _ROWS_AT_ONCE


@pytest.mark.parametrize(("name", "loss"), [("ppo", ppo_loss), ("appo", ppo_loss), ("impala", impala_loss)])
def test_each_trainer_has_its_loss(name: str, loss: Loss) -> None:
    """PPO and APPO have the clipped surrogate, and IMPALA has V-trace's."""
    _, trainer = make_kind(KINDS[name], name)
    given = (
        make_output(),
        make_values(),
        make_batch(make_output(), "joint"),
        Coefficients(0.2, 0.01, "joint", rho_bar=1.1),
    )
    assert float(trainer.loss(*given).total) == float(loss(*given).total)
