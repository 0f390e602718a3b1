"""Tests that seeds follow from the run, the actor and the environment."""

from __future__ import annotations

from actor_client.envs.seeds import checkpoint_seeds, environment_seeds


def test_seeds_are_stable_and_differ() -> None:
    """Equal arguments give equal seeds; another run, actor, environment or remake gives others."""
    seeds = environment_seeds(1, 2, 4)

    assert seeds == environment_seeds(1, 2, 4)
    assert seeds == environment_seeds(1, 2, 9)[:4]
    everything = [
        seed
        for run in range(3)
        for actor in range(3)
        for life in range(3)
        for seed in environment_seeds(run, actor, 4, life=life)
    ]
    assert len(set(everything)) == len(everything)
    assert all(0 <= seed < 2**31 for seed in everything)


def test_seeds_after_a_checkpoint_are_others() -> None:
    """Seeds after a checkpoint depend on it and differ from those of the start."""
    seeds = checkpoint_seeds(1, 2, 4, 50)

    assert seeds == checkpoint_seeds(1, 2, 9, 50)[:4]
    others = [environment_seeds(1, 2, 4, life=50), checkpoint_seeds(1, 2, 4, 0), checkpoint_seeds(1, 2, 4, 50, life=1)]
    assert len({seed for group in (seeds, *others) for seed in group}) == 16
