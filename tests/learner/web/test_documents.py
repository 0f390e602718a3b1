"""Views as JSON."""

from __future__ import annotations

import json
import math

from learner.observe.history import History
from learner.observe.view import ActorBooksView, ActorView, BehaviorView, Bottleneck, LedgerNumbers, RunState, RunView
from learner.web.guard import to_json
from learner.web.hooks import StatusView
from learner.web.routes import history_document, status_document

BOOKS = LedgerNumbers(
    received=10, trained=4, dropped={"stale": 1}, duplicate=2, queued=3, lost={"restart": 2}, unknown=1
)


def test_the_status() -> None:
    """Everything that the page shows is in one document, with the bottleneck, the books and whether they balance."""
    behavior = BehaviorView("CartPole", version=3, mean_return_100=20.5, target_return=475.0, books=BOOKS)
    actor = ActorView(
        "rig", 4, connected=True, last_seen_seconds=1.0, books=ActorBooksView(produced=5, acked=4, open=1)
    )
    bottleneck = Bottleneck("learner", "the trainer is busy", 0.9, 0.2, 0.0)
    run = RunView("run", RunState.PAUSED, 2, 60.0, "127.0.0.1:1", 1, "an error", (behavior,), bottleneck)
    document = json.loads(to_json(status_document(StatusView(run, (actor,), "0.1"))))
    assert {"run_id", "state", "generation", "uptime_seconds", "address", "version", "last_error"} < document.keys()
    assert (document["state"], document["last_error"]) == ("paused", "an error")
    assert document["verdict"] == {
        "name": "learner", "text": "the trainer is busy", "learner_busy": 0.9, "actor_busy": 0.2, "network_share": 0.0,
    }  # fmt: skip
    (row,) = document["behaviors"]
    assert (row["name"], row["version"], row["mean_return"], row["target_return"]) == ("CartPole", 3, 20.5, 475.0)
    assert row["books"] == {**BOOKS, "balanced": True}
    (actor_row,) = document["actors"]
    assert (actor_row["name"], actor_row["index"], actor_row["lag"], actor_row["wait_share"]) == ("rig", 4, None, None)
    assert actor_row["books"]["balanced"]


def test_books_that_do_not_balance_say_so() -> None:
    """The page shows it in red; nothing is made to fit."""
    behavior = BehaviorView("CartPole", books={**BOOKS, "trained": 5})
    actor = ActorView("rig", 0, connected=True, last_seen_seconds=0.0, books=ActorBooksView(produced=5))
    run = RunView("run", RunState.TRAINING, 1, 1.0, "", 1, "", (behavior,))
    document = status_document(StatusView(run, (actor,), ""))
    assert not document["behaviors"][0]["books"]["balanced"]
    assert not document["actors"][0]["books"]["balanced"]


def test_what_is_no_number_is_null() -> None:
    """JSON has no NaN: a browser would refuse the whole document."""
    text = to_json({"a": [math.nan, {"b": math.inf, "c": -math.inf}], "d": 1.5, "e": "<b>\u2028</b>"})
    assert json.loads(text) == {"a": [None, {"b": None, "c": None}], "d": 1.5, "e": "<b>\u2028</b>"}
    assert text.isascii()


def test_history() -> None:
    """Curves go as columns."""
    history = History()
    history.add("CartPole", 1.0, {"loss": math.nan, "mean_return": 2.0})
    view = history.view("CartPole")
    assert view is not None
    document = json.loads(to_json(history_document(view)))
    assert (document["behavior"], document["interval_seconds"]) == ("CartPole", 1.0)
    assert (document["columns"]["loss"], document["columns"]["mean_return"]) == ([None], [2.0])
