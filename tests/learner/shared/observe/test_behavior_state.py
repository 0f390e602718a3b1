"""Tests the table of a behavior's numbers, from which all displays are derived."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import replace

import pytest
from rich.console import Console

from learner.cli.status import status_document as printed_document
from learner.service.metrics.learner import LearnerMetrics
from learner.service.metrics.state import MetricsSnapshot
from learner.service.view.display import fields_for_machines, fields_for_people
from learner.service.view.panel import PanelPicture
from learner.shared.observe import behavior_state
from learner.shared.observe.behavior_state import FIELDS, BehaviorState, Field, Metric, TrainerStats, described
from learner.shared.observe.document import status_document, status_of, to_json
from learner.shared.observe.terminal import render_status
from learner.shared.observe.view import StatusView
from tests.exposition import samples
from tests.learner.shared.observe.views import behavior, run_view

NUMBERS = ("wire", "status", "machines", "people", "metrics")
PLACES = {**dict.fromkeys(NUMBERS, 21.5), "page": "heat of all", "panel": True, "text": True}
HEAT = Field("heat", "How hot it is.", label="heat of all", line="heat")


def seen(state: BehaviorState, metric: str) -> dict[str, object]:
    """Returns what each place that shows behaviors has of the number ``heat``."""
    view = run_view(state)
    document = to_json(status_document(StatusView(view, (), "")))
    row, told = json.loads(document)["behaviors"][0], status_of(json.loads(document))
    metrics = LearnerMetrics()
    metrics.watch(lambda: MetricsSnapshot(view))
    console = Console(file=io.StringIO(), width=120, color_system=None)
    with console.capture() as capture:
        console.print(PanelPicture().draw(view))
    return {
        "wire": json.loads(printed_document(told))["behaviors"][0]["numbers"]["heat"],
        "status": row["heat"],
        "page": row["labels"]["heat"],
        "machines": fields_for_machines(view, state)["heat"],
        "people": fields_for_people(view, state)["heat"],
        "metrics": samples(metrics.exposition())[metric, (("behavior", state.name),)],
        "panel": "heat of all 21.50" in capture.get(),
        "text": "heat of all 21.50" in render_status(told),
    }


def test_a_number_of_the_table_is_shown_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new number needs only a table entry and a value."""
    for module in (
        "learner.shared.observe.behavior_state",
        "learner.service.metrics.state",
        "learner.shared.observe.document",
    ):
        monkeypatch.setattr(f"{module}.FIELDS", (*FIELDS, HEAT))
    state = behavior()
    assert seen(replace(state, numbers={**state.numbers, "heat": 21.5}), "rollcast_learner_heat") == PLACES


def test_a_number_of_a_trainer_of_another_package_is_shown_everywhere() -> None:
    """A number of a package's trainer is shown through its own field."""
    state = behavior()
    theirs = replace(state, numbers={**state.numbers, "heat": 21.5}, own_fields=(HEAT,))
    assert seen(theirs, "rollcast_trainer_heat") == PLACES


def test_the_table_knows_what_stands_beside_its_numbers() -> None:
    """A field cannot have a reserved name."""
    view = run_view(behavior())
    of_line = {each.log or each.name for each in FIELDS if each.log is not None}
    assert fields_for_machines(view, view.behaviors[0]).keys() - of_line <= behavior_state.LINE_KEYS
    of_page = {each.status or each.name for each in FIELDS if each.status is not None}
    assert status_document(StatusView(view, (), ""))["behaviors"][0].keys() - of_page == behavior_state.PAGE_KEYS


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ((Field("loss", "Another one."),), "uses the name 'loss'"),
        ((Field("state", "A key of the log line."),), "uses the name 'state'"),
        ((Field("books", "A key of the page."),), "uses the name 'books'"),
        (
            (Field("mine", "A key by another name.", log="env_steps_per_second"),),
            "uses the name 'env_steps_per_second'",
        ),
        ((Field("twice", "One."), Field("twice", "And again.")), "uses the name 'twice'"),
        ((Field("drawn", "Curves are of the table.", curve="drawn"),), "curve"),
        ((Field("saved", "So is the run state.", kept=True),), "kept"),
        ((Field("named", "So are other names.", metric=Metric("sessions")),), "metric"),
    ],
)
def test_fields_of_packages_take_nothing_from_others(fields: tuple[Field, ...], named: str) -> None:
    """A package's field cannot replace another number or use table-only features."""
    with pytest.raises(ValueError, match=named):
        behavior_state.check_own_fields(fields)


def test_a_trainers_numbers_are_plain_and_described() -> None:
    """A trainer's numbers cross processes with their fields, and one without a field is an error."""
    stats = TrainerStats(version=3, numbers=described("Warm", {"loss": 0.5, "heat": 1.0}, (HEAT,)), fields=(HEAT,))
    assert pickle.loads(pickle.dumps(stats, protocol=5)) == stats  # noqa: S301 - our own bytes
    with pytest.raises(ValueError, match="Warm reports the number 'heat', which no field describes"):
        described("Warm", {"heat": 1.0}, ())
    with pytest.raises(ValueError, match="'credit_steps'"):
        described("Warm", {"credit_steps": 1.0}, ())
    with pytest.raises(ValueError, match="'Heat!'"):
        Field("Heat!", "No name of a metric.")


def test_what_a_run_state_keeps() -> None:
    """A run state keeps the marked numbers of the table."""
    stats = TrainerStats(4, 900, 100, 50.0, is_full=True, numbers={"mean_lag": 0.5, "loss": 1.0})
    state = stats.state_dict()
    assert state == {
        "version": 4, "env_steps_trained": 900, "episodes": 100, "mean_return": 50.0, "mean_lag": 0.5,
        "log_prob_error_max": 0.0, "is_full": True,
    }  # fmt: skip
    kept = TrainerStats.from_state(state)
    assert kept == replace(stats, numbers={"mean_lag": 0.5, "log_prob_error_max": 0.0})
    for key, value in (("version", -1), ("mean_lag", "x"), ("is_full", 1), ("mean_return", "x")):
        with pytest.raises(ValueError, match=key):
            TrainerStats.from_state({**state, key: value})
    for unknown in ("numbers", "fields"):
        with pytest.raises(TypeError, match=f"{unknown}.* is not a number of a trainer"):
            TrainerStats.from_state({**state, unknown: ()})
