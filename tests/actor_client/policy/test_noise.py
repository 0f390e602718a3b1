"""Tests the random numbers of an actor."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from actor_client.policy.noise import Noise, RoundNoise, _gumbel, _uniform


def numbers(run_seed: int, actor_index: int, steps: int = 3) -> list[float]:
    """Returns the first numbers of both kinds."""
    noise = Noise(run_seed, actor_index, agents=2, continuous_size=1, logits_size=3)
    return [float(part.sum()) for _ in range(steps) for part in (noise.normal(), noise.gumbel())]


def test_the_same_actor_draws_the_same_and_another_does_not() -> None:
    """The numbers depend only on the run's seed and the actor's index."""
    assert numbers(1, 0) == numbers(1, 0)
    assert not set(numbers(1, 0)) & set(numbers(1, 1))
    assert not set(numbers(1, 0)) & set(numbers(2, 0))


class _Zeros:
    """A generator that draws 0, as a real one does once in 10^16 numbers."""

    def standard_exponential(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Returns zeros."""
        return np.zeros(shape)


def test_gumbel_numbers_are_finite() -> None:
    """The rarest draw favors its choice over all others, and is not infinite, not even as float32."""
    numbers = _gumbel(_Zeros(), 2, 3)  # type: ignore[arg-type]
    assert numbers.dtype == np.float32
    assert np.isfinite(numbers).all()
    assert numbers.min() > 700.0


def test_one_kind_does_not_depend_on_the_other() -> None:
    """The number of drawn normal numbers does not change the Gumbel ones."""
    one, other = (Noise(1, 0, agents=2, continuous_size=4, logits_size=3) for _ in range(2))
    for _ in range(100):
        one.normal()

    for _ in range(100):
        np.testing.assert_array_equal(one.gumbel(), other.gumbel())


@pytest.mark.parametrize("kind", [Noise, RoundNoise])
def test_shapes_and_moments(kind: type[Noise | RoundNoise]) -> None:
    """Each step has new numbers [B, n] and [B, A] with the mean and variance of their distributions."""
    noise = kind(3, 4, agents=16, continuous_size=2, logits_size=5)
    normal = np.stack([noise.normal() for _ in range(1000)])
    gumbel = np.stack([noise.gumbel() for _ in range(1000)])

    assert (normal.shape, gumbel.shape) == ((1000, 16, 2), (1000, 16, 5))
    assert {str(normal.dtype), str(gumbel.dtype)} == {"float32"}
    assert len(np.unique(normal)) > 0.99 * normal.size
    assert abs(normal.mean()) < 0.03
    assert abs(normal.var() - 1) < 0.03
    assert abs(gumbel.mean() - np.euler_gamma) < 0.03
    assert abs(gumbel.var() - np.pi**2 / 6) < 0.05
    assert np.isfinite(gumbel).all()
    wide, empty = kind(1, 0, agents=3, logits_size=40_000), kind(1, 0, agents=3)
    assert not np.array_equal(wide.gumbel(), wide.gumbel())
    assert empty.normal().shape == empty.gumbel().shape == (3, 0)


