"""What gates came to is kept, and the README says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.processes import REPOSITORY
from tests.gates import cli
from tests.gates.catalog import GATES
from tests.gates.gate import Arm, Gate, Trained
from tests.gates.results import BEGIN, END, document, keep, put_between_marks, read, shown, table, write
from tests.gates.rules import reaches

ARM = Arm("ppo", REPOSITORY / "deploy" / "runs" / "cartpole.yaml", "CartPole-v1", 95_000, 475.0)
GATE = Gate("walking", "Walking, `ppo`", "475 train in 95,000", (ARM,), reaches("ppo", 475.0, 95_000, far_off=400.0))
RUN = Trained(1, "target_return", 78_000, 4.25, 400, 475.5, 475.5, 77_000, 4.0)


def test_a_gate_leaves_a_file_for_machines(tmp_path: Path) -> None:
    """Seeds, steps, seconds and returns of every run, and the verdict, are in a JSON file of the gate."""
    results = {"ppo": [RUN]}
    content = json.loads(write(tmp_path, document(GATE, results, GATE.rule(results))).read_text())
    assert (content["gate"], content["passed"], content["seconds"]) == ("walking", True, 4.25)
    assert content["arms"]["ppo"][0]["steps_to_target"] == 77_000


def test_results_are_kept_in_short_and_make_the_table(tmp_path: Path) -> None:
    """A newer result of a gate takes the place of the older one; gates without a result stay as they were."""
    measured = tmp_path / "measured.json"
    results = {"ppo": [RUN]}
    write(tmp_path, document(GATE, results, GATE.rule(results)))
    assert keep(tmp_path, [GATE], measured) == ["walking"]
    assert keep(tmp_path / "none", [GATE], measured) == []
    assert table(read(measured)).splitlines()[2] == (
        "| Walking, `ppo` | 475 train in 95,000 | 1 | ppo: 475.5 | 77,000 | 4 |"
    )


def test_a_table_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    """What stands around the marks stays; a document without marks is an error."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_between_marks(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no"):
        put_between_marks(page, "new")


def test_the_readme_has_the_table_of_what_was_measured() -> None:
    """The table in the README is that of the results that were kept, to the letter."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == table(read()).strip()


def test_a_failed_gate_says_by_how_much() -> None:
    """What is printed names each run, and what is missing."""
    results = {"ppo": [Trained(1, "max_steps", 95_100, 5.0, 300, 300.0, 310.0)]}
    text = shown(GATE.name, GATE, results, GATE.rule(results))
    assert "ppo seed 1: max_steps after 95,100 steps, 5 s, train 300, best 310" in text
    assert "FAILED" in text
    assert "310, 165 short" in text


def test_gates_are_chosen_by_name_or_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    """A name chooses one gate, a beginning all that begin so, nothing all; an unknown one is an error."""
    assert [gate.name for gate in cli._chosen(["catch"])] == ["catch"]
    assert {gate.name for gate in cli._chosen(["cartpole"])} == {"cartpole-ppo", "cartpole-appo", "cartpole-impala"}
    assert cli._chosen([]) == list(GATES)
    assert cli.main(["chess"]) == 2
    assert "there is no gate 'chess'" in capsys.readouterr().err


def test_seeds_are_a_number_or_a_list() -> None:
    """`--seeds 2` is two seeds, `--seeds 4,7` are these."""
    assert cli._with_seeds(GATE, "2").seeds == (1, 2)
    assert cli._with_seeds(GATE, "4,7").seeds == (4, 7)
    assert cli._with_seeds(GATE, None).seeds == GATE.seeds
    for wrong in ("0", "many"):
        with pytest.raises(ValueError, match="--seeds"):
            cli._with_seeds(GATE, wrong)
