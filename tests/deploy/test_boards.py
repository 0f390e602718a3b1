"""Tests that Grafana's boards are complete and read only existing metrics."""

import itertools
import re
from typing import Any

import pytest
import yaml

from tests.deploy.promql import DEPLOY, Query, boards, metric_names, panels, queries, rules
from tests.deploy.reference import documented

BOARDS = boards()
KNOWN = documented() | {record.name for record in rules("record")} | {"ALERTS"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def test_there_is_a_board_for_each_question() -> None:
    """There is a board for each of the two questions."""
    assert {name: (board["uid"], board["title"]) for name, board in BOARDS.items()} == {
        "training.json": ("rollcast-training", "Is training healthy?"),
        "bottleneck.json": ("rollcast-bottleneck", "Where is the bottleneck?"),
    }


@every_board
def test_a_board_is_read_only_and_leads_to_the_other(board: dict[str, Any]) -> None:
    """A board is read-only, and its link to other boards keeps the variables."""
    assert board["editable"] is False
    assert board["id"] is None
    assert board["schemaVersion"] >= 39
    assert board["tags"] == ["rollcast"]
    (link,) = board["links"]
    assert (link["type"], link["tags"], link["includeVars"]) == ("dashboards", ["rollcast"], True)


@every_board
def test_a_board_is_chosen_by_source_job_learner_and_behavior(board: dict[str, Any]) -> None:
    """No query names an installation."""
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "actor_job", "instance", "behavior"]
    assert variables.pop("datasource")["type"] == "datasource"
    for name, variable in variables.items():
        assert variable["datasource"] == SOURCE
        asked = re.fullmatch(r"label_values\((\w+)(\{.*\})?, (\w+)\)", variable["definition"])
        assert asked
        assert asked[1] in KNOWN
        assert asked[3] == name.removeprefix("actor_")
        assert variable["definition"] == variable["query"]["query"]
        several = name in ("instance", "behavior")
        assert (variable["multi"], variable["includeAll"]) == (several, several)


@every_board
def test_every_panel_says_what_it_shows(board: dict[str, Any]) -> None:
    """Each panel has a title, a description, the board's data source, a unit and a query."""
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles)
    for panel in panels(board):
        assert panel["title"]
        if panel["type"] == "text":
            assert panel["options"]["content"]
            continue
        assert len(panel["description"]) > 10
        assert panel["datasource"] == SOURCE
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[: len(panel["targets"])])
        assert panel["targets"]
        assert panel["type"] in ("heatmap", "state-timeline") or panel["fieldConfig"]["defaults"]["unit"]


@every_board
def test_no_panel_lies_on_another(board: dict[str, Any]) -> None:
    """Panel ids are unique, and panels do not overlap within the 24 columns."""
    identifiers = [panel["id"] for panel in board["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        assert 0 <= columns.start < columns.stop <= 24
        cells = set(itertools.product(columns, lines))
        assert not cells & taken, panel["title"]
        taken |= cells
    assert all(line in {y for _, y in taken} for line in range(max(y for _, y in taken))), "a line without a panel"


@pytest.mark.parametrize("query", queries(), ids=lambda query: f"{query.board}-{query.panel}")
def test_a_query_reads_only_what_is_there(query: Query) -> None:
    """All names in queries are documented metrics or recorded series, filtered by the board's variables."""
    names = metric_names(query.expr)
    assert names - KNOWN == set()
    assert set(re.findall(r"\$(\w+)", query.expr)) <= {"job", "actor_job", "instance", "behavior", "__rate_interval"}
    assert len(re.findall(r'job=~?"\$', query.expr)) == sum(
        len(re.findall(rf"\b{name}\b", query.expr)) for name in names
    )


def test_the_board_of_training_shows_evaluations_beside_training() -> None:
    """The policy's evaluations have a panel, with the best checkpoint."""
    found = [panel for panel in panels(BOARDS["training.json"]) if panel["title"] == "Evaluations"]
    names = {name for panel in found for target in panel["targets"] for name in metric_names(target["expr"])}
    kinds = ("evaluation_return_mean", "evaluation_return_std", "best_return")
    assert names == {f"rollcast_learner_{kind}" for kind in kinds}
    assert all("rollcast.evaluation" in panel["description"] for panel in found)


def test_evaluations_against_opponents_have_panels() -> None:
    """Ratings, results by opponent and by seat, the length of games, and forbidden choices."""
    titles = [panel["title"] for panel in BOARDS["training.json"]["panels"]]
    row = titles[titles.index("Evaluations against opponents") + 1 :]
    assert row == [
        "Rating of evaluations", "Score by opponent", "Score by seat", "Length of evaluated games", "Forbidden choices",
    ]  # fmt: skip
    found = [panel for panel in panels(BOARDS["training.json"]) if panel["title"] in row]
    names = {name for panel in found for target in panel["targets"] for name in metric_names(target["expr"])}
    seats = {f"evaluation_{end}_{seat}" for end in ("won", "drawn", "lost") for seat in ("first", "second")}
    numbers = {"evaluation_rating", "evaluation_rating_interval", "evaluation_score", "evaluation_length_mean"}
    assert names == {f"rollcast_learner_{name}" for name in {*seats, *numbers, "forbidden_choice_ratio"}}


def test_alerts_are_marked_on_every_board() -> None:
    """Every board marks when alerts fired."""
    for board in BOARDS.values():
        marks = [mark["expr"] for mark in board["annotations"]["list"] if mark.get("builtIn") != 1]
        assert any(mark.startswith('ALERTS{alertstate="firing"') for mark in marks)


def test_the_reading_rule_is_on_the_board_of_the_bottleneck() -> None:
    """The text of the bottleneck board names all three verdicts."""
    (text,) = (panel for panel in panels(BOARDS["bottleneck.json"]) if panel["type"] == "text")
    assert all(f"**{word}**" in text["options"]["content"] for word in ("learner", "actors", "network"))


def test_grafana_takes_the_boards_from_their_folder_and_keeps_no_changes() -> None:
    """Provisioned boards cannot be changed in the browser."""
    provisioning = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "rollcast.yml").read_text())["providers"]
    assert provider["allowUiUpdates"] is False
    assert provider["disableDeletion"] is True
    compose = (DEPLOY.parent / "docker-compose.yml").read_text()
    assert provider["options"]["path"] in compose
