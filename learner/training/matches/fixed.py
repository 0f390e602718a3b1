"""Keeps the opponents of a behavior that never learn: frozen models of the run file, and scripts of actors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from learner.shared.policies import PolicyKey
from learner.shared.saved_values import number, shown, text
from learner.training.matches.elo import EloArray
from learner.training.matches.rating import Results

MAX_SCRIPTS: Final = 64
"""Most scripts of a behavior that are rated on their own: actors choose the names."""
OTHERS: Final = "scripts:others"
"""Name of all further scripts together."""
_MAX_SAVED: Final = 10_000


@dataclass(slots=True)
class FixedOpponent:
    """An opponent that never learns.

    Attributes:
        row: Its row in `learner.training.matches.rating.Strengths`, which no behavior has as name.
        name: Its name in statistics and metrics.
        elo: Its rating as in ML-Agents, the only entry.
        key: Its policy; None for a script.
        results: Results of the learning team against it.
    """

    row: str
    name: str
    elo: EloArray
    key: PolicyKey | None = None
    results: Results = field(default_factory=Results)


class FixedOpponents:
    """The opponents of one behavior that never learn.

    Args:
        initial: First rating of each.

    Attributes:
        frozen: The models that the run file names.
    """

    def __init__(self, initial: float) -> None:
        self.frozen: tuple[FixedOpponent, ...] = ()
        self._initial = initial
        self._known: dict[str, FixedOpponent] = {}  # by row
        self._scripts: dict[str, FixedOpponent] = {}  # by name

    def __iter__(self) -> Iterator[FixedOpponent]:
        """Yields all that can play: frozen models, then scripts."""
        yield from self.frozen
        yield from self._scripts.values()

    def __getitem__(self, row: str) -> FixedOpponent:
        return self._known[row]

    def add_frozen(self, behavior: str, name: str, digest: bytes, key: PolicyKey) -> FixedOpponent:
        """Adds a model, which continues with its ratings if its file has played in the run before.

        Args:
            behavior: The behavior.
            name: Name in the run file.
            digest: SHA-256 of the file.
            key: The policy that actors run.
        """
        added = self._find(f"{behavior}?frozen={digest.hex()}")
        added.name, added.key = name, key
        self.frozen = (*self.frozen, added)
        return added

    def script(self, behavior: str, name: str) -> FixedOpponent:
        """Returns the script of an actor; all beyond `MAX_SCRIPTS` are one opponent.

        Args:
            behavior: The behavior.
            name: The actor's name for it.
        """
        if name not in self._scripts and len(self._scripts) >= MAX_SCRIPTS:
            name = OTHERS
        if name not in self._scripts:
            found = self._scripts[name] = self._find(f"{behavior}?script={name}")
            found.name = name
        return self._scripts[name]

    def _find(self, row: str) -> FixedOpponent:
        if row not in self._known:
            self._known[row] = FixedOpponent(row, "", EloArray(0, self._initial))
        return self._known[row]

    def state_dict(self) -> dict[str, Any]:
        """Returns ratings and results, also of models that the run file names no more."""
        return {
            "opponents": [
                [row, each.elo.current, each.results.wins, each.results.draws, each.results.losses]
                for row, each in self._known.items()
            ],
            "scripts": list(self._scripts),
        }

    def load_state_dict(self, behavior: str, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        rows, scripts = state["opponents"], state["scripts"]
        if not isinstance(rows, list) or not isinstance(scripts, list) or len(rows) > _MAX_SAVED:
            raise ValueError("the opponents are no lists")
        for each in rows:
            if not isinstance(each, list | tuple) or len(each) != 5:
                raise ValueError(f"{shown(each)} is no opponent")
            values = dict(enumerate(each))
            found = self._find(text(values, 0))
            found.elo.values = [number(values, 1)]
            found.results = Results(*(number(values, place, least=0.0) for place in (2, 3, 4)))
        for name in scripts[: MAX_SCRIPTS + 1]:
            if type(name) is not str:
                raise ValueError(f"{shown(name)} is no name of a script")
            self.script(behavior, name)
