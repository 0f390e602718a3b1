"""Curves of gates are drawn from their JSON files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.bench.processes import REPOSITORY
from tests.gates.catalog import GATES
from tests.gates.curves import CURVES, draw, keep
from tests.gates.gate import Arm, Gate, Trained, Verdict
from tests.gates.results import document, write

ARM = Arm("a<b", REPOSITORY / "deploy" / "runs" / "cartpole.yaml", "CartPole-v1", 300_000)
GATE = Gate("lag", "CartPole & lag", "much", (ARM,), lambda results: Verdict(passed=True, text=""), seeds=(1, 2))
RUNS = [
    Trained(seed, "max_steps", 300_000, 1.0, 9, 480.0, curve=((2000, 20.0), (300_000, 480.0 / seed))) for seed in (1, 2)
]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.filterwarnings("error")
def test_each_seed_is_a_line_within_the_frame(tmp_path: Path) -> None:
    """All points lie inside the picture, higher returns higher; names of arms are text, whatever is in them."""
    write(tmp_path, document(GATE, {"a<b": RUNS}, GATE.rule({})))
    (path,) = keep(tmp_path, [GATE], tmp_path / "curves")
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - we wrote it
    lines = [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in root.iter(f"{SVG}polyline")
    ]
    assert len(lines) == 2
    assert all(0 <= x <= 720 and 0 <= y <= 320 for line in lines for x, y in line)
    assert lines[0][1][1] < lines[1][1][1] < lines[0][0][1]
    assert "a<b" in {text.text for text in root.iter(f"{SVG}text")}


def test_a_gate_without_curves_draws_nothing(tmp_path: Path) -> None:
    """Most gates have none."""
    runs = [Trained(1, "max_steps", 1, 1.0, 9, 480.0)]
    write(tmp_path, document(GATE, {"a<b": runs}, GATE.rule({})))
    assert keep(tmp_path, [GATE], tmp_path / "curves") == []
    assert keep(tmp_path / "none", [GATE], tmp_path / "curves") == []


def test_axes_end_at_plain_numbers() -> None:
    """Ticks are numbers that people read."""
    content = document(GATE, {"a<b": RUNS}, GATE.rule({}))
    texts = [text.text for text in ET.fromstring(draw(content)).iter(f"{SVG}text")]  # noqa: S314 - we wrote it
    assert {"0", "60,000", "300,000", "100", "500"} <= set(texts)


def test_kept_curves_are_of_gates_that_there_are() -> None:
    """No picture outlives its gate."""
    assert {path.stem for path in CURVES.glob("*.svg")} <= {gate.name for gate in GATES}
