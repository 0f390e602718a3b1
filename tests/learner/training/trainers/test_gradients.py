"""Compares gradients with recorded ones that were computed in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learner.training.optimizers.adam import FlatAdam
from learner.training.optimizers.reduce import SingleLearner
from learner.training.trainers.actor_critic.loss import Loss
from learner.training.trainers.impala.trainer import impala_loss
from learner.training.trainers.ppo.trainer import ppo_loss
from learner.training.trainers.sac.trainer import minibatch_losses
from tests.learner.training.trainers.gradient_cases import CASES, STEPS, actor_critic, replay

TOLERANCE = 1e-5
SHOWN = 47
"""Numbers that are recorded of a larger tensor; its norm follows them."""


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, NDArray[np.float32]]:
    """Returns the recorded gradients by loss, case and parameter."""
    file = np.load(Path(__file__).with_name("recorded_gradients.npz"), allow_pickle=False)
    parts = np.split(file["numbers"], np.cumsum(file["lengths"])[:-1])
    return dict(zip(file["names"].tolist(), parts, strict=True))


def check(recorded: Mapping[str, NDArray[np.float32]], case: str, network: nn.Module, terms: Tensor) -> None:
    """Compares the gradients of all parameters, and what a loss was made of."""
    found = {name: parameter.grad for name, parameter in network.named_parameters() if parameter.requires_grad}
    expected = {name.rpartition("/")[2]: values for name, values in recorded.items() if name.startswith(f"{case}/")}
    assert found.keys() | {"terms"} == expected.keys()
    for name, gradient in {**found, "terms": terms.detach()}.items():
        assert gradient is not None
        numbers = gradient.numpy().ravel()
        if numbers.size > SHOWN + 1:
            numbers = np.append(numbers[:SHOWN], np.linalg.norm(numbers.astype(np.float64)))
        # Each processor adds float32 terms in another order, so that what remains of large terms of both signs is relative to
        # the tensor's scale.
        scale = max(1.0, float(np.abs(expected[name]).max()))
        np.testing.assert_allclose(numbers, expected[name], rtol=0.0, atol=TOLERANCE * scale, err_msg=name)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("loss", "epsilon"), [(ppo_loss, 0.2), (impala_loss, 0.0)], ids=["ppo", "impala"])
def test_those_of_actor_critics(
    recorded: Mapping[str, NDArray[np.float32]], case: str, loss: Loss, epsilon: float
) -> None:
    """Gradients of actor-critics are equal for every kind of network and action."""
    one = actor_critic(CASES[case], epsilon=epsilon)
    optimizer = FlatAdam(one.network, 0.0, SingleLearner())
    for parameter in one.network.parameters():
        assert parameter.grad is not None
        parameter.grad.fill_(77.0)
    optimizer.zero_grad()
    output, values = one.network(one.observations, one.masks, one.sequences)
    terms = loss(output, values, one.batch, one.coefficients)
    terms.total.backward()
    check(
        recorded,
        f"{'ppo' if loss is ppo_loss else 'impala'}/{case}",
        one.network,
        torch.stack([terms.scalars[name] for name in ("policy_loss", "value_loss", "entropy")]),
    )


@pytest.mark.parametrize("case", CASES)
def test_those_of_sac(recorded: Mapping[str, NDArray[np.float32]], case: str) -> None:
    """Gradients of policy, critics and temperatures are equal."""
    networks, batch = replay(CASES[case])
    axes = CASES[case].spec.action.continuous_size
    noise = torch.randn((2, STEPS, axes), generator=torch.Generator().manual_seed(0)) if axes else None
    losses = minibatch_losses(networks, batch, noise)
    torch.autograd.backward(losses.critics + losses.policy + losses.temperatures)
    of_critics = 0.5 * (losses.values - losses.targets).square().mean((1, 2))
    check(recorded, f"sac/{case}", networks, torch.cat([losses.policy.reshape(1), of_critics]))
