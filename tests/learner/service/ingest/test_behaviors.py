"""Tests the behaviors of a run."""

from __future__ import annotations

import pytest
from rollcast.errors import BadSpec, RingTooSmall, SpecMismatch, StepTooLarge, UnknownBehavior

from learner.link.channel import Link
from learner.link.to_front import Done, Pace, Settled
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger, LedgerError
from learner.shared.exits import UserError
from learner.shared.settings.hyperparameters import APPOHyperparameters, HyperparameterSettings, PPOHyperparameters
from learner.shared.settings.options import RunOptions
from tests.coded_link import coded
from tests.learner.judging import accept
from tests.learner.service.ingest.parts import NAME, Parts, make_chunk, make_options, make_spec, open_default


def table(options: RunOptions | None = None, link: Link | None = None) -> BehaviorTable:
    """Returns an empty table."""
    return BehaviorTable(options or make_options(), Ledger(), accept, (link or Link()).to_trainers.send)


def test_the_first_declaration_defines_and_teams_share() -> None:
    """Repeated declarations, also of other teams, return the same behavior, which is announced once."""
    link = Link(coded)
    behaviors = table(link=link)
    first = behaviors.declare(make_spec(), 0, 1)
    assert behaviors.declare(make_spec(), 1, 1) is first
    (declared,) = link.to_trainers.receive()
    assert declared == first.declared
    assert (declared.name, declared.time_horizon, declared.queue_bytes) == (NAME, 8, first.queue.capacity_bytes)
    assert behaviors.by_index(0) is behaviors.by_name(NAME) is first
    assert behaviors.by_index(1) is behaviors.by_index(-1) is behaviors.by_name("x") is None


def test_a_different_spec_is_refused_with_both_sides() -> None:
    """Message and metadata of the refusal have both specs."""
    behaviors = table()
    behaviors.declare(make_spec(), 0, 1)
    with pytest.raises(SpecMismatch, match=r"run float32\[4\], actor float32\[5\]") as caught:
        behaviors.declare(make_spec(size=5), 0, 1)
    assert {"behavior", "differences", "run", "actor"} <= caught.value.metadata.keys()
    assert "by the first actor of the run ppo: " in str(caught.value)


def test_unknown_names_are_refused_unless_there_are_default_settings() -> None:
    """A name that the run file lacks needs default_settings."""
    with pytest.raises(UnknownBehavior, match=NAME):
        table().declare(make_spec("Walker"), 0, 1)
    assert table(open_default()).declare(make_spec("Walker"), 0, 1).name == "Walker"


@pytest.mark.parametrize(("name", "team"), [("../up", 0), (".hidden", 0), ("a:b", 0), ("a?team=1", 0), (NAME, -1)])
def test_names_that_cannot_be_files_and_negative_teams_are_refused(name: str, team: int) -> None:
    """A name that cannot be a folder is BAD_SPEC, also with default_settings, and so is a negative team."""
    with pytest.raises(BadSpec):
        table(open_default()).declare(make_spec(name), team, 1)


def test_a_step_that_fits_no_chunk_is_refused_with_both_sizes() -> None:
    """STEP_TOO_LARGE has the size of a step and the limit of a chunk."""
    options = make_options(max_chunk_bytes=64 * 1024, target_chunk_bytes=64 * 1024)
    with pytest.raises(StepTooLarge) as caught:
        table(options).declare(make_spec(size=20_000), 0, 1)
    assert caught.value.metadata["max_chunk_bytes"] == "65536"
    need = int(caught.value.metadata["step_bytes"])
    assert need > 160_000
    assert f"raise rollcast.max_chunk_bytes in the run file to at least {need}" in caught.value.message
    with pytest.raises(StepTooLarge, match=r"at most 4194304: send smaller observations$"):
        table().declare(make_spec(size=600_000), 0, 1)


def test_a_memory_that_no_chunk_holds_is_refused() -> None:
    """A memory that exceeds a chunk is refused with the setting to lower."""
    block = {"network_settings": {"memory": {"memory_size": 2**20}}}
    options = RunOptions.model_validate({"behaviors": {NAME: block}})
    with pytest.raises(StepTooLarge, match=r"at most 4194304: lower memory_size$"):
        BehaviorTable(options, Ledger(), accept, Link().to_trainers.send).declare(make_spec(), 0, 1)


def test_a_restored_behavior_must_fit_the_present_chunks() -> None:
    """A restored behavior whose steps exceed the new chunk size is refused."""
    before = table()
    before.declare(make_spec(size=20_000), 0, 1)
    after = table(make_options(max_chunk_bytes=64 * 1024, target_chunk_bytes=64 * 1024))
    after.load_state_dict(before.state_dict())
    with pytest.raises(StepTooLarge):
        after.declare(make_spec(size=20_000), 0, 1)


