"""Tests policies that do not read what critics see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rollcast.specs import BehaviorSpec, ObservationSpec
from torch import Tensor

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.observations import ObservationError
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.value import ActorCritic, build_critic
from tests.learner.training.networks.specs import behavior, entities, goal, image, vector

ROWS = 5
SECRETS = {
    "vector": vector("secret", 3),
    "image": image("secret"),
    "entities": entities("secret"),
    "goal": goal("secret"),
    "double": vector("secret", 2, "float64", scale=3.0),
}
TOWER: dict[str, Any] = {"tower": {"depth": 1, "width": 4}}


def settings(**changes: Any) -> NetworkSettings:
    """Returns the settings of a network whose policy does not see the secret."""
    return NetworkSettings.model_validate({"hidden_units": 16, "normalize": True, "critic_only": ["secret"], **changes})


def drawn(spec: BehaviorSpec, rows: int = ROWS) -> list[Tensor]:
    """Returns random observations."""
    return [
        torch.randint(0, 256, (rows, *each.shape), dtype=torch.uint8)
        if each.dtype.kind == "u"
        else torch.randn(rows, *each.shape)
        for each in spec.observations
    ]


def others(spec: BehaviorSpec, seen: Sequence[Tensor]) -> list[Tensor]:
    """Returns observations that differ only in the secret."""
    again = drawn(spec, len(seen[0]))
    names = [each.name for each in spec.observations]
    return [new if name == "secret" else old for name, old, new in zip(names, seen, again, strict=True)]


def acting(spec: BehaviorSpec, network: NetworkSettings) -> ActorCritic:
    """Returns actor and critic."""
    generator = torch.Generator().manual_seed(1)
    policy = PolicyNetwork(spec, network, generator)
    return ActorCritic(policy, build_critic(policy, network, signals=1, shared=False, generator=generator))


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_only_critics_see_a_secret(secret: ObservationSpec, place: int) -> None:
    """Values depend on it at any place, actions do not, and actions depend on all other observations."""
    seen = [vector("near", 4), entities("crowd", (3, 2))]
    spec = behavior(*seen[:place], secret, *seen[place:], continuous=2, branches=(3,))
    network = acting(spec, settings())
    first = drawn(spec)
    second = others(spec, first)
    (one, value), (other, changed) = network(first, None), network(second, None)
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.logits, other.logits)
    assert not torch.allclose(value, changed)
    for index in network.policy.reads:
        moved = [values + 1 if position == index else values for position, values in enumerate(first)]
        assert not torch.allclose(network.policy(moved).mean, one.mean)
    assert torch.allclose(network.values(second), changed, atol=1e-6)


def test_a_policy_is_that_of_an_environment_without_the_secret() -> None:
    """The policy has the weights, and the outputs, of a policy whose behavior lacks the observation."""
    spec = behavior(vector("secret", 3), vector("near", 4), goal(), continuous=2)
    plain = behavior(vector("near", 4), goal(), continuous=2)
    ours = PolicyNetwork(spec, settings(), torch.Generator().manual_seed(1))
    theirs = PolicyNetwork(plain, settings(critic_only=[]), torch.Generator().manual_seed(1))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    seen = drawn(spec)
    assert torch.equal(ours(seen).mean, theirs(seen[1:]).mean)
    assert torch.equal(ours(ours.placed(seen[1:])).mean, theirs(seen[1:]).mean)


def test_a_tower_of_the_policy_lacks_planes() -> None:
    """A board that only critics see adds planes to their towers alone."""
    spec = behavior(image("board", (3, 3, 2)), image("secret", (3, 3, 4)), vector("near", 2), branches=(9,))
    network = acting(spec, settings(**TOWER))
    first = drawn(spec)
    second = others(spec, first)
    assert torch.equal(network(first, None)[0].logits, network(second, None)[0].logits)
    assert not torch.equal(network(first, None)[1], network(second, None)[1])
    assert network.policy.state_dict()["body.encoder.stem.weight"].shape[1] == 2 + 2
    with pytest.raises(ObservationError, match="none of the observations near consists of board planes"):
        PolicyNetwork(behavior(image("secret", (3, 3, 4)), vector("near"), branches=(9,)), settings(**TOWER))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["secrets"], "critic_only names 'secrets', but the observations are near, secret"),
        (["secret", "near"], "critic_only names all observations (near, secret), which leaves none"),
    ],
)
def test_names_that_cannot_be_left_out(names: list[str], message: str) -> None:
    """A name that no observation has is refused with the list of names, and so are all of them."""
    with pytest.raises(ObservationError) as refused:
        PolicyNetwork(behavior(vector("near"), vector("secret"), branches=(2,)), settings(critic_only=names))
    assert message in refused.value.message
