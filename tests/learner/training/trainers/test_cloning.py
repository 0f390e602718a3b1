"""Tests behavioral cloning: loss, schedule, amount, and every trainer with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rollcast.demonstrations.writing import Action, DemonstrationWriter
from rollcast.enums import Squash
from rollcast.specs import ActionSpec, BehaviorSpec

from learner.shared.exits import UserError
from learner.shared.settings.network import NetworkSettings
from learner.training.networks.distributions import branch_offsets
from learner.training.networks.policy import PolicyNetwork, PolicyOutput
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.cloning import LEAST_LOG_STD, STATISTIC, BehavioralCloning, build_cloning, cloning_loss
from learner.training.trainers.off_policy import CLONING_UPDATES
from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.networks.specs import behavior, vector
from tests.learner.training.rewards.recorded import demonstrate
from tests.learner.training.trainers.in_process import make_bench
from tests.learner.training.trainers.sac.started import settle
from tests.learner.training.trainers.started import feed, make, uninterrupted_and_resumed
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID, SyntheticActor

STEPS = 64


def by_sign(spec: BehaviorSpec, seen: list[NDArray[Any]]) -> Action:
    """An expert whose actions follow from its first number."""
    value = float(seen[0].ravel()[0])
    action = spec.action
    return Action(
        np.full(action.continuous_size, 0.6 * np.tanh(value), np.float32) if action.continuous_size else None,
        np.array([int(value > 0) * (size - 1) for size in action.discrete_branches])
        if action.discrete_branches
        else None,
    )


def cloning(
    path: Path,
    spec: BehaviorSpec,
    memory: dict[str, Any] | None = None,
    *,
    critic_only: tuple[str, ...] = (),
    **changes: Any,
) -> tuple[BehavioralCloning, PolicyNetwork]:
    """Returns cloning of 64 steps of such an expert, and the imitating policy."""
    file = path / "expert.demo"
    if not file.exists():
        demonstrate(file, spec, [40, 24], lambda seen: by_sign(spec, seen))
    network = {"hidden_units": 32, "critic_only": critic_only, **({"memory": memory} if memory else {})}
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 16, "learning_rate": 3e-3},
        "network_settings": network,
        "behavioral_cloning": {"demo_path": str(file), **changes},
    }
    bench = make_bench(settings, spec)
    policy = PolicyNetwork(spec, NetworkSettings.model_validate(network), torch.Generator().manual_seed(1))
    made = build_cloning(bench.context(), policy, Squash.CLIP3_DIV3)
    assert made is not None
    return made, policy


def steps_taken(made: BehavioralCloning) -> int:
    """Returns the number of gradient steps."""
    return int(made.state_dict()["optimizer"]["steps"])


def test_the_loss_is_the_likelihood_of_what_was_done() -> None:
    """The loss equals torch's distributions, with a minimum standard deviation."""
    action = ActionSpec(continuous_size=2, discrete_branches=(3, 2))
    generator = torch.Generator().manual_seed(1)
    mean, draws = (torch.randn(7, 2, generator=generator) for _ in range(2))
    log_std = torch.tensor([[0.3, -9.0]]).expand(7, 2)
    scores = torch.randn(7, 5, generator=generator)
    logits = torch.cat([torch.log_softmax(part, 1) for part in torch.split(scores, [3, 2], 1)], 1)
    choices = torch.stack([torch.arange(7) % 3, torch.arange(7) % 2], 1)
    expert = Transitions(torch.zeros(7), torch.zeros(7, dtype=torch.float64), (), (), draws, choices)
    spread = torch.tensor([math.exp(0.3), math.exp(LEAST_LOG_STD)])
    expected = torch.distributions.Normal(mean, spread).log_prob(draws).sum(1)
    for part, column in zip(torch.split(scores, [3, 2], 1), choices.T, strict=True):
        expected = expected + torch.distributions.Categorical(logits=part).log_prob(column)
    loss = cloning_loss(PolicyOutput(mean, log_std, logits, None), expert, branch_offsets(action.discrete_branches))
    assert torch.allclose(loss, -expected.mean())


@pytest.mark.parametrize("memory", [None, {"sequence_length": 8, "memory_size": 16}], ids=["plain", "memory"])
def test_what_had_no_alternative_teaches_nothing(tmp_path: Path, memory: dict[str, Any] | None) -> None:
    """A step with one allowed choice has loss 0 and no gradient."""
    spec = behavior(vector(), branches=(3,))

    def only(seen: list[NDArray[Any]]) -> Action:
        choice = 2 * int(seen[0][0] > 0)
        return Action(discrete=np.array([choice], np.int32), masks=np.eye(3, dtype=np.uint8)[choice])

    demonstrate(tmp_path / "expert.demo", spec, [40, 24], only)
    made, policy = cloning(tmp_path, spec, memory)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    made.update(0)
    assert steps_taken(made) > 0
    assert made.statistics() == {STATISTIC: 0.0}
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


