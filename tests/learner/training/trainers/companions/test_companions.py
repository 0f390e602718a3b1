"""Tests trainers of further models beside the policy."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import Purpose, SegmentEnd
from rollcast.errors import Untrainable
from structlog.testing import capture_logs

from learner.shared.exits import ExitCode, UserError
from learner.training.buffers.replay import replay_row_bytes
from learner.training.run.run import failure_of
from learner.training.trainers.base import Trainer
from learner.training.trainers.companions.data import DataUser, data_sizes
from learner.training.trainers.companions.group import SAVED_SECONDS, Companions, build_companions
from learner.training.trainers.companions.turns import CompanionTurns
from learner.training.trainers.memory_estimate import estimate_memory
from learner.training.trainers.registry import build
from tests.clock import Clock
from tests.learner.training.trainers.companions import toys
from tests.learner.training.trainers.companions.toys import World
from tests.learner.training.trainers.in_process import CARTPOLE, Bench, make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor

SMALL = {"min_buffer_size": 10, "min_new_data_count": 5}
"""A companion that trains soon."""
NEVER = {"hyperparameters": {"buffer_size": 10_000, "batch_size": 16}}
"""A policy that does not."""


class Run:
    """A trainer with companions, and an actor.

    Args:
        companions: Settings by name.
        clock: Decides how long they train; None trains as in lock-step.
        changes: Further settings of the behavior.
    """

    def __init__(
        self, companions: dict[str, Any], clock: Callable[[], float] | None = None, seed: int = 1, **changes: Any
    ) -> None:
        settings = {"network_settings": {"hidden_units": 8, "num_layers": 1}, "time_horizon": 20, **NEVER, **changes}
        self.bench: Bench = make_bench({**settings, "companions": companions}, CONTINUOUS)
        context = self.bench.context()
        built = build_companions(context.behavior, context.stats, context.device, seed, in_rounds=clock is None)
        if clock is not None:
            built._clock = clock
        self.trainer: Trainer = build(replace(context, companions=built))
        self.trainer.start()
        self.actor = SyntheticActor(self.bench)

    @property
    def companions(self) -> Companions:
        """All of them."""
        return self.trainer.context.companions

    def one(self, name: str = toys.WORLD) -> Any:
        """Returns a companion."""
        return self.companions._turns[name].companion

    def data(self, name: str = "experience") -> DataUser:
        """Returns a data buffer."""
        return self.companions._data[name]

    def receive(self, *lengths: int, **changes: Any) -> None:
        """Lets a chunk with segments of these lengths arrive."""
        self.bench.put(self.actor.chunk(list(lengths), **changes))
        self.trainer.advance()

    def save(self) -> dict[str, Any]:
        """Returns the trainer's state as a file keeps it."""
        content = io.BytesIO()
        torch.save(self.trainer.state_dict(), content)
        content.seek(0)
        state: dict[str, Any] = torch.load(content, weights_only=True)
        return state


def weights(companion: World) -> torch.Tensor:
    """Returns the parameters that train."""
    return torch.nn.utils.parameters_to_vector(companion.get_training_model("world").parameters()).detach().clone()


def read_only(companion: World) -> torch.Tensor:
    """Returns the parameters of the copy."""
    return torch.nn.utils.parameters_to_vector(companion.get_inference_model("world").parameters()).detach().clone()


def test_it_trains_from_the_policys_experience() -> None:
    """A training needs enough steps in the buffer, and enough new ones; its loss is a statistic."""
    run = Run({toys.WORLD: SMALL})
    world = run.one()
    first = weights(world)
    run.receive(9)
    run.companions.take_turns()
    assert (len(run.data()), world.trainings) == (9, 0), "too few steps"
    run.receive(3)
    run.companions.take_turns()
    assert (len(run.data()), world.trainings) == (12, 1)
    assert world.calls == ["setup", *4 * ["step"], "teardown"]
    assert not torch.equal(weights(world), first)
    assert torch.equal(weights(world), read_only(world))
    summary = run.bench.stats.summary("Losses/World")
    assert summary is not None
    assert summary.count == 4
    run.receive(4)
    run.companions.take_turns()
    assert world.trainings == 1, "too few new steps"
    run.receive(1)
    run.companions.take_turns()
    assert world.trainings == 2


