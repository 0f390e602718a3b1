"""Decides which team learns, and when snapshots are saved and opponents replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from learner.shared.saved_values import MAX_CLAIMED, count, shown

_MAX_TEAM = 2**31


class TeamQueue:
    """The teams of all behaviors with self-play, of which one learns at a time.

    Attributes:
        on_turn: The learning team; None before the first team.
    """

    def __init__(self) -> None:
        self.on_turn: int | None = None
        self._waiting: list[int] = []

    @property
    def teams(self) -> tuple[int, ...]:
        """All teams, in the order in which they learn."""
        return () if self.on_turn is None else (self.on_turn, *self._waiting)

    def add(self, teams: Iterable[int]) -> None:
        """Appends new teams in ascending order; the first one of all learns first."""
        for team in sorted(set(teams) - set(self.teams)):
            if self.on_turn is None:
                self.on_turn = team
            else:
                self._waiting.append(team)

    def change(self, can_learn: Callable[[int], bool]) -> bool:
        """Gives the turn to the next team that can learn; returns whether it is another one than before."""
        before = self.on_turn
        for _ in range(len(self._waiting)):
            if self.on_turn is not None:
                self._waiting.append(self.on_turn)
            self.on_turn = self._waiting.pop(0)
            if can_learn(self.on_turn):
                break
        else:
            self._restore(before)
        return self.on_turn != before

    def _restore(self, team: int | None) -> None:
        while self.on_turn != team and self.on_turn is not None:
            self._waiting.append(self.on_turn)
            self.on_turn = self._waiting.pop(0)

    def state_dict(self) -> dict[str, Any]:
        """Returns the teams in the order in which they learn."""
        return {"teams": list(self.teams)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        teams = state["teams"]
        if any(type(team) is not int or not -_MAX_TEAM <= team < _MAX_TEAM for team in teams):
            raise ValueError(f"the teams are {shown(teams)}, but must be whole numbers")
        if len(set(teams)) != len(teams):
            raise ValueError("a team appears twice")
        self.on_turn, self._waiting = (teams[0], list(teams[1:])) if teams else (None, [])


class Interval:
    """Tells when a counter has grown by a number of steps since it was last due.

    Args:
        steps: The number of steps.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._last = 0

    def is_due(self, now: int) -> bool:
        """Returns whether the counter has grown by the number of steps; it may continue from an earlier checkpoint."""
        self._last = min(self._last, now)
        return now - self._last >= self._steps

    def restart(self, now: int) -> None:
        """Begins a new interval at a count."""
        self._last = now

    def state_dict(self) -> dict[str, Any]:
        """Returns the count at which the interval began."""
        return {"last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, ValueError: The state is not one that was saved here.
        """
        self._last = count(state, "last", most=MAX_CLAIMED)