@pytest.mark.parametrize("agents", [1, 3, 100, 20_000])
def test_a_number_of_agents_that_stays_draws_what_it_always_drew(agents: int) -> None:
    """A constant number of agents gets consecutive numbers of the generator."""
    noise = Noise(5, 2, agents=agents, continuous_size=3)
    children = np.random.SeedSequence((5, 2, 0x6E6F6973)).spawn(2)
    block_steps = max(1, min(64, 2**16 // (3 * agents)))
    expected = np.random.Generator(np.random.Philox(children[0])).standard_normal(
        (2, block_steps, agents, 3), dtype=np.float32
    )

    for block in expected[: 2 if agents < 1000 else 1]:
        for step in block:
            np.testing.assert_array_equal(noise.normal(), step)


def test_the_number_of_agents_may_change_with_each_step() -> None:
    """A changing number of agents gets new numbers every step, and no number is used twice."""
    noise = Noise(7, 0, agents=2, continuous_size=2, logits_size=3)
    sizes = np.random.default_rng(0).integers(0, 200, 500).tolist()
    normal, gumbel = [], []
    for agents in sizes:
        noise.resize(agents)
        normal.append(noise.normal())
        gumbel.append(noise.gumbel())

    assert [part.shape for part in normal] == [(agents, 2) for agents in sizes]
    assert [part.shape for part in gumbel] == [(agents, 3) for agents in sizes]
    drawn = np.concatenate(normal)
    assert len(np.unique(drawn)) > 0.99 * drawn.size
    assert abs(drawn.mean()) < 0.03
    assert abs(drawn.var() - 1) < 0.03


def test_a_number_of_agents_that_comes_back_goes_on_where_it_was() -> None:
    """A smaller step in between skips no number of a block that has enough left."""
    plain, changed = (Noise(7, 0, agents=8, continuous_size=1) for _ in range(2))
    expected = np.concatenate([plain.normal() for _ in range(4)])
    parts = []
    for agents in (8, 3, 5, 8, 8):
        changed.resize(agents)
        parts.append(changed.normal())

    np.testing.assert_array_equal(np.concatenate(parts), expected)


STEPS = 100
"""More than a block."""


def drawn(noise: RoundNoise, version: int, steps: int = STEPS) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns what a round draws, [steps, E, size] each."""
    noise.begin(version)
    numbers = [(noise.normal(), noise.gumbel()) for _ in range(steps)]
    normal, gumbel = zip(*numbers, strict=True)
    return np.stack(normal), np.stack(gumbel)


def make(run_seed: int = 7, actor_index: int = 1, agents: int = 3) -> RoundNoise:
    """Returns noise for two axes and five choices."""
    return RoundNoise(run_seed, actor_index, agents=agents, continuous_size=2, logits_size=5)


def test_a_round_does_not_depend_on_those_before() -> None:
    """A restarted actor draws the same numbers for a round as one that played all rounds."""
    old = make()
    drawn(old, 4, steps=17)
    for mine, fresh in zip(drawn(old, 5), drawn(make(), 5), strict=True):
        np.testing.assert_array_equal(mine, fresh)


def test_each_part_of_the_key_counts() -> None:
    """Another run seed, actor, environment or version gives other numbers."""
    normal, gumbel = drawn(make(), 5)
    others = [drawn(make(), 6), drawn(make(run_seed=8), 5), drawn(make(actor_index=2), 5)]
    for other_normal, other_gumbel in others:
        assert np.isin(other_normal, normal).mean() < 0.01
        assert np.isin(other_gumbel, gumbel).mean() < 0.01
    assert len(np.unique(normal)) > 0.99 * normal.size


def test_an_environment_draws_the_same_beside_more_of_them() -> None:
    """The number of environments does not change the numbers of any environment."""
    for few, many in zip(drawn(make(), 5), drawn(make(agents=8), 5), strict=True):
        np.testing.assert_array_equal(few, many[:, :3])


def test_another_number_of_environments_begins_the_round_anew() -> None:
    """After a resize each environment draws from the start of its round."""
    noise = make(agents=2)
    first, _ = drawn(noise, 5, steps=3)
    noise.resize(4)
    np.testing.assert_array_equal(noise.normal()[:2], first[0])


@pytest.mark.parametrize("rounds", [False, True])
def test_uniform_numbers_fill_an_open_interval(rounds: bool) -> None:
    """Uniform numbers are in (-1, 1), have the moments of the distribution, and change no other numbers."""
    kind = RoundNoise if rounds else Noise
    noise, other, third = (kind(3, 4, agents=16, continuous_size=2, logits_size=5) for _ in range(3))
    uniform = np.stack([noise.uniform() for _ in range(1000)])
    assert uniform.shape == (1000, 16, 2)
    assert uniform.dtype == np.float32
    assert np.abs(uniform).max() < 1.0
    assert uniform.all()
    assert abs(uniform.mean()) < 0.01
    assert abs(uniform.var() - 1.0 / 3.0) < 0.01
    assert abs((uniform > 0.9).mean() - 0.05) < 0.005
    np.testing.assert_array_equal(uniform[:10], np.stack([other.uniform() for _ in range(10)]))
    np.testing.assert_array_equal(noise.normal(), third.normal())
    np.testing.assert_array_equal(noise.gumbel(), third.gumbel())
    noise.resize(3)
    assert noise.uniform().shape == (3, 2)


def test_the_least_and_the_largest_uniform_numbers() -> None:
    """The extremes of the generator give the largest numbers below 1 in size, whose artanh is finite."""

    class Extremes(np.random.Generator):
        def random(self, *_: object, **__: object) -> NDArray[np.float32]:  # type: ignore[override]
            return np.array([0.0, 0.5, 1.0 - 2.0**-24], np.float32)

    found = _uniform(Extremes(np.random.PCG64(0)), 1, 3)
    np.testing.assert_array_equal(found, np.array([2.0**-24 - 1.0, 2.0**-24, 1.0 - 2.0**-24], np.float32))
    assert np.isfinite(np.arctanh(found)).all()
