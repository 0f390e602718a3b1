"""Seeds of players."""

from typing import Final

import numpy as np

_STREAM_KEY: Final = 0x756E6974
"""Separates players' seeds from action noise, which derives from the same run seed."""
_SEED_BITS: Final = 31
"""Bits of a seed: the wire has a signed integer of 32 bits."""


def player_seed(run_seed: int, actor_index: int, worker: int) -> int:
    """Returns the seed of a player, in [0, 2**31).

    Players of the first actor get the run's seed plus their number, as from ML-Agents' trainer. Players of other actors
    get different seeds, so that no two players of a run play alike.

    Args:
        run_seed: The seed of the run.
        actor_index: The actor's index in the run.
        worker: The player's number in the actor.
    """
    mask: int = 2**_SEED_BITS - 1
    if actor_index == 0:
        return (run_seed + worker) & mask
    return int(np.random.SeedSequence((run_seed, actor_index, _STREAM_KEY, worker)).generate_state(1)[0]) & mask