def test_companions_share_data_and_models_by_name() -> None:
    """All read the same buffers, and one trains another's model."""
    run = Run({toys.WORLD: SMALL, toys.READER: {**SMALL, "data": "recent"}}, data_buffers={"recent": {"max_steps": 12}})
    reader = run.one(toys.READER)
    assert reader.other is run.one().get_training_model("world")
    assert reader.get_inference_model("world") is run.companions.models.get_inference_model("world")
    chunk = run.actor.chunk([8, 5], columns={"end": np.array([SegmentEnd.TERMINATED, SegmentEnd.CUT], np.uint8)})
    run.bench.put(chunk)
    run.trainer.advance()
    run.companions.take_turns()
    assert (len(run.data()), len(run.data("recent"))) == (13, 12)
    rewards, terminated = reader.seen
    assert rewards == chunk.columns["reward"][1:].tolist(), "the newest, oldest first"
    assert np.flatnonzero(terminated).tolist() == [6]
    seen = run.data().get_data()
    assert torch.equal(seen.next_observations[0][:7], seen.observations[0][1:8])
    assert torch.equal(seen.next_observations[0][[7, 12]], torch.from_numpy(chunk.columns["final_obs/state"]))
    assert seen.continuous is not None
    assert torch.equal(seen.continuous, torch.from_numpy(chunk.columns["continuous_action"]))


def test_only_trainable_steps_are_copied() -> None:
    """Evaluations, and segments longer than a time horizon, are not."""
    run = Run({toys.READER: SMALL, toys.WORLD: SMALL}, data_buffers={"experience": {"max_steps": 30}})
    purposes = np.array([Purpose.EVALUATE, Purpose.TRAIN], np.uint8)
    run.receive(4, 3, columns={"purpose": purposes})
    run.receive(len(run.data()) + 60)
    assert (len(run.data()), run.data().added) == (3, 3)


def test_memory_is_bounded_in_bytes() -> None:
    """A buffer holds as many steps as its bytes allow, and one that is too small is refused with the way out."""
    run = Run({toys.WORLD: SMALL}, data_buffers={"experience": {"max_bytes": "8 KiB"}})
    memory = run.data()._memory
    taken = sum(each.numel() * each.element_size() for each in memory.storage.values())
    assert taken <= 8 * 1024
    most = memory.capacity_steps
    for _ in range(most):
        run.receive(20)
    assert len(run.data()) == most
    with pytest.raises(UserError, match=r"min_buffer_size is 10000, but the data buffer 'experience' has room for \d+"):
        Run({toys.WORLD: {"min_buffer_size": 10_000}}, data_buffers={"experience": {"max_bytes": "8 KiB"}})
    with pytest.raises(UserError, match="max_bytes is 1 KiB, but a segment of time_horizon 20 steps needs 2 KiB"):
        Run({toys.WORLD: SMALL}, data_buffers={"experience": {"max_bytes": "1 KiB"}})


def test_the_policy_keeps_its_pace() -> None:
    """A companion trains in its share of the time, and continues where it was interrupted; the copy waits for the end."""
    clock = Clock()
    run = Run({toys.WORLD: {**SMALL, "max_share": 0.25, "steps": 3}}, clock)
    world = run.one()
    before = read_only(world)
    run.receive(10)
    inner = world.add_stat

    def step(key: str, value: float) -> None:
        inner(key, value)
        clock.now += 0.2  # longer than it may

    world.add_stat = step
    run.companions.take_turns()
    assert world.calls == [], "it has no time yet"
    for taken in (1, 2, 3):
        clock.now += 1000.0  # saves up no more than a share of `SAVED_SECONDS`
        run.companions.take_turns()
        assert world.calls.count("step") == taken
        assert torch.equal(read_only(world), before)
        run.companions.take_turns()
        assert world.calls.count("step") == taken, "its time is used up"
    assert world.calls[-1] == "step"
    owed = 0.2 - 0.25 * SAVED_SECONDS
    clock.now += owed
    run.companions.take_turns()
    assert world.calls[-1] == "step", "it took longer than its share"
    clock.now += owed / 0.25
    run.companions.take_turns()
    assert (world.calls[-1], world.trainings) == ("teardown", 1)
    assert torch.equal(read_only(world), weights(world))


