"""Tests the settings of SAC's temperatures and learning rates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rollcast.errors import Untrainable

from learner.shared.exits import UserError
from learner.shared.settings.load import load_run_options
from learner.training.trainers.memory_estimate import estimate_memory
from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.trainers.in_process import CARTPOLE, make_bench
from tests.learner.training.trainers.sac.started import feed, make, saved
from tests.learner.training.trainers.sac.test_trainer import weights
from tests.learner.training.trainers.synthetic import CONTINUOUS, HYBRID, SyntheticActor


def test_a_fixed_coefficient_stays() -> None:
    """A fixed coefficient is the temperature of every part, has no optimizer, and is reported."""
    bench, trainer = make(HYBRID, hyper={"entcoef": 0.2, "init_entcoef": 0.7})
    before = weights(trainer)
    feed(bench, SyntheticActor(bench), trainer, 3)
    assert trainer.version == 30
    alphas = trainer.networks.temperatures.alphas()
    assert alphas.continuous is not None
    assert alphas.discrete is not None
    torch.testing.assert_close(alphas.continuous, torch.tensor(0.2))
    torch.testing.assert_close(alphas.discrete, torch.full((5,), 0.2))
    assert set(trainer.optimizers) == {"policy", "critic"}
    learned = {name for name, value in trainer.networks.named_parameters() if not torch.equal(value, before[name])}
    assert learned == {name for name in before if not name.startswith("temperatures")} & set(
        dict(trainer.networks.named_parameters())
    )
    for part in ("Continuous", "Discrete"):
        summary = bench.stats.summary(f"Policy/{part} Entropy Coeff")
        assert summary is not None
        assert summary.mean == pytest.approx(0.2)


def test_the_coefficient_of_the_run_file_replaces_a_saved_one() -> None:
    """A run that is resumed with another fixed coefficient uses that one; a learned one needs its optimizer."""
    states = {}
    for coefficient in ("auto", 0.2):
        bench, trainer = make(hyper={"entcoef": coefficient})
        feed(bench, SyntheticActor(bench), trainer, 2)
        states[coefficient] = saved(trainer)
        for other in (0.5, 0.2):
            _, again = make(hyper={"entcoef": other})
            again.load_state_dict(states[coefficient])
            alpha = again.networks.temperatures.alphas().continuous
            assert alpha is not None
            assert float(alpha) == pytest.approx(other)
    _, learning = make()
    learning.load_state_dict(states["auto"])
    with pytest.raises(UserError, match=r"does not fit the run file: .*temperatures"):
        learning.load_state_dict(states[0.2])


@pytest.mark.parametrize("target", ["auto", -5.0, 1.5])
def test_the_target_entropy_is_that_of_the_run_file(target: float | str) -> None:
    """The temperature of the continuous action follows the given target, those of branches their own."""
    _, trainer = make(HYBRID, hyper={"target_entropy": target})
    targets = trainer.networks.temperatures.targets(None)
    assert targets.continuous is not None
    assert targets.discrete is not None
    assert float(targets.continuous) == (-1.0 if target == "auto" else target)
    torch.testing.assert_close(targets.discrete, 0.2 * torch.tensor([3.0, 2.0]).log())


def test_a_target_needs_a_continuous_action() -> None:
    """A target entropy is refused where no action is continuous."""
    with pytest.raises(Untrainable, match=r"CartPole: hyperparameters.target_entropy is -3, but CartPole has no cont"):
        make_bench({"trainer_type": "sac", "hyperparameters": {"target_entropy": -3}}, CARTPOLE, estimate_memory)


@pytest.mark.parametrize("schedule", ["linear", "constant", "cosine"])
def test_each_part_has_its_learning_rate(schedule: str) -> None:
    """Each learning rate follows the schedule; one that is not given is the common one."""
    bench, trainer = make(
        max_steps=80,
        hyper={
            "learning_rate": 1e-3,
            "critic_learning_rate": 4e-3,
            "temperature_learning_rate": 2e-4,
            "learning_rate_schedule": schedule,
            "steps_per_update": 20,
        },
    )
    assert rates(trainer) == {"policy": 1e-3, "critic": 4e-3, "temperatures": 2e-4}
    feed(bench, SyntheticActor(bench), trainer, 2)
    share = 1.0 if schedule == "constant" else 0.5
    expected = {"policy": 1e-3 * share, "critic": 4e-3 * share, "temperatures": 2e-4 * share}
    assert rates(trainer) == pytest.approx(expected, rel=1e-5)
    assert trainer.numbers["learning_rate"] == pytest.approx(expected["policy"], rel=1e-5)
    again = SACTrainer(bench.context())
    again.load_state_dict(saved(trainer))
    again._begin_updates()
    assert rates(again) == pytest.approx(expected, rel=1e-5)


def test_a_part_may_not_learn() -> None:
    """A learning rate of 0 keeps the policy, and the critics learn."""
    bench, trainer = make(CONTINUOUS, hyper={"policy_learning_rate": 0})
    before = weights(trainer)
    feed(bench, SyntheticActor(bench), trainer, 2)
    after = weights(trainer)
    kept = {name for name, _ in trainer.networks.named_parameters() if torch.equal(after[name], before[name])}
    assert kept == {f"policy.{name}" for name, _ in trainer.policy.named_parameters()}


def rates(trainer: SACTrainer) -> dict[str, Any]:
    """Returns the learning rate of each optimizer."""
    return {name: optimizer.learning_rate for name, optimizer in trainer.optimizers.items()}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("entcoef=0", "must be auto or a number above 0, got 0"),
        ("entcoef=automatic", "must be auto or a finite number, got 'automatic'"),
        ("target_entropy=.inf", "must be auto or a finite number, got inf"),
        ("policy_learning_rate=-1", "must be greater than or equal to 0, got -1"),
    ],
)
def test_other_values_are_refused(written: str, message: str) -> None:
    """A value that is neither auto nor a number is an error of one line."""
    with pytest.raises(UserError, match=rf"hyperparameters\.{written.partition('=')[0]}: {message}$"):
        load_run_options(None, set_items=["behaviors.A.trainer_type=sac", f"behaviors.A.hyperparameters.{written}"])


@pytest.mark.parametrize("key", ["target_entropy", "temperature_learning_rate"])
def test_what_a_fixed_coefficient_makes_void_is_refused(key: str) -> None:
    """Settings of a learned coefficient are refused next to a fixed one."""
    sets = [f"behaviors.A.hyperparameters.{each}" for each in ("entcoef=0.2", f"{key}=0.5")]
    with pytest.raises(UserError, match=f"{key} is 0.5, but entcoef is 0.2 and not learned: take one of them out"):
        load_run_options(None, set_items=["behaviors.A.trainer_type=sac", *sets])
