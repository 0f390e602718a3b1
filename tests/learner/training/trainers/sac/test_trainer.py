"""Tests the SAC trainer without the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
import torch
from rollcast.specs import BehaviorSpec

from learner.shared.exits import ExitCode, UserError
from learner.training.buffers.replay_file import FILE_NAME
from learner.training.trainers import replay
from learner.training.trainers.rl import TrainerFailedError
from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.networks.specs import behavior, entities, goal, image, vector
from tests.learner.training.trainers.in_process import CARTPOLE
from tests.learner.training.trainers.sac.started import feed, make, resumed, saved, settle
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID, SyntheticActor

SEEN = behavior(entities(), goal(), vector(), continuous=1, branches=(3,))
BOARD = behavior(image(shape=(5, 4, 3)), vector(), branches=(20, 2))
BOARD_AND_AXIS = behavior(image(shape=(5, 4, 3)), continuous=1, branches=(20,))


def weights(trainer: SACTrainer) -> dict[str, torch.Tensor]:
    """Returns a copy of all parameters and buffers."""
    return {name: value.clone() for name, value in trainer.networks.state_dict().items()}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "spec", [CARTPOLE, CONTINUOUS, BRANCHES, HYBRID, SEEN, BOARD, BOARD_AND_AXIS], ids=lambda spec: spec.name
)
def test_every_kind_of_behavior_trains(spec: BehaviorSpec, *, masked: bool) -> None:
    """Updates change every parameter of policy, critics, targets and temperatures, and balance the books."""
    is_board = spec in {BOARD, BOARD_AND_AXIS}
    bench, trainer = make(spec, network={"tower": {"depth": 1, "width": 4}} if is_board else {})
    before = weights(trainer)
    actor = SyntheticActor(bench, masked=masked and bool(spec.action.discrete_branches))
    feed(bench, actor, trainer, 3)
    after = weights(trainer)
    assert all(value.isfinite().all() for value in after.values())
    parameters = {name for name, _ in trainer.networks.named_parameters()}
    assert ("critic.encoder.stem.weight" in parameters) == is_board
    assert not [name for name in parameters if torch.equal(after[name], before[name])]
    books = bench.ledger.books(spec.name)
    assert books.balanced
    assert books.trained == trainer.steps_trained == trainer.get_step == 60
    assert trainer.version == 30


def test_updates_follow_the_steps() -> None:
    """Updates start after the initial steps, one for every second step, each with a version."""
    bench, trainer = make(hyper={"buffer_init_steps": 50})
    actor = SyntheticActor(bench)
    feed(bench, actor, trainer, 2)
    assert (trainer.version, trainer.get_step, trainer.ring.steps) == (0, 40, 40)
    feed(bench, actor, trainer, 3)
    assert (trainer.version, trainer.optimizer_steps, trainer.get_step) == (25, 25, 100)


def test_the_first_actions_may_be_uniform() -> None:
    """Versions are uniform until the first update after buffer_init_steps, and not again after a restart."""
    bench, trainer = make(hyper={"buffer_init_steps": 50, "buffer_init_actions": "uniform"})
    actor = SyntheticActor(bench)
    feed(bench, actor, trainer, 2)
    young = saved(trainer)
    assert [progress.uniform for progress in bench.published.progress] == [True]
    feed(bench, actor, trainer, 2)
    published = [(progress.version > 0, progress.uniform) for progress in bench.published.progress]
    assert len(published) > 1
    assert all(is_trained is not is_uniform for is_trained, is_uniform in published)
    for state, is_uniform in ((young, True), (saved(trainer), False)):
        again = SACTrainer(bench.context())
        again.load_state_dict(state)
        again.start()
        assert bench.published.progress[-1].uniform is is_uniform
    plain, started = make(hyper={"buffer_init_steps": 50})
    feed(plain, SyntheticActor(plain), started, 2)
    assert [progress.uniform for progress in plain.published.progress] == [False]


def test_no_update_comes_before_there_is_a_minibatch() -> None:
    """Updates owed before there is a minibatch are made once there is one."""
    bench, trainer = make(hyper={"batch_size": 30})
    actor = SyntheticActor(bench)
    feed(bench, actor, trainer)
    assert trainer.version == 0
    feed(bench, actor, trainer)
    assert trainer.version == 20


def test_a_chunk_is_taken_in_only_while_little_is_owed() -> None:
    """A chunk waits in the queue while too many updates are owed, and gets no credit."""
    bench, trainer = make(hyper={"max_update_debt": 10, "buffer_init_steps": 0})
    actor = SyntheticActor(bench)
    for _ in range(4):
        bench.put(actor.chunk([10, 7, 3]))
    trainer.collect()
    trainer.settle()
    # The first two are taken: no update is possible before sixteen steps, and ten are owed after them.
    assert (trainer.owed, trainer.ring.steps, trainer.ring.staged_steps) == (20, 40, 40)
    pace = bench.behavior.queue.pace
    assert (pace.owed_steps, pace.ahead_limit_steps) == (40, 20)
    assert bench.table.unsettled_steps(bench.behavior) == 80
    books = bench.ledger.books("Continuous")
    assert (books.trained, books.queued) == (40, 40)
    settle(trainer)
    assert (trainer.version, trainer.owed, trainer.ring.staged_steps) == (40, 0, 0)
    assert bench.behavior.queue.pace.owed_steps == 0
    assert not bench.ledger.books("Continuous").dropped


def test_versions_are_skipped_by_broadcasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version is published every 50 updates or 20 ms, or whenever the trainer is idle."""
    monkeypatch.setattr(replay, "PUBLISH_SECONDS", 1e9)
    bench, trainer = make(hyper={"steps_per_update": 0.25})
    feed(bench, SyntheticActor(bench), trainer, 2)
    assert [progress.version for progress in bench.published.progress] == [0, 50, 100, 150]
    assert trainer.version == 160
    newest = bench.published.progress[-1]
    assert (newest.optimizer_steps, newest.env_steps_trained) == (150, 40)
    monkeypatch.setattr(replay, "PUBLISH_SECONDS", 0.0)
    trainer.collect()
    assert bench.published.progress[-1].version == 160
    published = bench.published.state
    assert all(torch.equal(value, published[name]) for name, value in trainer.policy.state_dict().items())


