"""Shows the ratings of a tournament: a table, a plot, and a JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rollcast.text import printable

from learner.shared.observe.text import aligned, number
from learner.start.line_chart import WIDTH, picture, svg_text, tick, ticks
from learner.training.matches.players import Player
from learner.training.matches.rating import Pair, Results, SeatResults, Standings, by_seat

_MAX_NAME: Final = 40
SEATS_LEGEND: Final = (
    "first and second are the seats of the teams with the smaller and the larger number, whoever moves first"
)
"""Legend of results by seat."""
_HEADINGS: Final = ("place", "player", "rating", "95 %", "games", "score", "first: W", "D", "L", "second: W", "D", "L")
_TOP, _ROW, _FOOT, _RIGHT = 40.0, 22.0, 56.0, 24.0
_LETTER, _MOST_LEFT = 6.8, 300.0
_CAP: Final = 4.0


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
    for rank, place in enumerate(ratings.order(), 1):
        each = found[place]
        seats = [f"{count:g}" for seat in (each.first, each.second) for count in (seat.wins, seat.draws, seat.losses)]
        rows.append(
            (
                str(rank),
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


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its interval.

    Attributes:
        label: Name of its row.
        value: The value.
        low, high: Ends of the interval.
    """

    label: str
    value: float
    low: float
    high: float


def draw_intervals(values: Sequence[Value], title: str, label: str) -> str:
    """Returns the SVG.

    Args:
        values: At least one, in the order of the rows.
        title: Text above the rows.
        label: Quantity and unit of the values.
    """
    left = min(_MOST_LEFT, 24.0 + _LETTER * max(len(each.label) for each in values))
    low, high = min(each.low for each in values), max(each.high for each in values)
    margin = 0.04 * (high - low) or 1.0
    low, high = low - margin, high + margin
    bottom = _TOP + _ROW * len(values)

    def x(value: float) -> float:
        return left + (WIDTH - left - _RIGHT) * (value - low) / (high - low)

    def parts() -> Iterator[str]:
        yield f'<text x="{left:g}" y="22" font-weight="600" font-size="13">{svg_text(title)}</text>'
        for mark in ticks(low, high):
            yield f'<line class="grid" x1="{x(mark):.1f}" y1="{_TOP:g}" x2="{x(mark):.1f}" y2="{bottom:g}"/>'
            yield f'<text x="{x(mark):.1f}" y="{bottom + 18:g}" text-anchor="middle">{tick(mark)}</text>'
        for place, each in enumerate(values):
            y = _TOP + _ROW * (place + 0.5)
            ends = " ".join(f"M{x(end):.1f} {y - _CAP:g}V{y + _CAP:g}" for end in (each.low, each.high))
            line = f"M{x(each.low):.1f} {y:g}H{x(each.high):.1f} {ends}"
            yield f'<text x="{left - 10:g}" y="{y + 4:g}" text-anchor="end">{svg_text(each.label)}</text>'
            yield f'<path class="c0" fill="none" stroke="currentColor" stroke-width="1.5" d="{line}"/>'
            yield f'<circle class="c0" cx="{x(each.value):.1f}" cy="{y:g}" r="4" fill="currentColor"/>'
        middle = (left + WIDTH - _RIGHT) / 2
        yield f'<text x="{middle:g}" y="{bottom + 40:g}" text-anchor="middle">{svg_text(label)}</text>'

    told = "; ".join(
        f"{each.label}: {number(each.value)}, {number(each.low)} to {number(each.high)}" for each in values
    )
    return picture(parts(), bottom + _FOOT, title, f"{label}. {told}.")
