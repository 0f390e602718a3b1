"""Everything that self-play keeps of one behavior: its pool, ratings and counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learner.shared.policies import PolicyKey
from learner.shared.saved_values import MAX_CLAIMED, count, number
from learner.shared.settings.trainer import SelfPlaySettings
from learner.training.matches.elo import EloArray
from learner.training.matches.fixed import FixedOpponents
from learner.training.matches.pool import Pool, Snapshot
from learner.training.matches.rating import Results
from learner.training.matches.turn import Interval


class League:
    """The pool, ratings and counters of one behavior.

    Args:
        behavior: Its name.
        settings: The behavior's settings.

    Attributes:
        settings: The behavior's settings.
        pool: Its snapshots.
        elo: Its ratings as in ML-Agents.
        saves: Trained steps between two snapshots.
        turns: Trained steps between two changes of the learning team.
        swaps: Ghost steps between two draws of opponents.
        ghost_steps: Steps of its opponents in the run so far.
        results: Results of its learning seats, by team.
        against: Results of the learning team against each snapshot, by its number.
        fixed: Its opponents that never learn.
    """

    def __init__(self, behavior: str, settings: SelfPlaySettings) -> None:
        self._behavior = behavior
        self.settings = settings
        self.pool = Pool(settings.window)
        self.elo = EloArray(settings.window, settings.initial_elo)
        self.saves = Interval(settings.save_steps)
        self.turns = Interval(settings.team_change)
        self.swaps = Interval(settings.swap_steps)
        self.ghost_steps = 0
        self.results: dict[int, Results] = {}
        self.against: dict[int, Results] = {}
        self.fixed = FixedOpponents(settings.initial_elo)

    @property
    def keys(self) -> frozenset[PolicyKey]:
        """Policies that can be drawn: snapshots and frozen opponents."""
        frozen = (each.key for each in self.fixed.frozen if each.key is not None)
        return frozenset((*(each.key for each in self.pool.snapshots), *frozen))

    def is_save_due(self, steps: int) -> bool:
        """Returns whether the present policy must become a snapshot.

        Args:
            steps: Trained steps of the behavior.
        """
        return not self.pool.saved or self.saves.is_due(steps)

    def save(self, key: PolicyKey, steps: int) -> Snapshot:
        """Makes the present policy a snapshot.

        Args:
            key: Generation, version and digest of the policy.
            steps: Trained steps of the behavior.
        """
        added = self.pool.save(key, steps)
        self.elo.save(self.pool.slot(added.number))
        self.saves.restart(steps)
        kept = {each.number for each in self.pool.snapshots}
        self.against = {number_: each for number_, each in self.against.items() if number_ in kept}
        return added

    def state_dict(self) -> dict[str, Any]:
        """Returns everything as plain values."""
        return {
            "pool": self.pool.state_dict(),
            "elo": self.elo.state_dict(),
            "saves": self.saves.state_dict(),
            "turns": self.turns.state_dict(),
            "swaps": self.swaps.state_dict(),
            "ghost_steps": self.ghost_steps,
            "results": _rows(self.results),
            "against": _rows(self.against),
            "fixed": self.fixed.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        self.pool.load_state_dict(state["pool"])
        self.elo.load_state_dict(state["elo"])
        self.saves.load_state_dict(state["saves"])
        self.turns.load_state_dict(state["turns"])
        self.swaps.load_state_dict(state["swaps"])
        self.ghost_steps = count(state, "ghost_steps", most=MAX_CLAIMED)
        self.results = _read_rows(state["results"])
        self.against = _read_rows(state["against"])
        self.fixed.load_state_dict(self._behavior, state["fixed"])


def _rows(results: Mapping[int, Results]) -> list[list[float]]:
    return [[key, each.wins, each.draws, each.losses] for key, each in results.items()]


def _read_rows(rows: object) -> dict[int, Results]:
    if not isinstance(rows, list) or any(not isinstance(row, list | tuple) or len(row) != 4 for row in rows):
        raise ValueError("results are not lists of 4 numbers")
    found = {}
    for row in (dict(enumerate(each)) for each in rows):
        if type(row[0]) is not int:
            raise ValueError("the first number of results is not whole")
        found[row[0]] = Results(*(number(row, place, least=0.0) for place in (1, 2, 3)))
    return found