def test_a_ring_that_is_too_small_is_refused_with_the_sum() -> None:
    """A ring in the run file must hold two buffers, the agents' open steps and a chunk."""
    options = make_options(device_ring_steps=30_000, max_chunk_steps=1000)
    behaviors = table(options)  # buffer_size 10240, time_horizon 8
    behaviors.declare(make_spec(), 0, 1)
    with pytest.raises(RingTooSmall, match="device_ring_steps") as caught:
        behaviors.declare(make_spec(), 0, 2000)
    assert caught.value.metadata["needed_steps"] == str(2 * 10_240 + 2000 * 8 + 1000)


def test_lag_and_cutting_follow_the_run_file() -> None:
    """PPO accepts a lag of four versions, which the run file can change; strict cuts at each swap."""
    assert table().declare(make_spec(), 0, 1).max_policy_lag == 4
    strict = table(make_options(max_policy_lag=2, on_policy="strict")).declare(make_spec(), 0, 1)
    assert (strict.max_policy_lag, strict.cut_at_swap) == (2, True)


@pytest.mark.parametrize(("parent", "lag", "cuts"), [(PPOHyperparameters, 4, True), (APPOHyperparameters, 32, False)])
def test_lag_and_cutting_follow_the_traits(parent: type[HyperparameterSettings], lag: int, *, cuts: bool) -> None:
    """A trainer of a package whose settings extend a built-in one's has its traits."""
    options = make_options(on_policy="strict")
    other = {"trainer_type": "other", "hyperparameters": type("Other", (parent,), {})()}
    behaviors = {NAME: options.behaviors[NAME].model_copy(update=other)}
    behavior = table(options.model_copy(update={"behaviors": behaviors})).declare(make_spec(), 0, 1)
    assert (behavior.max_policy_lag, behavior.cut_at_swap) == (lag, cuts)


def test_a_run_goes_on_with_its_behaviors() -> None:
    """Restored behaviors keep index and spec, and count as unfinished."""
    options = open_default()
    before = table(options)
    for name in ("Walker", NAME):
        before.declare(make_spec(name), 0, 1)
    before.end_training(Done(0))
    link = Link(coded)
    after = table(options, link)
    after.load_state_dict(before.state_dict())
    assert [(b.index, b.name, b.training) for b in after.all()] == [(0, "Walker", True), (1, NAME, True)]
    assert link.to_trainers.receive() == [behavior.declared for behavior in after.all()]
    assert after.restored == 2
    with pytest.raises(SpecMismatch):
        after.declare(make_spec(size=9), 0, 1)


def test_a_run_file_that_lost_a_behavior_does_not_load() -> None:
    """A checkpoint with a behavior that the run file lacks is an error of the user."""
    before = table(open_default())
    before.declare(make_spec("Walker"), 0, 1)
    with pytest.raises(UserError, match="Walker"):
        table().load_state_dict(before.state_dict())


def test_the_end_of_training_drops_what_waits() -> None:
    """Waiting steps are dropped as not_training; steps in flight stay queued until the trainers drop them."""
    parts = Parts()
    behavior = parts.declared(parts.open().session)
    assert not parts.behaviors.has_ended_training
    put(parts, 6)
    parts.trainers.finish()
    assert not behavior.training
    assert parts.behaviors.has_ended_training
    books = parts.ledger.books(NAME)
    assert (behavior.queue.queued_steps, books.queued, books.dropped) == (0, 0, {"not_training": 6})


def test_what_trainers_say_is_booked_at_once_or_not_at_all() -> None:
    """A settlement changes books, space and pace together; an impossible one changes nothing."""
    parts = Parts()
    behavior = parts.declared(parts.open().session)
    for _ in range(3):
        put(parts, 5)
    before = parts.ledger.books(NAME)
    for wrong in (
        Settled(0, 1, 10, {"stale": 6}, Pace(ahead_limit_steps=9)),
        Settled(0, 1, -1, {}, Pace(ahead_limit_steps=9)),
        Settled(0, 1, 5, {"stale": -5}, Pace(ahead_limit_steps=9)),
        Settled(0, 4, 1, {}, Pace(ahead_limit_steps=9)),
    ):
        with pytest.raises(LedgerError):
            parts.behaviors.settle(wrong)
        assert parts.ledger.books(NAME) == before
        assert (behavior.queue.pace, behavior.queue.queued_chunks) == (Pace(), 3)
    parts.behaviors.settle(Settled(0, 2, 4, {"stale": 3}, Pace(owed_steps=2, ahead_limit_steps=9)))
    books = parts.ledger.books(NAME)
    assert (books.trained, books.dropped, books.queued, books.balanced) == (4, {"stale": 3}, 8, True)
    assert (behavior.queue.queued_steps, parts.behaviors.unsettled_steps(behavior)) == (5, 10)


def put(parts: Parts, rows: int) -> None:
    """Accepts a chunk as the service does."""
    parts.ledger.enqueue(NAME, rows)
    parts.behaviors.all()[0].queue.put(
        make_chunk(rows), session_id="s", actor_index=0, encoded_bytes=100, resident_bytes=100, received_at=0.0
    )
