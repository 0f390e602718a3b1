"""Tests that the learner's formulas in torch and the actor's in numpy agree."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from actor_client.envs.factory import make_env_batch
from actor_client.policy.actions import MemoryForm, began
from actor_client.policy.distributions import Categorical, draw_gaussian, gaussian_log_prob, tanh_gaussian_log_prob
from actor_client.policy.noise import Noise
from actor_client.policy.runner import Policy
from learner.shared.settings.network import MemorySettings, NetworkSettings
from learner.training.export.describe import Progress, describe
from learner.training.export.onnx import PolicyExporter
from learner.training.networks import distributions as learners
from learner.training.networks.heads import CategoricalHead
from learner.training.networks.initializers import Initializer
from learner.training.networks.policy import PolicyNetwork
from tests.actor_client.envs import toys

SEEDS = st.integers(0, 2**32 - 1)
BRANCHES = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


def tensors(*arrays: NDArray[np.float32]) -> list[torch.Tensor]:
    """Returns the same numbers as tensors."""
    return [torch.from_numpy(array) for array in arrays]


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
def test_gaussians_agree(seed: int) -> None:
    """Log-probabilities of recorded draws agree to float32 rounding, squashed or not."""
    random = np.random.default_rng(seed)
    mean, log_std, noise = (random.normal(size=(8, 3)).astype(np.float32) for _ in range(3))
    raw = draw_gaussian(mean, log_std, noise)

    expected = learners.gaussian_log_prob(*tensors(mean, log_std, raw))
    np.testing.assert_allclose(gaussian_log_prob(raw, mean, log_std), expected.numpy(), rtol=1e-5, atol=1e-5)

    expected = learners.tanh_gaussian_log_prob(*tensors(mean, log_std, raw))
    np.testing.assert_allclose(tanh_gaussian_log_prob(raw, mean, log_std), expected.numpy(), rtol=1e-5, atol=1e-4)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, scale=st.sampled_from([1.0, 5.0, 20.0, 80.0]), spread=st.sampled_from([-20.0, -5.0, 0.0, 2.0]))
def test_squashed_gaussians_agree_where_tanh_saturates(seed: int, scale: float, spread: float) -> None:
    """Log-probabilities far beyond the saturation of tanh are finite and equal the formula in float64.

    The derivative of tanh is 4 exp(-2 |u|) / (1 + exp(-2 |u|))^2, whose logarithm loses nothing at any u.
    """
    random = np.random.default_rng(seed)
    mean = (scale * random.normal(size=(8, 3))).astype(np.float32)
    log_std = np.full((8, 3), spread, np.float32)
    raw = draw_gaussian(mean, log_std, random.normal(size=(8, 3)).astype(np.float32))
    found = tanh_gaussian_log_prob(raw, mean, log_std)
    theirs = learners.tanh_gaussian_log_prob(*tensors(mean, log_std, raw)).numpy()
    far = np.abs(raw.astype(np.float64))
    slope = np.log(4.0) - 2.0 * far - 2.0 * np.log1p(np.exp(-2.0 * far))
    exact = gaussian_log_prob(raw, mean, log_std).astype(np.float64) - slope
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
def test_the_entropy_of_gaussians_is_that_of_the_draws(seed: int) -> None:
    """The learner's entropy is the negated mean of the log-probabilities that actors record.

    The log-density is a polynomial of degree 2 in the noise, whose mean three nodes of Gauss and Hermite give exactly.
    """
    random = np.random.default_rng(seed)
    mean, log_std = (random.normal(size=(8, 3)).astype(np.float32) for _ in range(2))
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)

    total = np.zeros((8, 3))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        raw = draw_gaussian(mean, log_std, np.full((8, 3), node, np.float32))
        total -= weight * gaussian_log_prob(raw, mean, log_std)

    np.testing.assert_allclose(
        total, learners.gaussian_entropy(torch.from_numpy(log_std)).numpy(), rtol=1e-4, atol=1e-4
    )


class Scored(NamedTuple):
    """Scores of a head, its mask, and its output for both."""

    scores: NDArray[np.float32]
    masks: NDArray[np.uint8] | None
    logits: torch.Tensor


def scored(branches: tuple[int, ...], seed: int, *, masked: bool) -> Scored:
    """Draws scores, and masks that leave each branch a choice; the learner's head normalizes what is allowed."""
    random = np.random.default_rng(seed)
    size = sum(branches)
    scores = random.normal(scale=3, size=(8, size)).astype(np.float32)
    masks = None
    if masked:
        masks = (random.random((8, size)) < 0.4).astype(np.uint8)
        masks[:, learners.branch_offsets(branches).numpy()] = 1
    head = CategoricalHead(size, branches, Initializer("kaiming"))
    with torch.no_grad():
        head.logits.weight.copy_(torch.eye(size))
        logits = head(torch.from_numpy(scores), None if masks is None else torch.from_numpy(masks))
    return Scored(scores, masks, logits)