def test_old_steps_are_as_good_as_new_ones() -> None:
    """Steps of any lag are trained, and those of an older generation are dropped."""
    bench, trainer = make(service={"max_policy_lag": 1})
    actor = SyntheticActor(bench)
    assert bench.behavior.max_policy_lag == 0
    old = [actor.chunk([20]) for _ in range(3)]
    feed(bench, actor, trainer, 3)
    for chunk in old:
        bench.put(chunk)
    bench.put(actor.chunk([20], generation=7))
    settle(trainer)
    books = bench.ledger.books("Continuous")
    assert (books.trained, books.dropped) == (120, {"generation": 20})


def test_targets_follow_slowly() -> None:
    """After one update with tau 0.25 the target has moved a quarter of the way."""
    bench, trainer = make(hyper={"tau": 0.25, "steps_per_update": 20})
    before = {name: value.clone() for name, value in trainer.networks.target.named_parameters()}
    feed(bench, SyntheticActor(bench), trainer)
    assert trainer.version == 1
    critic = dict(trainer.networks.critic.named_parameters())
    for name, value in trainer.networks.target.named_parameters():
        torch.testing.assert_close(value, before[name] * 0.75 + critic[name] * 0.25, rtol=1e-4, atol=1e-6)


def test_every_network_sees_the_same_statistics() -> None:
    """Policy, critics, targets and published policies have equal normalizers."""
    bench, trainer = make()
    feed(bench, SyntheticActor(bench), trainer, 2)
    state = trainer.networks.state_dict()
    means = [value for name, value in state.items() if name.endswith("normalizer.mean")]
    assert len(means) == 3
    assert means[0].any()
    assert all(torch.equal(means[0], mean) for mean in means)


def test_what_is_reported() -> None:
    """Statistics have ML-Agents' names and consistent values."""
    bench, trainer = make(HYBRID)
    feed(bench, SyntheticActor(bench), trainer, 2)
    for name in (
        "Losses/Policy Loss",
        "Losses/Value Loss",
        "Losses/Q1 Loss",
        "Losses/Q2 Loss",
        "Policy/Entropy",
        "Policy/Learning Rate",
        "Policy/Extrinsic Value",
        "Policy/Continuous Entropy Coeff",
        "Policy/Discrete Entropy Coeff",
    ):
        assert bench.stats.summary(name) is not None, name
    assert np.isfinite([trainer.numbers[name] for name in ("loss", "grad_norm", "entropy_nats")]).all()


def test_updates_that_are_not_finite_are_undone() -> None:
    """Non-finite updates are undone up to 50 updates back, and the third turn in a row raises."""
    bench, trainer = make(network={"normalize": False}, hyper={"max_update_debt": 1000})
    actor = SyntheticActor(bench)
    before = weights(trainer)
    feed(bench, actor, trainer)
    settled = trainer.version
    poison = np.full(20, 3e38, np.float32)
    bench.put(actor.chunk([20], columns={"reward": poison}))
    trainer.advance()
    assert all(torch.equal(value, before[name]) for name, value in weights(trainer).items())
    trainer.publish_present()
    assert trainer.version == bench.published.progress[-1].version == settled + 1
    assert all(torch.equal(value, before[f"policy.{name}"]) for name, value in bench.published.state.items())

    def poisoned() -> None:
        for _ in range(2):  # a turn each at least, more where updates take long
            bench.put(actor.chunk([20], columns={"reward": poison}))
            settle(trainer)

    with pytest.raises(TrainerFailedError, match=r"3 updates of Continuous in a row.*lower learning_rate"):
        poisoned()
    assert bench.ledger.books("Continuous").balanced
    assert all(value.isfinite().all() for value in bench.published.state.values())


