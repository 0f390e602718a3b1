"""Policies as the learner exports them: what the actor records is what the learner computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from actor_client.envs.factory import make_env_batch
from actor_client.policy.actions import MemoryForm, began
from actor_client.policy.noise import Noise
from actor_client.policy.runner import Policy
from learner.networks.distributions import branch_offsets, categorical_log_prob, gaussian_log_prob
from learner.networks.policy import PolicyNetwork
from learner.publish.describe import describe
from learner.publish.onnx import PolicyExporter
from learner.settings.network import MemorySettings, NetworkSettings
from tests.actor_client.envs import toys


@pytest.mark.parametrize(
    ("env", "masked"), [("CartPole-v1", False), ("Pendulum-v1", False), (f"{toys.MODULE}:nested", True)]
)
def test_recorded_log_probabilities_are_the_learners(env: str, masked: bool) -> None:
    """Observations of a real environment through the exported file and through torch give the same numbers."""
    batch = make_env_batch(env, num_envs=5)
    observations = batch.reset(range(5))
    action = batch.spec.action
    torch.manual_seed(1)
    network = PolicyNetwork(batch.spec, NetworkSettings(hidden_units=16, num_layers=1))
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1))
    version = exporter.render_version(network.state_dict(), version=1, optimizer_steps=0, env_steps_trained=0)
    policy = Policy.load(*version, batch.spec)
    noise = Noise(1, 0, agents=5, continuous_size=action.continuous_size, logits_size=action.mask_size)
    masks = np.tile(np.array([[1, 0, 1, 0, 1, 1, 1, 0, 0, 1]], np.uint8), (5, 1)) if masked else None

    actions = policy.act(observations, masks, noise)

    with torch.no_grad():
        output = network(
            [torch.from_numpy(part) for part in observations], None if masks is None else torch.from_numpy(masks)
        )
    factors: list[Any] = []
    if actions.continuous is not None:
        factors.append(gaussian_log_prob(output.mean, output.log_std, torch.from_numpy(actions.continuous)))
    if actions.discrete is not None:
        columns = torch.from_numpy(actions.discrete).to(torch.int64) + branch_offsets(action.discrete_branches)
        factors.append(categorical_log_prob(output.logits, columns))
    np.testing.assert_allclose(actions.log_prob, torch.cat(factors, 1).detach().numpy(), rtol=1e-4, atol=1e-5)
    result = batch.step(actions.environment_continuous, actions.discrete)
    assert np.isfinite(result.rewards).all()
    batch.close()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_what_an_actor_remembers_is_what_the_learner_would(env: str) -> None:
    """Over many steps, with episodes that end: recorded memories lead to the recorded log-probabilities."""
    batch = make_env_batch(env, num_envs=4)
    observations = batch.reset(range(4))
    action = batch.spec.action
    torch.manual_seed(1)
    settings = NetworkSettings(hidden_units=16, num_layers=1, memory=MemorySettings(memory_size=10, sequence_length=3))
    network = PolicyNetwork(batch.spec, settings)
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1, memory_stride=3))
    version = exporter.render_version(network.state_dict(), version=1, optimizer_steps=0, env_steps_trained=0)
    policy = Policy.load(*version, batch.spec)
    assert policy.memory == MemoryForm(10, 3)
    noise = Noise(1, 0, agents=4, continuous_size=action.continuous_size, logits_size=action.mask_size)
    memory, own = None, torch.zeros(4, 10)
    for step in range(100):
        acting = policy.greedy() if step % 10 == 0 else policy
        actions = acting.act(observations, None, noise, memory)
        with torch.no_grad():
            output = network([torch.from_numpy(part) for part in observations], None, own)
        assert actions.memory_in is not None
        assert actions.memory_out is not None
        np.testing.assert_allclose(actions.memory_in, own.numpy(), rtol=1e-4, atol=1e-5)
        if actions.discrete is None:
            own_log_prob = gaussian_log_prob(output.mean, output.log_std, torch.from_numpy(actions.continuous))
        else:
            own_log_prob = categorical_log_prob(output.logits, torch.from_numpy(actions.discrete).to(torch.int64))
        np.testing.assert_allclose(actions.log_prob, own_log_prob.detach().numpy(), rtol=1e-4, atol=1e-4)
        result = batch.step(actions.environment_continuous, actions.discrete)
        observations = result.observations
        memory, own = began(actions.memory_out, result.ended, result.ignored), output.recurrent_out.clone()
        own[list(result.ended)] = 0.0
    batch.close()
