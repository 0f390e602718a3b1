"""Tests which steps an update takes, which are stale, and which actors wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from rollcast.enums import HoldReason
from rollcast.specs import BehaviorSpec

from learner.shared.observe.meters import BehaviorMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.settings.hyperparameters import OWN_TRAINERS
from learner.training.trainers import registry
from learner.training.trainers.base import Trainer
from learner.training.trainers.rl import TrainerFailedError, UpdateClock
from tests.learner.training.networks.specs import behavior
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.recurrent import CUT, RecurrentActor, RememberingAgent
from tests.learner.training.trainers.started import feed, make
from tests.learner.training.trainers.synthetic import SyntheticActor


@pytest.mark.parametrize("on_policy", ["relaxed", "strict"])
def test_actors_that_take_turns_leave_nothing_behind(on_policy: str) -> None:
    """Without threads an update takes all waiting steps, even far beyond buffer_size."""
    bench, trainer = make(service={"on_policy": on_policy})
    bench.put(SyntheticActor(bench).chunk([20] * 100))
    trainer.advance()
    books = bench.ledger.books("Continuous")
    assert (trainer.version, books.trained, dict(books.dropped), books.queued) == (1, 2000, {}, 0)


def test_threaded_actors_that_fall_behind_wait() -> None:
    """Threaded actors wait when their steps would be too old for the version after the next."""
    bench, trainer = make(threaded=True, service={"max_policy_lag": 2})
    actor, pace = SyntheticActor(bench), []
    for _ in range(4):
        feed(bench, actor, 1, trainer)
        pace.append((bench.behavior.queue.pace.hold, bench.behavior.queue.pace.until_version))
    assert pace == [(None, 0), *((HoldReason.UPDATING, version) for version in (1, 2, 3))]


def test_threaded_strict_never_waits_for_a_version_to_come() -> None:
    """With on_policy: strict actors wait only for the newest published version."""
    bench, trainer = make(threaded=True, service={"on_policy": "strict"})
    feed(bench, SyntheticActor(bench), 3, trainer)
    assert bench.behavior.queue.pace.until_version == 3


def test_a_threaded_update_takes_what_the_next_one_could_not() -> None:
    """A threaded update takes steps that would be stale for the next one."""
    bench, trainer = make(threaded=True, service={"max_policy_lag": 1})
    actor = SyntheticActor(bench)
    feed(bench, actor, 1, trainer)
    bench.put(actor.chunk([20] * 4))
    bench.put(actor.chunk([20], base_version=0))
    bench.put(actor.chunk([20] * 2))
    trainer.advance()
    books = bench.ledger.books("Continuous")
    assert (trainer.version, dict(books.dropped), trainer.update_buffer.taken_steps) == (2, {}, 40)
    assert books.trained == trainer.steps_trained


def test_the_service_knows_what_is_held() -> None:
    """Staged steps count as unsettled until they are trained, and their bytes are free."""
    bench, trainer = make()
    actor = SyntheticActor(bench)
    bench.put(actor.chunk([20, 20]))
    trainer.advance()
    assert bench.table.unsettled_steps(bench.behavior) == bench.ledger.queued("Continuous") == 40
    assert bench.behavior.queue.queued_bytes == 0
    bench.put(actor.chunk([20, 20]))
    trainer.advance()
    assert (trainer.version, bench.table.unsettled_steps(bench.behavior)) == (1, 0)


@pytest.mark.parametrize("threaded", [False, True])
def test_steps_beyond_the_lag_are_dropped(*, threaded: bool) -> None:
    """Steps older than max_policy_lag are dropped; without threads one more version is accepted."""
    bench, trainer = make(threaded=threaded, service={"max_policy_lag": 1})
    actor = SyntheticActor(bench)
    feed(bench, actor, 3, trainer)
    bench.put(actor.chunk([10], base_version=0 + threaded))
    bench.put(actor.chunk([10], base_version=1 + threaded))
    trainer.advance()
    books = bench.ledger.books("Continuous")
    assert books.dropped == {"stale": 10}
    assert books.received == trainer.get_step + 10


@pytest.mark.parametrize("threaded", [False, True])
def test_strict_trains_only_the_present_version(*, threaded: bool) -> None:
    """With on_policy: strict steps in flight during an update are dropped."""
    bench, trainer = make(threaded=threaded, service={"on_policy": "strict"})
    actor = SyntheticActor(bench)
    late = actor.chunk([20])
    feed(bench, actor, 1, trainer)
    bench.put(late)
    trainer.advance()
    assert bench.ledger.books("Continuous").dropped == {"stale": 20}


def test_phases_are_measured_and_pauses_are_not() -> None:
    """Collection and update are timed without pauses."""
    now = 100.0
    stats = StatsReporter("Test")
    clock = UpdateClock(stats, BehaviorMeters(), lambda: now)
    now += 0.5
    clock.pause()
    now += 1000
    clock.resume()
    now += 1.5
    clock.begin_update()
    now += 1.0
    clock.end_update(300)
    names = ("Collect Seconds", "Update Seconds", "Steps per Second")
    summaries = [stats.summary(f"Rollcast/{name}") for name in names]
    assert [summary.mean for summary in summaries if summary is not None] == [2.0, 1.0, 100.0]


MEMORY: dict[str, Any] = {"memory": {"memory_size": 8, "sequence_length": 8}}
CONTINUOUS = behavior(continuous=2)
DISCRETE = behavior(branches=(3,))
BOTH = [(1, 40, CUT), (2, 40, CUT)]


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
@pytest.mark.parametrize("network", [{}, MEMORY], ids=["plain", "memory"])
@pytest.mark.parametrize("trainer_type", sorted(registry.own_trainers()))
def test_a_policy_that_cannot_act_is_undone_and_not_published(
    trainer_type: str, network: dict[str, Any], spec: BehaviorSpec
) -> None:
    """A policy with non-finite outputs is undone and not published; the third in a row raises."""
    own = {} if trainer_type == "sac" else {"num_epoch": 1}
    bench = make_bench(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {"batch_size": 64, "buffer_size": 64, "learning_rate": 1e20, **own},
            "network_settings": {"hidden_units": 8, "num_layers": 2, "normalize": False, **network},
            "time_horizon": 40,
            "max_steps": 10_000,
        },
        spec,
    )
    trainer = registry.build(bench.context())
    trainer.start()
    with pytest.raises(TrainerFailedError, match=r"not finite: lower learning_rate"):
        _train(bench, trainer)


def _train(bench: Bench, trainer: Trainer) -> None:
    """Acts by what is published, which must be able to, and lets the trainer do all it can."""
    actor = RecurrentActor(bench) if bench.behavior.memory_size else SyntheticActor(bench)
    if isinstance(actor, RecurrentActor):
        actor.agents = {1: RememberingAgent(), 2: RememberingAgent()}
    for _ in range(6):
        chunk = actor.play(BOTH) if isinstance(actor, RecurrentActor) else actor.chunk([40, 40])
        assert np.isfinite(chunk.columns["log_prob"]).all()
        bench.put(chunk)
        while trainer.advance():
            pass


EXTREMES = (1e300, 1e9, 1e6, 1e-6, 1e-300)


def _cases() -> Iterator[tuple[str, str, float]]:
    """Yields trainers with each number of theirs at the largest and the smallest extreme that is accepted."""
    for trainer_type in registry.own_trainers():
        model = OWN_TRAINERS[trainer_type].settings_model
        for name, field in model.model_fields.items():
            if field.annotation in {float, float | None}:
                accepted = [value for value in EXTREMES if _is_accepted(trainer_type, name, value)]
                yield from ((trainer_type, name, value) for value in dict.fromkeys((accepted[0], accepted[-1])))


def _is_accepted(trainer_type: str, name: str, value: float) -> bool:
    try:
        OWN_TRAINERS[trainer_type].settings_model.model_validate({name: value})
    except ValidationError:
        return False
    return True


def _trains(trainer_type: str, hyper: dict[str, Any], **settings: Any) -> bool:
    """Takes a few steps and updates; returns whether updates were made, and not given up for what is not finite."""
    try:
        _advance(trainer_type, hyper, chunks=3, **settings)
    except TrainerFailedError:  # too many updates that are not finite
        return False
    return True


def _advance(trainer_type: str, hyper: dict[str, Any], *, chunks: int, **settings: Any) -> None:
    """Takes a few steps and updates.

    Raises:
        TrainerFailedError: Too many updates are not finite.
    """
    bench = make_bench(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {"batch_size": 8, "buffer_size": 16, **hyper},
            "network_settings": {"hidden_units": 4, "num_layers": 1},
            "time_horizon": 8,
            "max_steps": 1000,
            **settings,
        },
        behavior(continuous=1, branches=(2,)),
    )
    trainer = registry.build(bench.context())
    trainer.start()
    actor = SyntheticActor(bench)
    for _ in range(chunks):
        bench.put(actor.chunk([8, 8]))
        for _ in range(3):
            trainer.advance()


@pytest.mark.parametrize(("trainer_type", "name", "value"), list(_cases()))
def test_what_is_accepted_can_be_trained(trainer_type: str, name: str, value: float) -> None:
    """Any accepted steps are trained or given up as not finite."""
    _trains(trainer_type, {name: value})


@pytest.mark.parametrize("strength", [1e-300, -1e-300, 3e-39, 0.0])
def test_curiosity_may_count_next_to_nothing(strength: float) -> None:
    """Curiosity with a tiny strength has a finite limit of its reward."""
    assert _trains("ppo", {}, reward_signals={"extrinsic": {}, "curiosity": {"strength": strength}})


@pytest.mark.parametrize("steps", [1e-6, 1e9])
def test_any_debt_of_updates_can_be_counted(steps: float) -> None:
    """The largest debts are counted without overflow."""
    assert _trains("sac", {"steps_per_update": steps, "max_update_debt": 10**9})


@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_a_signal_whose_rewards_are_not_finite_is_named(trainer_type: str) -> None:
    """A signal with non-finite rewards is named in the error that ends the run."""
    signals = {"extrinsic": {}, "rnd": {"strength": 1e300}}
    with pytest.raises(TrainerFailedError, match=r"not finite, as were rewards of the reward signal rnd: lower its"):
        _advance(trainer_type, {}, chunks=8, reward_signals=signals)