@settings(max_examples=50, deadline=None)
@given(branches=BRANCHES, seed=SEEDS, masked=st.booleans())
def test_categoricals_agree(branches: tuple[int, ...], seed: int, masked: bool) -> None:
    """Log-probabilities of recorded choices agree to float32 rounding, with any mask and either normalization."""
    scores, masks, logits = scored(branches, seed, masked=masked)
    gumbel = np.random.default_rng(seed + 1).gumbel(size=scores.shape).astype(np.float32)

    choices, log_prob = Categorical(branches, normalized=False).choose(scores, masks, gumbel)
    again, short = Categorical(branches, normalized=True).choose(logits.numpy(), masks, gumbel)

    columns = torch.from_numpy(choices).to(torch.int64) + learners.branch_offsets(branches)
    expected = learners.categorical_log_prob(logits, columns)
    np.testing.assert_allclose(log_prob, expected.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(choices, again)
    np.testing.assert_allclose(short, expected.numpy(), rtol=1e-5, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(branches=BRANCHES, seed=SEEDS, masked=st.booleans())
def test_the_entropy_of_categoricals_is_that_of_the_choices(branches: tuple[int, ...], seed: int, masked: bool) -> None:
    """The entropy equals the negated mean of the recorded log-probabilities over all allowed choices.

    A choice is forced by noise that outweighs every score; what is forbidden is not taken even then.
    """
    scores, masks, logits = scored(branches, seed, masked=masked)
    categorical = Categorical(branches, normalized=False)
    entropy, mass = np.zeros((8, len(branches))), np.zeros((8, len(branches)))
    for place in range(max(branches)):
        gumbel = np.zeros_like(scores)
        wanted = np.minimum(place, np.array(branches) - 1)
        gumbel[:, learners.branch_offsets(branches).numpy() + wanted] = 1e6
        choices, log_prob = categorical.choose(scores, masks, gumbel)
        taken = choices == place
        probability = np.exp(log_prob.astype(np.float64)) * taken
        entropy -= probability * log_prob
        mass += probability

    expected = learners.categorical_entropy(logits, branches)
    np.testing.assert_allclose(mass, 1.0, rtol=1e-5)
    np.testing.assert_allclose(entropy, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_recorded_log_probabilities_are_the_learners() -> None:
    """The exported ONNX file and torch give equal numbers for nested observations, branches and masks."""
    batch = make_env_batch(f"{toys.MODULE}:nested", num_envs=5)
    observations = batch.reset(range(5))
    action = batch.spec.action
    torch.manual_seed(1)
    network = PolicyNetwork(batch.spec, NetworkSettings(hidden_units=16, num_layers=1))
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1))
    version = exporter.render_version(network.state_dict(), Progress(1, 0, 0))
    policy = Policy.load(*version, batch.spec)
    noise = Noise(1, 0, agents=5, continuous_size=action.continuous_size, logits_size=action.mask_size)
    masks = np.tile(np.array([[1, 0, 1, 0, 1, 1, 1, 0, 0, 1]], np.uint8), (5, 1))

    actions = policy.act(observations, masks, noise)

    with torch.no_grad():
        output = network([torch.from_numpy(part) for part in observations], torch.from_numpy(masks))
    columns = torch.from_numpy(actions.discrete).to(torch.int64) + learners.branch_offsets(action.discrete_branches)
    expected = learners.categorical_log_prob(output.logits, columns)
    np.testing.assert_allclose(actions.log_prob, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    batch.step(None, actions.discrete)
    batch.close()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_what_an_actor_remembers_is_what_the_learner_would(env: str) -> None:
    """Recorded memories reproduce the recorded log-probabilities over many steps and episodes, random ones included."""
    batch = make_env_batch(env, num_envs=4)
    observations = batch.reset(range(4))
    action = batch.spec.action
    torch.manual_seed(1)
    settings = NetworkSettings(hidden_units=16, num_layers=1, memory=MemorySettings(memory_size=10, sequence_length=3))
    network = PolicyNetwork(batch.spec, settings)
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1, memory_stride=3))
    version = exporter.render_version(network.state_dict(), Progress(1, 0, 0))
    policy = Policy.load(*version, batch.spec)
    random = Policy.load(replace(version[0], uniform=True), version[1], batch.spec)
    assert policy.memory == MemoryForm(10, 3)
    noise = Noise(1, 0, agents=4, continuous_size=action.continuous_size, logits_size=action.mask_size)
    memory, own = None, torch.zeros(4, 10)
    for step in range(100):
        acting = policy.greedy() if step % 10 == 0 else random if step % 10 == 1 else policy
        actions = acting.act(observations, None, noise, memory)
        with torch.no_grad():
            output = network([torch.from_numpy(part) for part in observations], None, own)
        assert actions.memory_in is not None
        assert actions.memory_out is not None
        np.testing.assert_allclose(actions.memory_in, own.numpy(), rtol=1e-4, atol=1e-5)
        if acting is random:
            factor = 6.0 if actions.discrete is None else action.mask_size
            np.testing.assert_allclose(actions.log_prob, -np.log(factor), rtol=1e-6)
            own_log_prob = torch.from_numpy(actions.log_prob)
        elif actions.discrete is None:
            own_log_prob = learners.gaussian_log_prob(output.mean, output.log_std, torch.from_numpy(actions.continuous))
        else:
            own_log_prob = learners.categorical_log_prob(
                output.logits, torch.from_numpy(actions.discrete).to(torch.int64)
            )
        np.testing.assert_allclose(actions.log_prob, own_log_prob.detach().numpy(), rtol=1e-4, atol=1e-4)
        result = batch.step(actions.environment_continuous, actions.discrete)
        observations = result.observations
        memory, own = began(actions.memory_out, result.ended, result.ignored), output.recurrent_out.clone()
        own[list(result.ended)] = 0.0
    batch.close()
