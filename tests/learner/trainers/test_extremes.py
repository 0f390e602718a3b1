"""A hyperparameter that is accepted can be trained with, at the ends of its range too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from learner.settings.hyperparameters import OWN_TRAINERS
from learner.trainers import registry
from learner.trainers.rl import TrainerFailedError
from tests.learner.networks.specs import behavior
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.synthetic import SyntheticActor

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


def _train(trainer_type: str, hyper: dict[str, Any], **settings: Any) -> bool:
    """Takes a few steps and updates; returns whether updates were made, and not given up for what is not finite."""
    try:
        _advance(trainer_type, hyper, chunks=3, **settings)
    except TrainerFailedError:  # too many updates that are not finite
        return False
    return True


def _advance(trainer_type: str, hyper: dict[str, Any], *, chunks: int, **settings: Any) -> None:
    """Takes a few steps and updates.

    Raises:
        TrainerFailedError: too many updates are not finite.
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
    """Updates are made, or given up as not finite; nothing overflows on the way."""
    _train(trainer_type, {name: value})


@pytest.mark.parametrize("strength", [1e-300, -1e-300, 3e-39, 0.0])
def test_curiosity_may_count_next_to_nothing(strength: float) -> None:
    """Its reward is cut where it would count 1, and never beyond the largest number there is."""
    assert _train("ppo", {}, reward_signals={"extrinsic": {}, "curiosity": {"strength": strength}})


@pytest.mark.parametrize("steps", [1e-6, 1e9])
def test_any_debt_of_updates_can_be_counted(steps: float) -> None:
    """The largest debt at both ends of what an update may pay for."""
    assert _train("sac", {"steps_per_update": steps, "max_update_debt": 10**9})


@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_a_signal_whose_rewards_are_not_finite_is_named(trainer_type: str) -> None:
    """Updates that come to nothing by it end the run with the name of the signal, and not with advice about others."""
    signals = {"extrinsic": {}, "rnd": {"strength": 1e300}}
    with pytest.raises(
        TrainerFailedError, match=r"not finite, and so were rewards of the reward signal rnd: lower its"
    ):
        _advance(trainer_type, {}, chunks=8, reward_signals=signals)
