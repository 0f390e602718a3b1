"""Tests that the page of metrics agrees with the code."""

import os
import re
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from actor_client.connection.books import ActorSnapshot
from actor_client.metrics import ActorBuild, ActorMetrics
from actor_client.unity.metrics import PlayerMetrics, PlayersSnapshot
from learner.service.metrics.learner import LearnerMetrics
from learner.service.metrics.state import Disk, MetricsSnapshot, Spread
from learner.shared.observe.behavior_state import FIELDS, BehaviorState
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.view import GpuUse, LessonView, LockstepView, RunState, RunView
from tests.architecture.tree import ROOT

PAGE = ROOT / "deploy" / "METRICS.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| (\w+) \|([^|]*)\|", flags=re.MULTILINE)


class Described(NamedTuple):
    """The description of a metric on a page or in a program."""

    kind: str
    labels: tuple[str, ...]


def on_page(part: str) -> dict[str, Described]:
    """Returns the metrics of a part of the page, which begins with a heading of the second order."""
    text = PAGE.read_text(encoding="utf-8")
    found: dict[str, Described] = {}
    for chapter in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if not chapter.startswith((part, "Both")):
            continue
        for name, kind, labels in ROW.findall(chapter):
            assert name not in found, f"{name} is there twice"
            found[name] = Described(kind, tuple(sorted(label.strip() for label in labels.split(",") if label.strip())))
    return found


def exported(text: bytes) -> dict[str, Described]:
    """Returns the metrics of an exposition; labels as on the series, but for the bounds of histograms."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert family.samples, f"{name} has no series: the test lacks a value for it"
        found[name] = Described(family.type, tuple(sorted(labels)))
    return found


def learner_text() -> bytes:
    """Returns what a learner exports that has a behavior, an actor, an episode and a GPU."""
    metrics = LearnerMetrics()
    metrics.set_build("0.1.0", "abc", 1)
    meters = RunMeters()
    meters.behavior("A")
    meters.declare_stats_writers([object()])
    metrics.calls.declare("a.B", "C", streams=(False, False))
    metrics.calls.declare("a.B", "D", streams=(True, True))
    late = {each.name: 1.0 for each in FIELDS if each.metric is not None and not each.keyed_by}
    ranks = {"rank_steps/0": 512.0, "rank_wait_ratio/0": 0.2}
    keyed = {
        **ranks,
        "environment_statistic/speed": 1.0,
        "episode_signal_reward/curiosity": 0.5,
        "return_scale/curiosity": 2.0,
    }
    played = {f"games_{outcome}/0": 1.0 for outcome in ("won", "drawn", "lost")}
    names = (each.name for each in FIELDS if each.keyed_by == "opponent")
    against = {f"{name}/rival": 1.0 for name in names}
    behavior = BehaviorState("A", numbers={**late, **keyed, **played, **against})
    lessons = (LessonView("mass", 1, 2, "heavy"),)
    run = RunView(
        "run", RunState.TRAINING, 1, 0.0, "", lessons=lessons, lockstep=LockstepView(2), behaviors=(behavior,)
    )
    metrics.watch(
        lambda: MetricsSnapshot(
            run,
            step_shares=Spread(0, 1, 2),
            policy_lags=Spread(0, 1, 2),
            gpu=GpuUse(1, 2, 3, 0.5),
            disk=Disk(1, 2),
            counts=meters.counts(),
        )
    )
    metrics.watch_trainers(os.getpid())
    return metrics.exposition()


def actor_text() -> bytes:
    """Returns what an actor of Unity players exports, and every other but for the players."""
    metrics = ActorMetrics(ActorBuild("0.1.0", "abc", "CartPole-v1"), ActorSnapshot)
    metrics.registry.register(PlayerMetrics(PlayersSnapshot))
    return metrics.exposition()


@pytest.mark.parametrize(("part", "text"), [("The learner", learner_text()), ("The actor", actor_text())])
def test_the_page_and_the_program_agree(part: str, text: bytes) -> None:
    """Names, types and labels on the page equal those of the program."""
    assert b"_created" not in text, "the client library's series are left out"
    assert on_page(part) == exported(text), "every metric has a row in deploy/METRICS.md, and every row a metric"
