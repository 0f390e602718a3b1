"""Random numbers of lock-step follow from run seed, actor, environment and version, and from nothing else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.noise import RoundNoise

STEPS = 100
"""More than a block."""


def drawn(noise: RoundNoise, version: int, steps: int = STEPS) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What a round draws, [steps, E, size] each."""
    noise.begin(version)
    numbers = [(noise.normal(), noise.gumbel()) for _ in range(steps)]
    normal, gumbel = zip(*numbers, strict=True)
    return np.stack(normal), np.stack(gumbel)


def make(run_seed: int = 7, actor_index: int = 1, agents: int = 3) -> RoundNoise:
    """Noise for two axes and five choices."""
    return RoundNoise(run_seed, actor_index, agents=agents, continuous_size=2, logits_size=5)


def test_a_round_does_not_depend_on_those_before() -> None:
    """An actor that was restarted draws what one draws that has played all along."""
    old = make()
    drawn(old, 4, steps=17)
    for mine, fresh in zip(drawn(old, 5), drawn(make(), 5), strict=True):
        np.testing.assert_array_equal(mine, fresh)


def test_each_part_of_the_key_counts() -> None:
    """Another run seed, actor, environment or version draws other numbers."""
    normal, gumbel = drawn(make(), 5)
    others = [drawn(make(), 6), drawn(make(run_seed=8), 5), drawn(make(actor_index=2), 5)]
    for other_normal, other_gumbel in others:
        assert np.isin(other_normal, normal).mean() < 0.01
        assert np.isin(other_gumbel, gumbel).mean() < 0.01
    assert len(np.unique(normal)) > 0.99 * normal.size


def test_an_environment_draws_the_same_beside_more_of_them() -> None:
    """The number of environments of an actor changes no number of any of them."""
    for few, many in zip(drawn(make(), 5), drawn(make(agents=8), 5), strict=True):
        np.testing.assert_array_equal(few, many[:, :3])


def test_moments_are_those_of_the_distributions() -> None:
    """Means and variances are those of standard normal and standard Gumbel numbers, and all are finite."""
    normal, gumbel = drawn(make(agents=64), 1, steps=400)
    assert np.isfinite(gumbel).all()
    assert abs(normal.mean()) < 0.02
    assert abs(normal.var() - 1.0) < 0.02
    assert abs(gumbel.mean() - np.euler_gamma) < 0.02
    assert abs(gumbel.var() - np.pi**2 / 6) < 0.05


def test_an_action_space_without_a_part_draws_nothing_of_it() -> None:
    """Sizes of 0 give arrays without columns, for ever."""
    noise = RoundNoise(1, 0, agents=2)
    normal, gumbel = drawn(noise, 3)
    assert normal.shape == gumbel.shape == (STEPS, 2, 0)


def test_another_number_of_environments_begins_the_round_anew() -> None:
    """After a resize each environment draws from the beginning of its round."""
    noise = make(agents=2)
    first, _ = drawn(noise, 5, steps=3)
    noise.resize(4)
    np.testing.assert_array_equal(noise.normal()[:2], first[0])
