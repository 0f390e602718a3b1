"""Seeds of environments."""

from typing import Final

import numpy as np

_STREAM_KEY: Final = 0x656E7673
"""Separates environment seeds from action noise, which derives from the same run seed."""
_CHECKPOINT_KEY: Final = 0x636B7074
"""Separates the seeds of a checkpoint from those of a start."""
_PLAYER_KEY: Final = 0x756E6974
"""Separates the seeds of players and clients."""
_MASK: Final = 0x7FFFFFFF
"""The 31 bits of a seed: many simulators store it in a signed 32-bit integer."""


def environment_seeds(run_seed: int, actor_index: int, num_envs: int, *, life: int = 0) -> list[int]:
    """Returns the seed of each environment, in [0, 2**31); the result is the same in every process.

    Args:
        run_seed: The seed of the run.
        actor_index: The actor's index in the run.
        num_envs: Number of its environments; does not affect the seed of any.
        life: Number of times that the batch was remade, so that a fault of one seed does not repeat for ever.
    """
    return [environment_seed(run_seed, actor_index, env, life=life) for env in range(num_envs)]


def environment_seed(run_seed: int, actor_index: int, env: int, *, life: int = 0) -> int:
    """Returns the seed of one environment; see `environment_seeds`.

    Args:
        run_seed: The seed of the run.
        actor_index: The actor's index in the run.
        env: Number of the environment.
        life: Number of times that the environment was remade.
    """
    return _seed(run_seed, actor_index, _STREAM_KEY, env, life)


def checkpoint_seeds(run_seed: int, actor_index: int, num_envs: int, checkpoint: int, *, life: int = 0) -> list[int]:
    """Returns the seeds with which environments begin after a checkpoint of lock-step, in [0, 2**31).

    Args:
        run_seed: The seed of the run.
        actor_index: The actor's index in the run.
        num_envs: Number of its environments; does not affect the seed of any.
        checkpoint: The round after which the checkpoint was saved; 0 before the first.
        life: Number of times that the batch was remade.
    """
    return [_seed(run_seed, actor_index, _CHECKPOINT_KEY, env, checkpoint, life) for env in range(num_envs)]


def player_seed(run_seed: int, actor_index: int, worker: int, *, life: int = 0) -> int:
    """Returns the seed of a player or a client, in [0, 2**31).

    Those of the first actor get the run's seed plus their number, as from ML-Agents' trainer. Those of other actors, and
    those that come after others, get different seeds, so that no two of a run play alike.

    Args:
        run_seed: The seed of the run.
        actor_index: The actor's index in the run.
        worker: The number of the player or client in the actor.
        life: Number of clients that had this number before.
    """
    if actor_index == 0 and not life:
        return int(run_seed + worker) & _MASK
    return _seed(run_seed, actor_index, _PLAYER_KEY, worker, *([life] if life else []))


def _seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0]) & _MASK
