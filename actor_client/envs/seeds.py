"""Seeds of environments."""

from typing import Final

import numpy as np

_STREAM_KEY: Final = 0x656E7673
"""Separates environment seeds from action noise that grows from the same run seed."""
_SEED_BITS: Final = 31
"""Many simulators store a seed in a signed 32-bit integer."""


def environment_seeds(run_seed: int, actor_index: int, num_envs: int, *, life: int = 0) -> list[int]:
    """Returns the seed of each environment, in [0, 2**31), the same in each process that asks.

    Args:
        run_seed: The seed of the run.
        actor_index: Which actor of the run asks.
        num_envs: How many environments it has; does not change the seed of any.
        life: How often the batch was made anew, so that a fault does not repeat for ever by itself.
    """
    return [
        int(np.random.SeedSequence((run_seed, actor_index, _STREAM_KEY, env, life)).generate_state(1)[0])
        & (2**_SEED_BITS - 1)
        for env in range(num_envs)
    ]
