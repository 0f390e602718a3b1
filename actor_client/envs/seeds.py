"""Seeds of environments."""

from typing import Final

import numpy as np

_STREAM_KEY: Final = 0x656E7673
"""Separates environment seeds from action noise that grows from the same run seed."""
_CHECKPOINT_KEY: Final = 0x636B7074
"""Separates seeds that follow from a checkpoint from those of a start."""
_SEED_BITS: Final = 31
"""Many simulators store a seed in a signed 32-bit integer."""


def environment_seeds(run_seed: int, actor_index: int, num_envs: int, *, life: int = 0) -> list[int]:
    """Returns the seed of each environment, in [0, 2**31), the same in each process that asks.

    Args:
        run_seed: The seed of the run.
        actor_index: Which actor of the run asks.
        num_envs: How many environments it has; does not change the seed of any.
        life: How often the batch was remade, so that a fault does not repeat for ever by itself.
    """
    return [_seed(run_seed, actor_index, _STREAM_KEY, env, life) for env in range(num_envs)]


def checkpoint_seeds(run_seed: int, actor_index: int, num_envs: int, checkpoint: int, *, life: int = 0) -> list[int]:
    """Returns the seeds with which environments begin again after a checkpoint of lock-step, in [0, 2**31).

    Args:
        run_seed: The seed of the run.
        actor_index: Which actor of the run asks.
        num_envs: How many environments it has; does not change the seed of any.
        checkpoint: The round after which the checkpoint was saved; 0 before the first.
        life: How often the batch was remade.
    """
    return [_seed(run_seed, actor_index, _CHECKPOINT_KEY, env, checkpoint, life) for env in range(num_envs)]


def _seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0] & np.uint32(2**_SEED_BITS - 1))
