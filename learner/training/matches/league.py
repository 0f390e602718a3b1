"""Everything that self-play keeps of one behavior: its opponents and their draws, ratings as in ML-Agents, and counters."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from learner.shared.policies import PolicyKey
from learner.shared.saved_values import MAX_CLAIMED, count, number, numbers, shown, text
from learner.shared.settings.trainer import SelfPlaySettings
from learner.training.matches.elo import Elo
from learner.training.matches.rating import RatedPlayer, Results

MAX_SCRIPTS: Final = 64
"""Most scripts of a behavior that are rated on their own: actors choose the names."""
OTHERS: Final = "scripts:others"
"""Name of all further scripts together."""
_MAX_SAVED: Final = 10_000
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


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


@dataclass(slots=True, eq=False)
class Opponent:
    """A policy or a script that plays against the learning team.

    Attributes:
        player: The player in `learner.training.matches.rating.Strengths`. The row of one that never learns has a name that
            no behavior has.
        elo: Its rating as in ML-Agents; that of a snapshot is the rating of its slot, which a later snapshot takes over.
        key: Its policy; None for a script.
        step: Trained steps of its behavior when a snapshot was saved; None for an opponent that never learns.
        name: Name of an opponent that never learns, in statistics and metrics.
        results: Results of the learning team against it.
    """

    player: RatedPlayer
    elo: Elo
    key: PolicyKey | None = None
    step: int | None = None
    name: str = ""
    results: Results = field(default_factory=Results)


class League:
    """The opponents, ratings and counters of one behavior.

    Opponents are its newest ``window`` snapshots, frozen models of the run file, and scripts of actors.

    Args:
        behavior: Its name.
        settings: The behavior's settings.

    Attributes:
        settings: The behavior's settings.
        saved: Number of snapshots saved so far.
        snapshots: The newest snapshots by number, oldest first; each new one replaces the oldest.
        frozen: The models that the run file names.
        elo: Rating of the current policy as in ML-Agents.
        saves: Trained steps between two snapshots.
        turns: Trained steps between two changes of the learning team.
        swaps: Ghost steps between two draws of opponents.
        ghost_steps: Steps of its opponents in the run so far.
        results: Results of its learning seats, by team.
    """

    def __init__(self, behavior: str, settings: SelfPlaySettings) -> None:
        self._behavior = behavior
        self.settings = settings
        self.saved = 0
        self.snapshots: dict[int, Opponent] = {}
        self.frozen: tuple[Opponent, ...] = ()
        self.elo = Elo(settings.initial_elo)
        self._slots = [Elo(settings.initial_elo) for _ in range(settings.window)]
        self._known: dict[str, Opponent] = {}  # those that never learn, by row
        self._scripts: dict[str, Opponent] = {}  # by name
        self.saves = Interval(settings.save_steps)
        self.turns = Interval(settings.team_change)
        self.swaps = Interval(settings.swap_steps)
        self.ghost_steps = 0
        self.results: dict[int, Results] = {}

    @property
    def keys(self) -> frozenset[PolicyKey]:
        """Policies that can be drawn: snapshots and frozen opponents."""
        return frozenset(each.key for each in (*self.snapshots.values(), *self.frozen) if each.key is not None)

    @property
    def fixed(self) -> Iterator[Opponent]:
        """Yields the opponents that never learn: frozen models, then scripts."""
        yield from self.frozen
        yield from self._scripts.values()

    def is_save_due(self, steps: int) -> bool:
        """Returns whether the present policy must become a snapshot.

        Args:
            steps: Trained steps of the behavior.
        """
        return not self.saved or self.saves.is_due(steps)

    def save(self, key: PolicyKey, steps: int) -> None:
        """Makes the present policy a snapshot, with its rating.

        Args:
            key: Generation, version and digest of the policy.
            steps: Trained steps of the behavior.
        """
        self._add_snapshot(self.saved, key, steps).elo.value = self.elo.value
        self.snapshots.pop(self.saved - self.settings.window, None)
        self.saved += 1
        self.saves.restart(steps)

    def discard_lost(self, keys: Collection[PolicyKey]) -> list[PolicyKey]:
        """Removes the snapshots whose policies are not among these, and returns their policies."""
        lost = {number_: each.key for number_, each in self.snapshots.items() if each.key not in keys}
        for number_ in lost:
            del self.snapshots[number_]
        return [key for key in lost.values() if key is not None]

    def add_frozen(self, name: str, digest: bytes, key: PolicyKey) -> Opponent:
        """Adds a model, which continues with its ratings if its file has played in the run before.

        Args:
            name: Name in the run file.
            digest: SHA-256 of the file.
            key: The policy that actors run.
        """
        added = self._find(f"{self._behavior}?frozen={digest.hex()}")
        added.name, added.key = name, key
        self.frozen = (*self.frozen, added)
        return added

    def script(self, name: str) -> Opponent:
        """Returns the script of an actor, by the actor's name for it; all beyond `MAX_SCRIPTS` are one opponent."""
        if name not in self._scripts and len(self._scripts) >= MAX_SCRIPTS:
            name = OTHERS
        if name not in self._scripts:
            found = self._scripts[name] = self._find(f"{self._behavior}?script={name}")
            found.name = name
        return self._scripts[name]

    def draw(self, random: np.random.Generator) -> Opponent | None:
        """Returns a frozen opponent or a snapshot, or None for the newest policy.

        A frozen opponent plays with probability ``frozen_opponents_ratio``, if there is one. Otherwise the newest policy
        plays with probability ``play_against_latest_model_ratio``, as in ML-Agents, and else a snapshot. Each snapshot, and
        each frozen opponent, is equally likely, or with ``draw: pfsp`` more likely the more often it wins (`pfsp_weights`).

        Args:
            random: Source of random numbers.
        """
        if self.frozen and random.random() < self.settings.frozen_opponents_ratio:
            return self._choose(self.frozen, random)
        if random.random() >= 1.0 - self.settings.play_against_latest_model_ratio or not self.snapshots:
            return None
        return self._choose(tuple(self.snapshots.values()), random)

    def _choose(self, opponents: Sequence[Opponent], random: np.random.Generator) -> Opponent:
        if self.settings.draw == "uniform":
            return opponents[int(random.integers(len(opponents)))]
        weights = pfsp_weights([each.results for each in opponents])
        return opponents[int(random.choice(len(opponents), p=weights))]

    def numbers(self) -> dict[str, float]:
        """Returns the reported numbers that a resumed run knows at once."""
        found: dict[str, float] = {
            "elo": self.elo.value,
            "pool_snapshots": len(self.snapshots),
            "ghost_steps": self.ghost_steps,
        }
        for suffix, results in (
            *((f"/{team}", each) for team, each in self.results.items()),
            *((f"_against/{each.name}", each.results) for each in self.fixed),
        ):
            found[f"games_won{suffix}"] = results.wins
            found[f"games_drawn{suffix}"] = results.draws
            found[f"games_lost{suffix}"] = results.losses
        return found | {f"opponent_elo/{each.name}": each.elo.value for each in self.fixed}

    def _add_snapshot(self, number_: int, key: PolicyKey, steps: int) -> Opponent:
        slot = self._slots[number_ % self.settings.window]
        added = self.snapshots[number_] = Opponent((self._behavior, number_), slot, key, steps)
        return added

    def _find(self, row: str) -> Opponent:
        if row not in self._known:
            self._known[row] = Opponent((row, 0), Elo(self.settings.initial_elo))
        return self._known[row]

    def state_dict(self) -> dict[str, Any]:
        """Returns everything as plain values, also ratings and results of models that the run file names no more."""
        return {
            "pool": {
                "saved": self.saved,
                "snapshots": [
                    {
                        "generation": each.key.generation,
                        "version": each.key.version,
                        "sha256": each.key.sha256.hex(),
                        "step": each.step,
                        "number": number_,
                    }
                    for number_, each in self.snapshots.items()
                    if each.key is not None
                ],
            },
            "elo": {"values": [each.value for each in (*self._slots, self.elo)]},
            "saves": self.saves.state_dict(),
            "turns": self.turns.state_dict(),
            "swaps": self.swaps.state_dict(),
            "ghost_steps": self.ghost_steps,
            "results": _rows(self.results),
            "against": _rows({number_: each.results for number_, each in self.snapshots.items()}),
            "fixed": {
                "opponents": [
                    [row, each.elo.value, each.results.wins, each.results.draws, each.results.losses]
                    for row, each in self._known.items()
                ],
                "scripts": list(self._scripts),
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`; a smaller window keeps the newest snapshots.

        With another window, the slots restart from the current rating.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        values = numbers(state["elo"], "values")
        if not values:
            raise ValueError("there are no ratings")
        self.elo.value = values[-1]
        is_fitting = len(values) == len(self._slots) + 1
        for slot, value in zip(self._slots, values if is_fitting else [values[-1]] * len(self._slots), strict=False):
            slot.value = value
        self._load_snapshots(state["pool"], _read_rows(state["against"]))
        self.saves.load_state_dict(state["saves"])
        self.turns.load_state_dict(state["turns"])
        self.swaps.load_state_dict(state["swaps"])
        self.ghost_steps = count(state, "ghost_steps", most=MAX_CLAIMED)
        self.results = _read_rows(state["results"])
        self._load_fixed(state["fixed"])

    def _load_snapshots(self, state: Mapping[str, Any], against: Mapping[int, Results]) -> None:
        saved = count(state, "saved")
        found = [(count(each, "number"), _key(each), count(each, "step")) for each in state["snapshots"]]
        places = [number_ for number_, _, _ in found]
        if places != sorted(set(places)) or any(number_ >= saved for number_ in places):
            raise ValueError(f"the numbers of {len(found)} snapshots do not ascend below {saved}")
        self.saved, self.snapshots = saved, {}
        for number_, key, step in found:
            if number_ >= saved - self.settings.window:
                self._add_snapshot(number_, key, step).results = against.get(number_, Results())

    def _load_fixed(self, state: Mapping[str, Any]) -> None:
        rows, scripts = state["opponents"], state["scripts"]
        if not isinstance(rows, list) or not isinstance(scripts, list) or len(rows) > _MAX_SAVED:
            raise ValueError("the opponents are no lists")
        for each in rows:
            if not isinstance(each, list | tuple) or len(each) != 5:
                raise ValueError(f"{shown(each)} is no opponent")
            values = dict(enumerate(each))
            found = self._find(text(values, 0))
            found.elo.value = number(values, 1)
            found.results = Results(*(number(values, place, least=0.0) for place in (2, 3, 4)))
        for name in scripts[: MAX_SCRIPTS + 1]:
            if type(name) is not str:
                raise ValueError(f"{shown(name)} is no name of a script")
            self.script(name)


def pfsp_weights(results: list[Results]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the probabilities of prioritized fictitious self-play, ``[N]``.

    They are proportional to ``(1 - p)^2`` with the win rate p of the learning policy (O. Vinyals et al., Grandmaster level in
    StarCraft II using multi-agent reinforcement learning, 2019, methods, hard opponents). A draw is half a win, and one
    win and one loss are added to the games, so that every opponent keeps a positive probability.

    Args:
        results: Results of the learning policy against each opponent.
    """
    rates = np.asarray([(each.score + 1.0) / (each.games + 2.0) for each in results], np.float64)
    weights = (1.0 - rates) ** 2
    return np.asarray(weights / weights.sum())


def _key(state: Mapping[str, Any]) -> PolicyKey:
    digest = text(state, "sha256")
    if _DIGEST.fullmatch(digest) is None:
        raise ValueError("the SHA-256 of a snapshot is not one of 64 hexadecimal digits")
    return PolicyKey(count(state, "generation"), count(state, "version"), bytes.fromhex(digest))


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