def test_what_is_interrupted_is_cleaned_up() -> None:
    """The end of the behavior's training ends that of a companion, and frees the data."""
    clock = Clock()
    run = Run({toys.WORLD: {**SMALL, "steps": 100_000}}, clock)
    run.receive(10)
    world = run.one()
    world.add_stat = lambda *_: setattr(clock, "now", clock.now + 1.0)
    run.companions.take_turns()
    clock.now += 10.0
    run.companions.take_turns()
    assert world.calls == ["setup", "step"]
    turns, trainers = CompanionTurns(), {CONTINUOUS.name: run.trainer}
    turns.training_ended(trainers, [CONTINUOUS.name])
    assert world.calls == ["setup", "step", "teardown"]
    assert len(run.data()) == 0
    run.receive(10)
    assert run.save()["companions"]["trainers"][toys.WORLD]["trainings"] == 0


def test_a_pause_is_a_pause_of_companions_too() -> None:
    """A part's turn without a turn of trainers trains nothing."""
    run = Run({toys.WORLD: SMALL})
    run.receive(10)
    turns, trainers = CompanionTurns(), {CONTINUOUS.name: run.trainer}
    turns.after_turn(trainers)
    assert run.one().trainings == 0
    turns.before_turn(trainers)
    turns.after_turn(trainers)
    turns.after_turn(trainers)
    assert run.one().trainings == 1


def test_a_reward_signal_reads_the_copy() -> None:
    """It gets the inference model by its name; an unknown one is refused with those that exist."""
    signals: dict[str, Any] = {"extrinsic": {}, toys.SURPRISE: {}}
    run = Run({toys.WORLD: SMALL}, reward_signals=signals)
    trainer: Any = run.trainer
    signal = trainer.signals._signals[1]
    assert signal.world is run.one().get_inference_model("world")
    assert not signal.world.training
    with pytest.raises(UserError, match=r"no companion of this behavior has a model 'world' \(known: wide\)"):
        Run({toys.WIDE: SMALL}, reward_signals=signals)


def test_a_saved_state_continues_bit_by_bit() -> None:
    """Models, optimizers, draws and counts continue; data do not, in the run that goes on either, where a restart would begin."""
    run = Run({toys.WORLD: SMALL})
    run.receive(12)
    run.companions.take_turns()
    saved = run.save()
    run.companions.clear_data()
    other = Run({toys.WORLD: SMALL})
    other.trainer.load_state_dict(saved)
    assert torch.equal(weights(other.one()), weights(run.one()))
    assert torch.equal(read_only(other.one()), read_only(run.one()))
    other.actor = SyntheticActor(other.bench, seed=7)
    run.actor = SyntheticActor(run.bench, seed=7)
    for each in (run, other):
        each.receive(20, 3)
        each.companions.take_turns()
        each.receive(6)
        each.companions.take_turns()
        assert each.one().trainings == 3
    assert torch.equal(weights(other.one()), weights(run.one()))
    assert other.data().added == run.data().added


