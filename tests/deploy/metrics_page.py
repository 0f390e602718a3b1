"""Renders the rows of deploy/METRICS.md from what a learner and an actor export.

``python -m tests.deploy.metrics_page`` writes type, labels and meaning of each metric into its row. The last two cells of a
row, and the place of the row, are the page's own: to describe a new metric, add the row with its name, then run this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from actor_client.clients.metrics import ClientMetrics
from actor_client.connection.books import ActorSnapshot
from actor_client.counts import AgentCounts
from actor_client.metrics import ActorBuild, ActorMetrics
from actor_client.unity.metrics import PlayerMetrics
from learner.service.metrics.learner import LearnerMetrics
from learner.service.metrics.state import Disk, MetricsSnapshot, Spread
from learner.shared.observe.behavior_state import FIELDS, BehaviorState
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.view import GpuUse, LessonView, LockstepView, RunState, RunView
from tests.architecture.tree import ROOT

PAGE: Final = ROOT / "deploy" / "METRICS.md"
_WORDS: Final = frozenset(("state", "reason", "outcome", "verdict", "end", "phase", "event", "stream", "bound"))
"""Labels whose values are words of the code, which the page lists."""
_ROW: Final = re.compile(r"^\| `(\w+)` \|.*\|([^|]*)\|([^|]*)\|$", flags=re.MULTILINE)


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
    """Returns what actors of Unity players and of clients export, and every other but for those."""
    metrics = ActorMetrics(ActorBuild("0.1.0", "abc", "CartPole-v1"), ActorSnapshot)
    metrics.registry.register(PlayerMetrics((), AgentCounts, int))
    metrics.registry.register(ClientMetrics(lambda: None))
    return metrics.exposition()


@cache
def exported(text: bytes) -> Mapping[str, str]:
    """Returns the first four cells of each metric of an exposition; labels are those of the series, but for ``le``."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert family.samples, f"{name} has no series: the text lacks a value for it"
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        told = [f"`{name}`", family.type, ", ".join(labels), family.documentation]
        for label in (each for each in labels if each in _WORDS):
            words = dict.fromkeys(f"`{sample.labels[label]}`" for sample in family.samples)
            told[-1] += f" {label.capitalize()}: {', '.join(words)}."
        found[name] = "".join(f"| {cell} " if cell else "| " for cell in told) + "|"
    return found


def filled(page: str) -> str:
    """Returns the page with the cells that the code gives."""
    known = {**exported(learner_text()), **exported(actor_text())}
    return _ROW.sub(lambda row: f"{known[row[1]]}{row[2]}|{row[3]}|", page)


def names(page: str, part: str) -> list[str]:
    """Returns the metrics of a part of the page, which begins with a heading of the second order."""
    chapters = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return [row[1] for each in chapters if each.startswith((part, "Both")) for row in _ROW.finditer(each)]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
