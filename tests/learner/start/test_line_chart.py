"""Tests pictures of curves."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np
import pytest

from learner.start import line_chart
from learner.start.line_chart import MAX_POINTS, Panel, Series, draw, series_of

SVG = "{http://www.w3.org/2000/svg}"
Curves = Sequence[tuple[Sequence[float], Sequence[float]]]
SEEDS: Curves = [([0, 100, 200], [0.0, 10.0, 20.0]), ([0, 100, 200, 300], [2.0, 14.0, 24.0, 30.0])]


def panel(*series: Series) -> Panel:
    """Returns a panel."""
    return Panel("Walker & <co>", "environment steps", "mean return", series)


def parsed(*series: Series) -> ET.Element:
    """Returns the picture of one panel."""
    return ET.fromstring(draw([panel(*series)], "returns"))  # noqa: S314 - we wrote it


def points(element: ET.Element) -> list[tuple[float, float]]:
    """Returns the pixels of a line."""
    return [(float(x), float(y)) for x, y in (point.split(",") for point in element.attrib["points"].split())]


def texts(root: ET.Element) -> list[str]:
    """Returns all text."""
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def test_a_group_is_a_line_within_a_band() -> None:
    """The line is the mean of the middle half where all seeds have values; each seed is a faint line of its own length."""
    one = series_of("a", SEEDS)
    assert one.line[0].tolist() == [0.0, 100.0, 200.0]
    assert one.line[1].tolist() == [1.0, 12.0, 22.0]
    assert (one.low.tolist(), one.high.tolist()) == ([0.0, 10.0, 20.0], [2.0, 14.0, 24.0])
    assert [len(x) for x, _ in one.runs] == [3, 4]
    root = parsed(one)
    (band,) = root.iter(f"{SVG}polygon")
    assert len(points(band)) == 6
    faint, longer, line = root.iter(f"{SVG}polyline")
    assert float(faint.attrib["stroke-opacity"]) < 1
    assert len(points(longer)) == 4
    assert "stroke-opacity" not in line.attrib
    for (_, below), (_, above), (_, middle) in zip(
        points(band)[:3], reversed(points(band)[3:]), points(line), strict=True
    ):
        assert above < middle < below, "larger values are higher"


def test_values_between_points_are_interpolated() -> None:
    """Seeds with points at different steps are compared at the steps of all of them."""
    one = series_of("a", [([0, 200], [0.0, 20.0]), ([100, 150, 300], [30.0, 40.0, 0.0])])
    assert one.line[0].tolist() == [100.0, 150.0, 200.0]
    assert one.line[1].tolist() == pytest.approx([(10 + 30) / 2, (15 + 40) / 2, (20 + 40 * 2 / 3) / 2])


def test_runs_without_a_common_step_have_no_line() -> None:
    """Runs of which one ends before the other begins are drawn alone, one run is one line, and one point is a dot."""
    root = parsed(series_of("a", SEEDS[:1]), series_of("b", [([50], [3.0])]))
    assert [len(list(root.iter(f"{SVG}{shape}"))) for shape in ("polygon", "polyline", "circle")] == [0, 1, 1]
    one = series_of("a", [([0, 10], [1.0, 2.0]), ([20, 30], [3.0, 4.0])])
    assert len(one.line[0]) == 0
    assert len(list(parsed(one).iter(f"{SVG}polyline"))) == 2


def test_long_curves_are_thinned() -> None:
    """A picture of thousands of points stays small and keeps both ends."""
    steps = list(range(5000))
    one = series_of("a", [(steps, [float(step) for step in steps])] * 3)
    for x, y in (one.line, *one.runs):
        assert (len(x), x[0], x[-1], y[-1]) == (MAX_POINTS, 0.0, 4999.0, 4999.0)


def test_everything_is_inside_the_picture() -> None:
    """All points and texts are within the picture, for one group and for thirty."""
    many = [series_of(f"a group with a long name {number}", SEEDS) for number in range(30)]
    for series in ([series_of("a", SEEDS)], many):
        root = ET.fromstring(draw([panel(*series), panel(*series)], "two"))  # noqa: S314 - we wrote it
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        shapes = [*root.iter(f"{SVG}polyline"), *root.iter(f"{SVG}polygon")]
        assert all(0 <= x <= width and 0 <= y <= height for shape in shapes for x, y in points(shape))
        placed = [text for text in root.iter(f"{SVG}text") if "x" in text.attrib]
        assert all(0 <= float(text.attrib["x"]) <= width for text in placed)
        assert all(0 <= float(text.attrib["y"]) <= height for text in placed)


def test_screen_readers_get_title_and_description() -> None:
    """The picture is an image with a title, and a description with the last values and their intervals."""
    root = parsed(series_of("a", SEEDS), series_of("b", SEEDS[1:]))
    assert root.attrib["role"] == "img"
    title, description = (root.find(f"{SVG}{name}") for name in ("title", "desc"))
    assert title is not None
    assert description is not None
    assert title.text == "returns"
    assert "2 seeds: 22.00, 95 % interval 20.00 to 24.00, at 200.0 environment steps; b: 30.00" in str(description.text)


def test_names_are_escaped() -> None:
    """Control characters and marks of XML are escaped; no text is markup."""
    root = parsed(series_of("<script>\x1b\ud800 & co", SEEDS))
    assert "<script>\\x1b\\ud800 & co" in texts(root)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "desc", "style", "rect", "text", "line", "polygon", "polyline",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 500.0, [0, 100, 200, 300, 400, 500]),
        (-200.5, 12.0, [-200, -150, -100, -50, 0]),
        (0.01, 0.052, [0.01, 0.02, 0.03, 0.04, 0.05]),
        (0.0, 1e6, [0, 2e5, 4e5, 6e5, 8e5, 1e6]),
        (-1400.0, -150.0, [-1400, -1200, -1000, -800, -600, -400, -200]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    """Axes have about five multiples of 1, 2 or 5."""
    assert line_chart.ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [5.0, 5.0], [1e15, -1e15], [1e15, 1e15], [1e-300, 2e-300], [-3.0, -3.0]]
)
def test_any_values_are_drawn(values: list[float]) -> None:
    """Constant, huge and tiny values have an axis."""
    for x in ([0.0, 0.0], [0.0, 1e15]):
        root = parsed(Series("a", (np.array(x), np.array(values)), np.empty(0), np.empty(0), ()))
        (line,) = root.iter(f"{SVG}polyline")
        assert all(0 <= x <= 720 and 0 <= y <= 400 for x, y in points(line))