@pytest.mark.parametrize("memory", [None, {"sequence_length": 8, "memory_size": 16}], ids=["plain", "memory"])
@pytest.mark.parametrize("name", ["continuous", "branches", "hybrid"])
def test_a_policy_becomes_its_expert(tmp_path: Path, name: str, memory: dict[str, Any] | None) -> None:
    """The policy's mean and mode approach the expert's, with and without memory."""
    spec = {
        "continuous": behavior(vector(), continuous=2),
        "branches": behavior(vector(), branches=(3, 2)),
        "hybrid": behavior(vector(), continuous=1, branches=(2,)),
    }[name]
    made, policy = cloning(tmp_path, spec, memory, num_epoch=100)
    made.update(0)
    assert bool(made.is_finite())
    seen = torch.randn(200, 4, generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        output = policy([seen], None, torch.zeros(200, policy.memory_size) if memory else None)
    wanted = [by_sign(spec, [row.numpy()]) for row in seen]
    if output.mean is not None:
        actions = np.stack([each.continuous for each in wanted if each.continuous is not None])
        assert float(np.abs(output.mean.numpy() / 3 - actions).mean()) < 0.12
    if output.logits is not None:
        branches = list(spec.action.discrete_branches)
        found = torch.stack([part.argmax(1) for part in output.logits.split(branches, 1)], 1).numpy()
        choices = np.stack([each.discrete for each in wanted if each.discrete is not None])
        assert float((found == choices).mean()) > 0.85
    assert set(made.statistics()) == {STATISTIC}
    assert made.statistics() == {}


@pytest.mark.parametrize("memory", [None, {"sequence_length": 8, "memory_size": 16}], ids=["plain", "memory"])
@pytest.mark.parametrize("recorded", ["all", "those of the policy"])
def test_demonstrations_may_lack_what_only_critics_see(
    tmp_path: Path, recorded: str, memory: dict[str, Any] | None
) -> None:
    """A policy imitates demonstrations with and without the observations that it does not read, with the same result."""
    spec = behavior(vector("secret", 3), vector("near", 4), branches=(3,))
    lacking = behavior(vector("near", 4), branches=(3,))
    given, plain = tmp_path / "given", tmp_path / "plain"
    record_near(given, spec if recorded == "all" else lacking)
    record_near(plain, lacking)
    found = cloning(given, spec, memory, critic_only=("secret",)), cloning(plain, lacking, memory)
    for made, _ in found:
        made.update(0)
        assert steps_taken(made) > 0
    ours, theirs = (policy.state_dict() for _, policy in found)
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def record_near(folder: Path, spec: BehaviorSpec) -> None:
    """Writes two episodes in which the expert follows the last observation; one before it has the number of the step."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    with DemonstrationWriter(folder / "expert.demo", spec) as writer:
        for length in (40, 24):
            for step in range(length):
                near = generator.normal(size=4).astype(np.float32)
                seen = [np.full(3, step, np.float32), near][-len(spec.observations) :]
                writer.step(1, seen, by_sign(spec, [near]), 0.0)
            writer.end(1, seen, interrupted=False)


def test_demonstrations_must_have_what_the_policy_reads(tmp_path: Path) -> None:
    """A file with the critics' observation in place of the policy's is refused, and one with another number of them."""
    spec = behavior(vector("near", 4), vector("secret", 4), branches=(3,))
    for only, message in (
        ((vector("secret", 4),), "it has secret; the run's behavior has near, secret: it must have all"),
        ((vector("near"), vector("far"), vector("secret")), "has 3 observations; the run's behavior has 2, of which 1"),
    ):
        demonstrate(tmp_path / "expert.demo", behavior(*only, branches=(3,)))
        with pytest.raises(UserError, match=message):
            cloning(tmp_path, spec, critic_only=("secret",))
        with pytest.raises(UserError, match="observations; the run's behavior has 2"):
            cloning(tmp_path, spec)
        (tmp_path / "expert.demo").unlink()


def test_how_much_an_update_takes(tmp_path: Path) -> None:
    """An update takes three epochs, limited by samples_per_update, of at least one minibatch."""
    spec = behavior(vector(), branches=(3,))
    cases: tuple[tuple[dict[str, Any], int], ...] = (
        ({}, 3 * STEPS // 16),
        ({"num_epoch": 1, "batch_size": 10}, 6),
        ({"samples_per_update": 33}, 3 * 2),
        ({"batch_size": 1000, "num_epoch": 1}, 1),
        ({"samples_per_update": 1, "num_epoch": 1}, 1),
    )
    for changes, steps in cases:
        made, _ = cloning(tmp_path, spec, **changes)
        made.update(0)
        assert steps_taken(made) == steps, changes


def test_the_strength_falls_to_nothing(tmp_path: Path) -> None:
    """The learning rate is the trainer's times strength, and falls linearly to nothing."""
    spec = behavior(vector(), branches=(3,))

    def moved(step: int, **changes: Any) -> float:
        made, policy = cloning(tmp_path, spec, num_epoch=1, batch_size=64, **changes)
        before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
        made.update(step)
        return float((torch.nn.utils.parameters_to_vector(policy.parameters()).detach() - before).abs().max())

    assert moved(10**9) == pytest.approx(3e-3, rel=1e-3)  # Adam's first step is as long as the learning rate
    assert moved(0, strength=0.5, steps=1000) == pytest.approx(1.5e-3, rel=1e-3)
    assert moved(250, strength=0.5, steps=1000) == pytest.approx(0.75 * 1.5e-3, rel=1e-3)
    assert moved(1000, steps=1000) == 0.0
    assert moved(0, strength=0.0) == 0.0


def test_demonstrations_of_another_behavior_are_refused(tmp_path: Path) -> None:
    """Another behavior's demonstrations are an error that names the setting."""
    file = demonstrate(tmp_path / "other.demo", behavior(vector(), branches=(3,)))
    with pytest.raises(UserError, match=r"behaviors\.Continuous\.behavioral_cloning\.demo_path: .*other\.demo"):
        make(behavioral_cloning={"demo_path": str(file)})


@pytest.mark.parametrize("spec", [CONTINUOUS, BRANCHES, HYBRID], ids=lambda spec: spec.name)
def test_a_trainer_that_imitates(tmp_path: Path, spec: BehaviorSpec) -> None:
    """Imitation comes after the epochs and before publication, so that actors and learner agree."""
    file = demonstrate(tmp_path / "x.demo", spec, [40])
    bench, trainer = make(spec, behavioral_cloning={"demo_path": str(file), "num_epoch": 20})
    actor = SyntheticActor(bench)
    losses = []
    for _ in range(4):
        feed(bench, actor, 1, trainer)
        assert trainer.numbers["log_prob_error_max"] < 1e-4
        losses.append(bench.stats.write_stats(0)[STATISTIC].value)
    assert losses[-1] < losses[0]
    for name, value in trainer.policy.state_dict().items():
        assert torch.equal(value, bench.published.state[name])


def test_a_resumed_trainer_imitates_on(tmp_path: Path) -> None:
    """Five updates equal two, a save, a load and three more, bit for bit."""
    file = demonstrate(tmp_path / "x.demo", CONTINUOUS, [40])
    trainers = uninterrupted_and_resumed(behavioral_cloning={"demo_path": str(file)})
    first, second = (trainer.policy.state_dict() for trainer in trainers)
    steps = {steps_taken(trainer.cloning) for trainer in trainers if trainer.cloning is not None}
    assert len(steps) == 1
    assert min(steps) > 0
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_an_update_that_is_not_finite_is_undone(tmp_path: Path) -> None:
    """A failed update also restores the imitated weights."""
    file = demonstrate(tmp_path / "x.demo", CONTINUOUS, [40])
    bench, trainer = make(network={"normalize": False}, behavioral_cloning={"demo_path": str(file)})
    feed(bench, SyntheticActor(bench), 1, trainer)
    assert trainer.cloning is not None
    before, policy = steps_taken(trainer.cloning), {k: v.clone() for k, v in trainer.policy.state_dict().items()}
    bench.put(SyntheticActor(bench, 9).chunk([20] * 4, columns={"reward": np.full(80, 3e38, np.float32)}))
    trainer.advance()
    assert (trainer.version, steps_taken(trainer.cloning)) == (1, before)
    assert all(torch.equal(value, policy[name]) for name, value in trainer.policy.state_dict().items())


def test_sac_imitates_in_proportion(tmp_path: Path) -> None:
    """Imitation takes at most as many gradient steps as SAC, however many demonstrations there are."""
    file = demonstrate(tmp_path / "x.demo", CONTINUOUS, [1000])  # three passes are 186 minibatches
    bench = make_bench(
        {
            "trainer_type": "sac",
            "hyperparameters": {"batch_size": 16, "buffer_size": 1000, "buffer_init_steps": 20},
            "network_settings": {"hidden_units": 8},
            "behavioral_cloning": {"demo_path": str(file)},
        },
        CONTINUOUS,
    )
    trainer = SACTrainer(bench.context())
    trainer.start()
    actor = SyntheticActor(bench)
    for _ in range(7):
        bench.put(actor.chunk([20]))
        settle(trainer)
    taken = trainer.model_state()["cloning"]["optimizer"]["steps"]
    assert 0 < taken <= trainer.optimizer_steps + CLONING_UPDATES  # the first ones come with the first update
    assert STATISTIC in bench.stats.write_stats(0)
