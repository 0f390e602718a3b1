"""Progress lines."""

import json
import math
from dataclasses import asdict

from structlog.testing import capture_logs

from learner.observe.display import LineSurface
from learner.observe.jsonfile import as_json
from learner.observe.view import BehaviorView, RunState
from tests.learner.observe.views import behavior, run_view


def test_a_line_for_people_says_what_matters() -> None:
    """Steps of how many, pace, return of the target, version, lag, queue and actors; oddities only if there are any."""
    with capture_logs() as lines:
        LineSurface(for_machines=False).show(run_view(behavior(), BehaviorView("New"), state=RunState.PAUSED))
    first, second = lines
    assert first["event"] == "progress"
    assert (first["steps"], first["rate"], first["return"]) == ("98304/200000", "4,123/s", "312.4/475")
    assert (first["queue"], first["version"], first["actors"], first["dropped"]) == ("50%", 24, 2, 96)
    assert first["state"] == "paused"
    assert first["bottleneck"] == "learner"
    assert (second["behavior"], second["return"], second["queue"]) == ("New", "-", "0%")
    assert "dropped" not in second


def test_a_line_for_machines_holds_every_number() -> None:
    """Each number of the view is in the object, under its own name, and the object is strict JSON."""
    view = run_view(behavior(mean_return=math.nan))
    with capture_logs() as lines:
        LineSurface(for_machines=True).show(view)
    line = json.loads(json.dumps(as_json(lines[0]), allow_nan=False))
    expected = asdict(view.behaviors[0])
    renamed = {"name": "behavior", "steps_per_second": "env_steps_per_second", "books": "ledger"}
    for key in expected.keys() - {"queue_capacity_bytes"}:
        assert renamed.get(key, key) in line
    assert line["ledger"]["dropped"] == {"stale": 90, "bad_action": 6}
    assert line["mean_return_100"] is None
    assert (line["bottleneck"], line["learner_busy"], line["actor_busy"]) == ("learner", 0.97, 0.12)


def test_without_a_behavior_the_line_says_what_is_awaited() -> None:
    """Before the first actor there is still a sign of life, with the address to connect to."""
    with capture_logs() as lines:
        LineSurface(for_machines=False).show(run_view(state=RunState.WAITING))
    assert [(line["event"], line["address"]) for line in lines] == [("waiting_for_actors", "127.0.0.1:50051")]
