"""Shows the ratings of a tournament: a table, a plot, and a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rollcast.text import printable

from learner.shared.observe.text import aligned
from learner.start.interval_chart import Value, draw_intervals
from learner.training.matches.players import Player
from learner.training.matches.rating import Pair, Results, SeatResults, Standings, by_seat

_MAX_NAME: Final = 40
SEATS_LEGEND: Final = (
    "first and second are the seats of the teams with the smaller and the larger number, whoever moves first"
)
"""Legend of results by seat."""
_HEADINGS: Final = ("place", "player", "rating", "95 %", "games", "score", "first: W", "D", "L", "second: W", "D", "L")


@dataclass(frozen=True, slots=True)
class Standing:
    """Players, results and ratings of a tournament.

    Attributes:
        players: The players.
        results: Results by the places of the players in the first and the second seat.
        standings: Their ratings.
    """

    players: tuple[Player, ...]
    results: Mapping[Pair, Results]
    standings: Standings

    @property
    def games(self) -> int:
        """Number of all games."""
        return int(sum(each.games for each in self.results.values()))

    def by_seat(self) -> list[SeatResults]:
        """Returns the results of each player."""
        return by_seat([each.name for each in self.players], self.results)


def table(standing: Standing) -> str:
    """Returns the ratings as a table, the strongest player first; without games there are none."""
    if not standing.games:
        return "no game was played"
    found, ratings = standing.by_seat(), standing.standings
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for number, place in enumerate(ratings.order(), 1):
        each = found[place]
        seats = [f"{count:g}" for seat in (each.first, each.second) for count in (seat.wins, seat.draws, seat.losses)]
        rows.append(
            (
                str(number),
                printable(standing.players[place].name, _MAX_NAME),
                f"{ratings.ratings[place]:+.0f}",
                f"± {ratings.errors[place]:.0f}",
                f"{each.games:g}",
                f"{each.score:.1%}" if each.games else "-",
                *seats,
            )
        )
    seat = f"{ratings.advantage:+.0f} ± {ratings.advantage_error:.0f}"
    return "\n".join(
        [*aligned(rows, {"player"}), SEATS_LEGEND, f"{standing.games} games; the first seat is worth {seat} points"]
    )


def plot(standing: Standing, behavior: str) -> str:
    """Returns the ratings with their intervals as SVG, the strongest player first."""
    ratings = standing.standings
    values = [
        Value(
            printable(standing.players[place].name, _MAX_NAME),
            float(ratings.ratings[place]),
            float(ratings.ratings[place] - ratings.errors[place]),
            float(ratings.ratings[place] + ratings.errors[place]),
        )
        for place in ratings.order()
    ]
    title = f"{printable(behavior, _MAX_NAME)}: {standing.games:,} games"
    return draw_intervals(values, title, "rating in points above the mean of all players, with 95 % intervals")


def document(standing: Standing, told: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ratings and the results of all pairs as a JSON object.

    Args:
        standing: The players, results and ratings.
        told: Further entries, which come first.
    """
    found, ratings, players = standing.by_seat(), standing.standings, standing.players
    return {
        **told,
        "games": standing.games,
        "first_seat": {"rating": ratings.advantage, "error": ratings.advantage_error},
        "players": [
            {
                "name": players[place].name,
                "identity": players[place].identity,
                "kind": players[place].kind.value,
                "path": None if players[place].path is None else str(players[place].path),
                "step": players[place].step,
                "rating": float(ratings.ratings[place]),
                "error": float(ratings.errors[place]),
                "games": int(found[place].games),
                "score": found[place].score,
                "first": asdict(found[place].first),
                "second": asdict(found[place].second),
            }
            for place in ratings.order()
        ],
        "pairs": [
            {"first": players[first].name, "second": players[second].name, **asdict(each)}
            for (first, second), each in sorted(standing.results.items())
        ],
    }
