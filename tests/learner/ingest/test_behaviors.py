"""The behaviors of a run."""

from __future__ import annotations

import pytest
from rollcast.errors import BadSpec, RingTooSmall, SpecMismatch, StepTooLarge, UnknownBehavior

from learner.common.exits import UserError
from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.link.experience import QueuedChunk
from learner.settings.hyperparameters import APPOHyperparameters, HyperparameterSettings, PPOHyperparameters
from learner.settings.options import RunOptions
from learner.trainers.judge import judge
from tests.learner.ingest.parts import NAME, make_chunk, make_options, make_spec, open_default


def table(options: RunOptions | None = None) -> BehaviorTable:
    """An empty table."""
    return BehaviorTable(options or make_options(), Ledger(), judge)


def test_the_first_declaration_defines_and_teams_share() -> None:
    """Declaring again, for another team too, gives the same behavior; the trainer loop hears of it once."""
    behaviors = table()
    first = behaviors.declare(make_spec(), 0, 1)
    assert behaviors.to_trainer.is_set()
    assert behaviors.declare(make_spec(), 1, 1) is first
    assert behaviors.take_new() == [first]
    assert behaviors.take_new() == []
    assert behaviors.by_index(0) is behaviors.by_name(NAME) is first
    assert behaviors.by_index(1) is behaviors.by_index(-1) is behaviors.by_name("x") is None


def test_a_different_spec_is_refused_with_both_sides() -> None:
    """The message and the metadata show what the run has and what the actor has."""
    behaviors = table()
    behaviors.declare(make_spec(), 0, 1)
    with pytest.raises(SpecMismatch, match=r"run float32\[4\], actor float32\[5\]") as caught:
        behaviors.declare(make_spec(size=5), 0, 1)
    assert {"behavior", "differences", "run", "actor"} <= caught.value.metadata.keys()


def test_unknown_names_are_refused_unless_there_are_default_settings() -> None:
    """A name that the run file lacks needs default_settings."""
    with pytest.raises(UnknownBehavior, match=NAME):
        table().declare(make_spec("Walker"), 0, 1)
    assert table(open_default()).declare(make_spec("Walker"), 0, 1).name == "Walker"


@pytest.mark.parametrize("name", ["../up", ".hidden", "a:b", "a?team=1"])
def test_names_that_cannot_be_files_are_refused(name: str) -> None:
    """A behavior's name becomes a folder: hostile ones are BAD_SPEC even with default_settings."""
    with pytest.raises(BadSpec):
        table(open_default()).declare(make_spec(name), 0, 1)


def test_negative_teams_are_refused() -> None:
    """Teams count from 0."""
    with pytest.raises(BadSpec, match="-1"):
        table().declare(make_spec(), -1, 1)


def test_a_step_that_fits_no_chunk_is_refused_with_both_sizes() -> None:
    """STEP_TOO_LARGE names what a step needs and what a chunk holds."""
    options = make_options(max_chunk_bytes=64 * 1024, target_chunk_bytes=64 * 1024)
    with pytest.raises(StepTooLarge) as caught:
        table(options).declare(make_spec(size=20_000), 0, 1)
    assert caught.value.metadata["max_chunk_bytes"] == "65536"
    need = int(caught.value.metadata["step_bytes"])
    assert need > 160_000
    assert f"raise rollcast.max_chunk_bytes in the run file to {need}" in caught.value.message


def test_a_step_that_fits_no_chunk_at_all_is_not_advised_a_larger_one() -> None:
    """Above the largest chunk there may be only smaller observations help; the run file cannot ask for more."""
    with pytest.raises(StepTooLarge, match=r"at most 4194304: send smaller observations$"):
        table().declare(make_spec(size=600_000), 0, 1)
    options = make_options(max_chunk_bytes=64 * 1024, target_chunk_bytes=64 * 1024)
    with pytest.raises(StepTooLarge, match=r"at most 65536: .*\(rollcast\.max_chunk_bytes may be 4194304 at most\)$"):
        table(options).declare(make_spec(size=600_000), 0, 1)


