"""Tests the table, the plot and the document of a tournament."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from learner.start.tournament_report import Standing, Value, document, draw_intervals, plot, table
from learner.training.matches.players import Kind, Player
from learner.training.matches.rating import Results, rate

SVG = "{http://www.w3.org/2000/svg}"
PLAYERS = (
    Player("@100", "a", Kind.MODEL, step=100),
    Player("@200 <&>", "b", Kind.MODEL, step=200),
    Player("\x1b[2Jrandom", "random", Kind.RANDOM),
)
RESULTS = {(0, 1): Results(2, 3, 5), (1, 0): Results(7, 2, 1), (1, 2): Results(9, 0, 1)}


def standing() -> Standing:
    """Returns a tournament in which the second player is the best."""
    return Standing(PLAYERS, RESULTS, rate(3, RESULTS))


def test_the_table_has_results_by_seat() -> None:
    """The strongest player comes first; its results are those of its seats, and no name can steer a terminal."""
    heading, first, second, third, legend, last = table(standing()).splitlines()
    assert heading.split()[:4] == ["place", "player", "rating", "95"]
    assert first.split()[-6:] == ["16", "2", "2", "5", "3", "2"]
    assert second.split()[-6:] == ["2", "3", "5", "1", "2", "7"]
    assert "@200 <&>" in first
    assert "\\x1b[2Jrandom" in third
    assert legend.endswith("whoever moves first")
    assert last.startswith("30 games; the first seat is worth ")


def test_a_tournament_without_games_has_no_table() -> None:
    """Ratings of players that have not played would be a table of nothing."""
    assert table(Standing(PLAYERS, {}, rate(3, {}))) == "no game was played"


def test_the_plot_has_a_row_for_each_player() -> None:
    """Each row has a point within its interval; stronger players are higher and further right."""
    root = ET.fromstring(plot(standing(), "Board"))  # noqa: S314 - we wrote it
    points = [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in root.iter(f"{SVG}circle")]
    assert len(points) == 3
    assert points == sorted(points, key=lambda point: point[1])
    assert points[0][0] == max(x for x, _ in points)
    labels = [each.text for each in root.iter(f"{SVG}text")]
    assert "@200 <&>" in labels
    assert "Board: 30 games" in labels


def test_equal_values_can_be_drawn() -> None:
    """A chart of one value without an interval has an axis."""
    ET.fromstring(draw_intervals([Value("a", 5.0, 5.0, 5.0)], "title", "points"))  # noqa: S314 - we wrote it


def test_the_document_is_json() -> None:
    """It has the ratings in their order, the results of all pairs, and what is added."""
    found = json.loads(json.dumps(document(standing(), {"behavior": "Board"}), allow_nan=False))
    assert found["behavior"] == "Board"
    assert found["players"][0]["identity"] == "b"
    assert found["pairs"][0] == {"first": "@100", "second": "@200 <&>", "wins": 2, "draws": 3, "losses": 5}
    assert found["games"] == 30