def test_a_run_of_a_seed_repeats_itself() -> None:
    """Initial weights, draws and what layers draw follow from the seed, and leave torch's generator alone."""
    found = []
    for seed in (1, 1, 2):
        before = torch.get_rng_state()
        run = Run({toys.WORLD: SMALL}, seed=seed)
        run.receive(12)
        run.companions.take_turns()
        assert torch.equal(torch.get_rng_state(), before)
        found.append(weights(run.one()))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_state_that_does_not_fit_is_refused() -> None:
    """Another width is one line; a companion that the state lacks begins anew, and the log says so."""
    saved = Run({toys.WORLD: SMALL}).save()
    with pytest.raises(UserError, match=r"does not fit the run file: world.0.weight has shape \[3, 5\] in"):
        Run({toys.WORLD: {**SMALL, "units": 4}}).trainer.load_state_dict(saved)
    with capture_logs() as lines:
        Run({toys.WORLD: SMALL, toys.READER: SMALL}).trainer.load_state_dict(saved)
    assert [(line["event"], line["companion"]) for line in lines] == [("companion_begins", toys.READER)]
    run = Run({toys.WORLD: SMALL})
    run.receive(10)
    run.companions.take_turns()
    saved = run.save()
    saved["companions"]["trainers"][toys.WORLD]["optimizers"]["adam"]["state"][0]["exp_avg"].fill_(float("nan"))
    with pytest.raises(UserError, match="exp_avg of the optimizer adam holds NaN or infinite values"):
        Run({toys.WORLD: SMALL}).trainer.load_state_dict(saved)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (toys.BROKEN, r"^the trainer failed: ArithmeticError: the world is flat \(\S+toys.py, line \d+, in train\)"),
        (toys.ENDLESS, r"trained its model 'world' to numbers that are not finite: lower its learning_rate"),
        (toys.FORGETFUL, r"reads the data buffer 'yesterday', which does not exist \(known: experience\)"),
    ],
)
def test_one_that_fails_ends_the_run_in_one_line(name: str, told: str) -> None:
    """Its error ends the trainers as a trainer's own does."""
    run = Run({toys.WORLD: {"min_buffer_size": 99}, name: SMALL} if name == toys.BROKEN else {name: SMALL})
    run.receive(10)
    turns, trainers = CompanionTurns(), {CONTINUOUS.name: run.trainer}
    turns.before_turn(trainers)
    with pytest.raises(Exception, match=r".") as caught:
        turns.after_turn(trainers)
    error = failure_of(caught.value, None)
    assert error.exit_code in {ExitCode.TRAINER_FAILED, ExitCode.RUN_FILE}
    assert "\n" not in error.message
    with pytest.raises(UserError, match=told):
        raise error


@pytest.mark.parametrize(
    ("companions", "told"),
    [
        ({toys.WORLD: {}, toys.TWIN: {}}, "two companions have a model 'world'"),
        ({toys.READER: {}}, r"no companion of this behavior has a model 'world' \(known: none\)"),
        ({f"{toys.__name__}:make_plain": {}}, "which makes Plain: it must be a CompanionTrainer"),
    ],
)
def test_one_that_cannot_be_built_is_refused(companions: dict[str, Any], told: str) -> None:
    """The error names it, and what is wrong."""
    with pytest.raises(UserError, match=told):
        Run(companions)


def test_a_declaration_is_judged_with_its_companions() -> None:
    """Models and data count, nothing is drawn, and a model that cannot be built is the declaration's fault."""
    bench = make_bench({"companions": {toys.WIDE: {"units": 1000}}}, CONTINUOUS)
    service, settings = bench.table.service, bench.behavior.settings
    before = torch.get_rng_state()
    found = estimate_memory(CONTINUOUS, settings, service)
    assert torch.equal(torch.get_rng_state(), before)
    data = data_sizes(CONTINUOUS, settings)["experience"].capacity_rows * replay_row_bytes(CONTINUOUS)
    assert found.companion_bytes > 4 * 7 * 1000 * 1001
    assert data < found.companion_bytes < data + 4 * 7 * 1000 * 1001 + 2**22
    assert found.total_bytes > found.companion_bytes
    flat = make_bench({"companions": {toys.WORLD: {}}}, CARTPOLE).behavior.settings
    pixels = replace(CARTPOLE, observations=(replace(CARTPOLE.observations[0], shape=(4, 4)),))
    with pytest.raises(Untrainable, match="toys:World"):
        estimate_memory(pixels, flat, service)


def test_a_behavior_without_companions_has_no_buffers() -> None:
    """Nothing is copied, and its state has no entries."""
    run = Run({}, data_buffers={"experience": {"max_steps": 9}})
    run.receive(5)
    run.companions.take_turns()
    assert (run.companions._data, run.save()["companions"]) == ({}, {})
