"""Tests that results of gates are kept and shown on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.tools.bench.processes import REPOSITORY
from tests.tools.gates import cli
from tests.tools.gates import results as files
from tests.tools.gates.catalog import GATES
from tests.tools.gates.gate import Arm, Gate, Trained
from tests.tools.gates.results import BEGIN, END, PAGE, document, keep, put_between_marks, read, shown, table, write
from tests.tools.gates.rules import reaches

ARM = Arm("ppo", REPOSITORY / "learner" / "run_files" / "cartpole.yaml", "CartPole-v1", 95_000, 475.0)
GATE = Gate("walking", "Walking, `ppo`", "475 train in 95,000", (ARM,), reaches("ppo", 475.0, 95_000, far_off=400.0))
RUN = Trained(1, "target_return", 78_000, 4.25, 400, 475.5, 475.5, 77_000, 4.0)


def test_a_gate_leaves_a_file_for_machines(tmp_path: Path) -> None:
    """A gate's JSON file has seeds, steps, seconds and returns of every run, and the verdict."""
    results = {"ppo": [RUN]}
    content = json.loads(write(tmp_path, document(GATE, results, GATE.rule(results))).read_text())
    assert (content["gate"], content["passed"], content["seconds"]) == ("walking", True, 4.25)
    assert content["arms"]["ppo"][0]["steps_to_target"] == 77_000


def test_results_are_kept_in_short_and_make_the_table(tmp_path: Path) -> None:
    """A new result of a gate replaces the old one; other gates' results stay."""
    measured = tmp_path / "measured.json"
    results = {"ppo": [RUN]}
    content = document(GATE, results, GATE.rule(results))
    assert re.fullmatch(r"[0-9a-f]{8}\+?", content["commit"])
    write(tmp_path, content)
    assert keep(tmp_path, [GATE], measured) == ["walking"]
    assert keep(tmp_path / "none", [GATE], measured) == []
    assert table(read(measured)).splitlines()[2] == (
        f"| Walking, `ppo` | 475 train in 95,000 | 1 | ppo: 475.5 | 77,000 | 4 | {content['commit']} |"
    )


def test_the_table_shows_returns_of_both_kinds() -> None:
    """Where greedy episodes were played, the return as acted stands behind theirs."""
    run = {"steps": 100_352, "seconds": 20.0, "train": -226.83, "greedy_mean": -164.07}
    row = {"title": "Pendulum", "asks": "-180", "seeds": [1], "passed": True, "arms": {"zoo": [run]}}
    assert "zoo: -164.1 greedy (-226.8)" in table([row])


def test_a_table_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    """The text around the marks is kept, and a document without marks is an error."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_between_marks(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no"):
        put_between_marks(page, "new")


def test_the_page_has_the_table_of_what_was_measured() -> None:
    """The page's table equals that of the kept results."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == table(read()).strip()


def test_a_failed_gate_says_by_how_much() -> None:
    """The output of a failed gate names each run and the missing ones."""
    results = {"ppo": [Trained(1, "max_steps", 95_100, 5.0, 300, 300.0, 310.0)]}
    text = shown(GATE.name, GATE, results, GATE.rule(results))
    assert "ppo seed 1: max_steps after 95,100 steps, 5 s, train 300, best 310" in text
    assert "FAILED" in text
    assert "310, 165 short" in text


def test_gates_are_chosen_by_name_or_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    """A gate is selected by its name or the beginning of it; an unknown one is an error."""
    assert [gate.name for gate in cli._chosen(["catch"])] == ["catch"]
    assert {gate.name for gate in cli._chosen(["cartpole-"])} >= {"cartpole-ppo", "cartpole-appo", "cartpole-impala"}
    assert all(gate.name.startswith("cartpole-") for gate in cli._chosen(["cartpole-"]))
    assert cli._chosen([]) == [gate for gate in GATES if gate.length != "study"]
    assert cli._chosen(["quick"]) == [gate for gate in GATES if gate.length == "quick"]
    assert [gate.name for gate in cli._chosen(["log-std-p"])] == ["log-std-pendulum"]
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


def test_a_training_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the same command at the same commit is read; another command or changed files train again."""
    file, run = tmp_path / "run.json", Trained(3, "max_steps", 10, 1.5, 2, 4.0, greedy=(1.0, 2.0), curve=((5, 1.0),))
    monkeypatch.setattr(files, "_commit", lambda: "12345678")
    assert files.kept_run(file, ["serve"]) is None
    files.keep_run(file, ["serve"], run)
    assert files.kept_run(file, ["serve"]) == run
    assert files.kept_run(file, ["serve", "--seed"]) is None
    monkeypatch.setattr(files, "_commit", lambda: "12345678+")
    assert files.kept_run(file, ["serve"]) is None
