"""Critics."""

from __future__ import annotations

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.networks.policy import PolicyNetwork
from learner.networks.value import ActorCritic, OutputGradients, build_critic
from learner.settings.network import NetworkSettings
from tests.learner.networks.specs import behavior, entities, goal, image, vector

SETTINGS = NetworkSettings(hidden_units=16, normalize=True)
SPEC = behavior(vector(), vector("other", 2), branches=(3,))
OBSERVATIONS = [torch.randn(5, 4), torch.randn(5, 2)]


def make(*, shared: bool) -> ActorCritic:
    """Actor and critic with two reward signals."""
    policy = PolicyNetwork(SPEC, SETTINGS)
    return ActorCritic(policy, build_critic(policy, SETTINGS, signals=2, shared=shared))


def test_both_kinds_value_every_signal() -> None:
    """A critic of its own and a shared one give one value a signal, alone and beside the policy's output."""
    for shared in (False, True):
        network = make(shared=shared)
        output, values = network(OBSERVATIONS, None)
        assert output.logits is not None
        assert values.shape == (5, 2)
        assert torch.allclose(values, network.values(OBSERVATIONS), atol=1e-6)


def test_a_shared_critic_adds_a_head_only() -> None:
    """The policy's state is the same with both; the shared critic has no body of its own."""
    apart, shared = make(shared=False), make(shared=True)
    assert apart.policy.state_dict().keys() == shared.policy.state_dict().keys()
    assert [name for name, _ in shared.critic.named_parameters()] == ["values.weight", "values.bias"]


def test_every_normalizer_is_found() -> None:
    """A critic of its own has normalizers of its own, one for each vector observation."""
    assert [index for index, _ in make(shared=False).vector_encoders()] == [0, 1, 0, 1]
    assert [index for index, _ in make(shared=True).vector_encoders()] == [0, 1]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        behavior(continuous=2),
        behavior(branches=(3,)),
        behavior(vector(), image(), continuous=1, branches=(2, 4)),
        behavior(entities(), vector(), continuous=1, branches=(2, 4)),
        behavior(vector(), goal(), branches=(3,)),
        behavior(entities(), goal(), continuous=2),
    ],
    ids=["continuous", "discrete", "pixels, hybrid", "entities, hybrid", "goal", "goal and entities"],
)
def test_the_way_back_by_hand_is_that_of_autograd(spec: BehaviorSpec, *, shared: bool, masked: bool) -> None:
    """Every parameter gets the gradient that autograd finds, whatever the behavior, the critic and the masks."""
    generator = torch.Generator().manual_seed(1)
    policy = PolicyNetwork(spec, SETTINGS, generator)
    network = ActorCritic(policy, build_critic(policy, SETTINGS, signals=2, shared=shared, generator=generator))
    inputs: dict[str, torch.Tensor] = {
        "state": torch.randn(6, 4, generator=generator),
        "crowd": torch.randn(6, 5, 3, generator=generator),
        "goal": torch.randn(6, 3, generator=generator),
        "pixels": torch.randint(0, 256, (6, 24, 28, 3), generator=generator, dtype=torch.uint8),
    }
    observations = [inputs[observation.name] for observation in spec.observations]
    masks = torch.randint(0, 2, (6, spec.action.mask_size), generator=generator) if masked else None
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 77.0)

    output, values = network(observations, masks)
    scores = None
    if output.logits is not None:
        scores = torch.randn(output.logits.shape, generator=generator)
    outer = OutputGradients(
        None if output.mean is None else torch.randn(output.mean.shape, generator=generator),
        None if output.log_std is None else torch.randn(output.log_std.shape, generator=generator),
        scores,
        torch.randn(values.shape, generator=generator),
    )
    pairs = [(output.mean, outer.mean), (output.log_std, outer.log_std), (values, outer.values)]
    if output.logits is not None and scores is not None:
        pairs.append((_scores(network, observations, masks), scores))
    present = [(result, slope) for result, slope in pairs if result is not None and slope is not None]
    parameters = list(network.parameters())
    expected = torch.autograd.grad([pair[0] for pair in present], parameters, [pair[1] for pair in present])

    with torch.no_grad():
        recorded, recorded_values, record = network.record(observations, masks)
        network.backward(record, outer)
    assert torch.allclose(values, recorded_values, atol=1e-6)
    for one, other in zip(output, recorded, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.allclose(one, other, atol=1e-6)
    for gradient, parameter in zip(expected, parameters, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(gradient, parameter.grad, rtol=1e-4, atol=1e-5)


def _scores(network: ActorCritic, observations: list[torch.Tensor], masks: torch.Tensor | None) -> torch.Tensor:
    """What the categorical head normalizes."""
    head = network.policy.categorical
    if head is None:
        raise TypeError
    logits: torch.Tensor = head.logits(network.policy.body(observations))
    return logits if masks is None else logits * masks
