"""Seeds follow from the run, the actor and the environment."""

from __future__ import annotations

from actor_client.envs.seeds import environment_seeds


def test_seeds_are_stable_and_differ() -> None:
    """The same arguments give the same seeds; another run, actor, environment or life gives others."""
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
