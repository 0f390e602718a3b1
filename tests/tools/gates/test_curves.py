"""Tests the curves of gates and their page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from tests.tools.bench.processes import REPOSITORY
from tests.tools.gates.catalog import GATES
from tests.tools.gates.curves import CURVES, PAGE, keep, page
from tests.tools.gates.gate import Arm, Gate, Trained, Verdict
from tests.tools.gates.results import document, read, write

ARM = Arm("a<b", REPOSITORY / "learner" / "run_files" / "cartpole.yaml", "CartPole-v1", 300_000)
OTHER = Arm("other", ARM.run_file, "CartPole-v1", 300_000, 475.0, env_kwargs={"sutton_barto_reward": True}, actors=1)
GATE = Gate("lag", "CartPole & lag", "much", (ARM, OTHER), lambda results: Verdict(passed=True, text=""), seeds=(1, 2))
RUNS = [
    Trained(seed, "max_steps", 300_000, 1.0, 9, 480.0, curve=((2000, 20.0), (300_000, 480.0 / seed))) for seed in (1, 2)
]
SVG = "{http://www.w3.org/2000/svg}"


def test_each_arm_is_a_line_of_its_seeds(tmp_path: Path) -> None:
    """An arm has a line with a band, and a faint line for each seed; an arm without curves has none."""
    without = [Trained(1, "max_steps", 1, 1.0, 9, 480.0)]
    write(tmp_path, document(GATE, {"a<b": RUNS, "other": without}, GATE.rule({})))
    (path,) = keep(tmp_path, [GATE], tmp_path / "curves")
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - we wrote it
    assert len(list(root.iter(f"{SVG}polyline"))) == 3
    assert len(list(root.iter(f"{SVG}polygon"))) == 1
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"CartPole & lag", "a<b", "environment steps", "mean training return"} <= texts
    assert "other" not in texts


def test_a_gate_without_curves_draws_nothing(tmp_path: Path) -> None:
    """A gate without curves draws nothing."""
    runs = [Trained(1, "max_steps", 1, 1.0, 9, 480.0)]
    write(tmp_path, document(GATE, {"a<b": runs}, GATE.rule({})))
    assert keep(tmp_path, [GATE], tmp_path / "curves") == []
    assert keep(tmp_path / "none", [GATE], tmp_path / "curves") == []


def test_the_page_has_the_commands_of_each_gate(tmp_path: Path) -> None:
    """A gate has its picture, if there is one, and the commands of its first seed."""
    row = document(GATE, {"a<b": RUNS, "other": RUNS}, GATE.rule({}))
    serve = "rollcast-learner serve learner/run_files/cartpole.yaml --run-id"
    assert row["commands"] == {
        "a<b": [
            f"{serve} 'lag-a<b-1' --seed 1 --set rollcast.target_return=null --set behaviors.CartPole.max_steps=300000",
            "rollcast-actor gym --env CartPole-v1 --num-envs 8  # 2 times",
        ],
        "other": [
            f"{serve} lag-other-1 --seed 1 --target-return 475.0 --set behaviors.CartPole.max_steps=300000",
            """rollcast-actor gym --env CartPole-v1 --env-kwargs '{"sutton_barto_reward": true}' --num-envs 8""",
        ],
    }
    text = page([row], tmp_path)
    assert all(line in text for lines in row["commands"].values() for line in lines)
    assert "![" not in text
    (tmp_path / "lag.svg").touch()
    assert "](lag.svg)" in page([row], tmp_path)


def test_the_kept_page_and_curves_are_of_what_was_measured() -> None:
    """The committed page is that of the kept results, and every picture belongs to an existing gate."""
    assert PAGE.read_text(encoding="utf-8") == page(read())
    assert {path.stem for path in CURVES.glob("*.svg")} <= {gate.name for gate in GATES}