@pytest.mark.parametrize("spec", [CONTINUOUS, HYBRID], ids=lambda spec: spec.name)
def test_interrupted_training_equals_uninterrupted_training(spec: BehaviorSpec, tmp_path: Path) -> None:
    """With its replay memory a resumed run continues bit for bit."""
    results = []
    for interrupted in (False, True):
        bench, trainer = make(spec, hyper={"save_replay_buffer": True, "steps_per_update": 3})
        actor = SyntheticActor(bench)
        feed(bench, actor, trainer, 12)
        if interrupted:
            trainer = resumed(bench, trainer, tmp_path)
        feed(bench, actor, trainer, 3)
        results.append((weights(trainer), trainer.state_dict()))
    (first, one), (second, two) = results
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert {key: one[key] for key in one if key != "model"} == {key: two[key] for key in two if key != "model"}
    assert (tmp_path / FILE_NAME).exists()


def test_without_its_memory_a_run_fills_it_again(tmp_path: Path) -> None:
    """Without its memory a resumed run makes no update before buffer_init_steps."""
    bench, trainer = make(hyper={"buffer_init_steps": 40})
    actor = SyntheticActor(bench)
    feed(bench, actor, trainer, 4)
    assert trainer.version == 20
    trainer.save_experience(tmp_path)
    assert not list(tmp_path.iterdir())
    again = SACTrainer(bench.context())
    again.load_state_dict(saved(trainer))
    again.load_experience(tmp_path)
    again.start()
    feed(bench, actor, again, 2)
    assert again.version == 20
    feed(bench, actor, again)
    assert (again.version, again.get_step) == (30, 140)


def test_a_memory_that_cannot_be_read_costs_its_steps_only(tmp_path: Path) -> None:
    """A damaged memory file is a warning, and weights and steps are restored."""
    bench, trainer = make(hyper={"save_replay_buffer": True})
    feed(bench, SyntheticActor(bench), trainer, 3)
    trainer.save_experience(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:500])
    again = SACTrainer(bench.context())
    again.load_state_dict(saved(trainer))
    with structlog.testing.capture_logs() as logs:
        again.load_experience(tmp_path)
    assert (again.ring.steps, again.get_step, again.version) == (0, 60, 30)
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning["event"] == "replay_not_loaded"
    assert "is damaged" in warning["reason"]


def test_an_initial_state_brings_the_networks_alone() -> None:
    """An initial state brings weights, moments, temperatures and statistics; steps start at 0."""
    bench, trainer = make()
    feed(bench, SyntheticActor(bench), trainer, 2)
    _, other = make()
    other.load_initial_state(saved(trainer))
    assert all(torch.equal(value, weights(other)[name]) for name, value in weights(trainer).items())
    assert (other.version, other.get_step, other.owed, other.ring.steps) == (0, 0, 0, 0)


def test_the_state_of_another_trainer_is_refused() -> None:
    """A state of another trainer is an error of one line."""
    _, trainer = make()
    with pytest.raises(UserError, match="of trainer ppo"):
        trainer.load_state_dict({**saved(trainer), "trainer_type": "ppo"})


def test_training_ends_with_everything_paid() -> None:
    """At max_steps owed updates are made, waiting steps are dropped, and the last version is published."""
    bench, trainer = make(max_steps=100, hyper={"max_update_debt": 0})
    actor = SyntheticActor(bench)
    for _ in range(8):
        bench.put(actor.chunk([10, 7, 3]))
    assert trainer.should_still_train
    settle(trainer)
    assert not trainer.should_still_train
    assert (trainer.get_step, trainer.version) == (100, 50)
    trainer.finish()
    trainer.settle()
    assert bench.published.progress[-1].version == 50
    books = bench.ledger.books("Continuous")
    assert (books.trained, books.dropped) == (100, {"not_training": 60})
    assert bench.behavior.queue.pace.owed_steps == 0


@pytest.mark.parametrize("saves", [False, True])
def test_the_end_of_training_drops_what_waits(*, saves: bool) -> None:
    """At the end of training waiting steps are dropped, and an unsaved memory is freed."""
    bench, trainer = make(hyper={"max_update_debt": 0, "save_replay_buffer": saves})
    actor = SyntheticActor(bench)
    for _ in range(4):
        bench.put(actor.chunk([10, 7, 3]))
    trainer.collect()
    held = trainer.ring.steps
    trainer.finish()
    assert trainer.ring.steps == (held if saves else 0)
    assert (trainer.ring.capacity_steps > 0) == saves
    trainer.finish()
    trainer.settle()
    assert bench.ledger.books("Continuous").dropped == {"not_training": 80 - held}


def test_what_is_no_loss_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid loss is one line that names it and the correction."""
    right = SACTrainer.loss
    odd: Any = {"x": 0.5}
    monkeypatch.setattr(SACTrainer, "loss", lambda self, batch: right(self, batch)._replace(scalars=odd))
    bench, trainer = make()
    with pytest.raises(UserError, match="reports a float as 'x': it must be a tensor without axes") as caught:
        feed(bench, SyntheticActor(bench), trainer)
    assert caught.value.exit_code is ExitCode.TRAINER_FAILED