def test_a_memory_that_no_chunk_holds_is_refused() -> None:
    """It travels with a step: what to lower is said."""
    block = {"network_settings": {"memory": {"memory_size": 2**20}}}
    options = RunOptions.model_validate({"behaviors": {NAME: block}})
    with pytest.raises(StepTooLarge, match=r"at most 4194304: lower memory_size$"):
        BehaviorTable(options, Ledger(), judge).declare(make_spec(), 0, 1)


def test_a_restored_behavior_must_fit_the_present_chunks() -> None:
    """A run file that allows smaller chunks than before the restart refuses steps that no longer fit."""
    before = table()
    before.declare(make_spec(size=20_000), 0, 1)
    after = table(make_options(max_chunk_bytes=64 * 1024, target_chunk_bytes=64 * 1024))
    after.load_state_dict(before.state_dict())
    with pytest.raises(StepTooLarge):
        after.declare(make_spec(size=20_000), 0, 1)


def test_a_ring_that_is_too_small_is_refused_with_the_sum() -> None:
    """A ring given by the user must hold two buffers, what the agents have open, and a chunk."""
    options = make_options(device_ring_steps=30_000, max_chunk_steps=1000)
    behaviors = table(options)  # buffer_size 10240, time_horizon 8
    behaviors.declare(make_spec(), 0, 1)
    with pytest.raises(RingTooSmall, match="device_ring_steps") as caught:
        behaviors.declare(make_spec(), 0, 2000)
    assert caught.value.metadata["needed_steps"] == str(2 * 10_240 + 2000 * 8 + 1000)


def test_lag_and_cutting_follow_the_run_file() -> None:
    """Ppo bears four versions; the run file may say otherwise; strict cuts at each swap."""
    assert table().declare(make_spec(), 0, 1).max_policy_lag == 4
    strict = table(make_options(max_policy_lag=2, on_policy="strict")).declare(make_spec(), 0, 1)
    assert (strict.max_policy_lag, strict.cut_at_swap) == (2, True)


@pytest.mark.parametrize(("parent", "lag", "cuts"), [(PPOHyperparameters, 4, True), (APPOHyperparameters, 32, False)])
def test_lag_and_cutting_follow_the_traits(parent: type[HyperparameterSettings], lag: int, *, cuts: bool) -> None:
    """A trainer of another package whose settings extend ours is treated as ours, whatever its name."""
    options = make_options(on_policy="strict")
    other = {"trainer_type": "other", "hyperparameters": type("Other", (parent,), {})()}
    behaviors = {NAME: options.behaviors[NAME].model_copy(update=other)}
    behavior = table(options.model_copy(update={"behaviors": behaviors})).declare(make_spec(), 0, 1)
    assert (behavior.max_policy_lag, behavior.cut_at_swap) == (lag, cuts)


def test_a_run_goes_on_with_its_behaviors() -> None:
    """Loaded behaviors have index and spec again, and are to be trained: only trainers know whether one is done."""
    options = open_default()
    before = table(options)
    for name in ("Walker", NAME):
        before.declare(make_spec(name), 0, 1)
    before.stop_training(before.all()[0])
    after = table(options)
    after.load_state_dict(before.state_dict())
    assert [(b.index, b.name, b.training) for b in after.take_new()] == [(0, "Walker", True), (1, NAME, True)]
    assert after.restored == 2
    with pytest.raises(SpecMismatch):
        after.declare(make_spec(size=9), 0, 1)


def test_a_run_file_that_lost_a_behavior_does_not_load() -> None:
    """A checkpoint with a behavior that the run file no longer has is the user's to put right."""
    before = table(open_default())
    before.declare(make_spec("Walker"), 0, 1)
    with pytest.raises(UserError, match="Walker"):
        table().load_state_dict(before.state_dict())


def test_the_end_of_training_drops_what_waits() -> None:
    """The queue is emptied and its steps are dropped{not_training} in one transaction."""
    ledger = Ledger()
    behaviors = BehaviorTable(make_options(), ledger, judge)
    behavior = behaviors.declare(make_spec(), 0, 1)
    ledger.enqueue(NAME, 6)
    behavior.queue.put(QueuedChunk(make_chunk(6), "s", 0, 100, 0.0))
    assert behaviors.stop_training(behavior) == 6
    assert not behavior.training
    assert behavior.queue.queued_steps == 0
    assert ledger.books(NAME).dropped == {"not_training": 6}
