"""Tests the metrics of a learner, parsed as Prometheus does."""

from __future__ import annotations

from dataclasses import replace

import grpc
import numpy as np
from prometheus_client.registry import CollectorRegistry
from rollcast.enums import HoldReason
from rollcast.errors import BY_REASON, Unexpected
from rollcast.faults import BAD_ACTION, BAD_OBSERVATION, NOT_FINITE

from learner.link.to_front import NOT_TRAINING
from learner.service.ingest import ledger, validate
from learner.service.metrics.behaviors import HoldClock
from learner.service.metrics.learner import LearnerMetrics, code_name
from learner.service.metrics.state import MetricsSnapshot
from learner.shared.observe.behavior_state import BehaviorState, LedgerNumbers, empty_books
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.values import DROP_REASONS, LOSE_EVENTS, REJECT_REASONS
from learner.shared.observe.view import Bottleneck, RunState, RunView
from learner.training.trainers import intake, on_policy
from tests.clock import Clock
from tests.exposition import samples

RUN = RunView("run", RunState.WAITING, 1, 0.0, "")


def value(metrics: LearnerMetrics, name: str, **labels: str) -> float:
    """Returns one sample of a learner."""
    return samples(metrics.exposition())[f"rollcast_learner_{name}", tuple(sorted(labels.items()))]


def watched(meters: RunMeters, metrics: LearnerMetrics | None = None) -> LearnerMetrics:
    """Shows the trainers' counters of a run in metrics."""
    metrics = metrics or LearnerMetrics()
    metrics.watch(lambda: MetricsSnapshot(RUN, counts=meters.counts()))
    return metrics


def test_all_label_values_are_there_from_the_start() -> None:
    """All label values have series at zero from the start."""
    meters = RunMeters()
    meters.behavior("A")
    metrics = watched(meters)
    found = samples(metrics.exposition())
    for name, label, words in (
        ("chunks_rejected_total", "reason", REJECT_REASONS),
        ("sessions_opened_total", "outcome", ("ok", "resumed", "fenced", "full", "draining", "refused")),
        ("declarations_total", "outcome", ("ok", "refused")),
        ("policy_sends_total", "outcome", ("ok", "replaced", "aborted")),
        ("checkpoints_total", "outcome", ("ok", "failed")),
        ("held_seconds_total", "reason", ("updating", "paused", "behind", "draining", "lockstep")),
    ):
        for word in words:
            assert found[f"rollcast_learner_{name}", ((label, word),)] == 0
    for phase in ("stage", "assemble", "optimize", "publish"):
        key = ("rollcast_learner_update_seconds_count", (("behavior", "A"), ("phase", phase)))
        assert found[key] == 0


def test_every_reason_of_the_protocol_is_a_series() -> None:
    """Each error of `rollcast.errors` has a series; unknown ones count as internal, unknown rejections as `other`."""
    metrics = LearnerMetrics()
    for reason in BY_REASON:
        metrics.error(reason)
    metrics.error("SOMETHING_ELSE")
    for reason in BY_REASON:
        if reason != Unexpected.default_reason:
            assert value(metrics, "errors_total", reason=reason.lower()) == 1
    assert value(metrics, "errors_total", reason="internal") == 2
    metrics.intake.rejected("made_up")
    assert value(metrics, "chunks_rejected_total", reason="other") == 1
    assert "made_up" not in metrics.exposition().decode()


def test_every_word_of_the_books_is_known() -> None:
    """Every word that the learner writes into the books has a series."""
    rejected = {validate.GENERATION, NOT_TRAINING, NOT_FINITE, BAD_ACTION, BAD_OBSERVATION}
    assert rejected <= set(REJECT_REASONS)
    in_trainer = {intake.GENERATION, intake.STALE, intake.NOT_FOR_TRAINING, intake.TOO_LONG, on_policy.NOT_FINITE}
    assert rejected | in_trainer <= set(DROP_REASONS)
    assert {ledger.RESTART, ledger.ROLLBACK} == set(LOSE_EVENTS)


def test_arrays_are_counted_into_buckets() -> None:
    """A value belongs to the first bucket whose bound it does not exceed; NaN is skipped, counts of a device are added."""
    meters = RunMeters()
    metrics = watched(meters)
    lag = meters.behavior("A").policy_lag
    lag.observe(np.array([0, 0, 1, 2, 3, 5, 300]))
    lag.observe(np.array([np.nan, np.inf, 4.0]), np.array([1, 1, 10]))
    for bound, expected in (("0.0", 2), ("1.0", 3), ("2.0", 4), ("4.0", 15), ("8.0", 16), ("256.0", 16), ("+Inf", 17)):
        assert value(metrics, "policy_lag_versions_bucket", behavior="A", le=bound) == expected
    assert value(metrics, "policy_lag_versions_count", behavior="A") == 17
    assert value(metrics, "policy_lag_versions_sum", behavior="A") == 0 + 0 + 1 + 2 + 3 + 5 + 300 + 40
    counts = np.zeros(len(meters.behavior("A").lag_bounds) + 1)  # of a device
    counts[0], counts[-1] = 3, 1
    lag.add(counts, 1000.0)
    assert value(metrics, "policy_lag_versions_bucket", behavior="A", le="0.0") == 2 + 3
    assert value(metrics, "policy_lag_versions_count", behavior="A") == 17 + 4


def snapshot(*behaviors: BehaviorState) -> MetricsSnapshot:
    """Returns a learner with these behaviors."""
    return MetricsSnapshot(replace(RUN, behaviors=behaviors))


def test_numbers_of_a_trainer_are_shown() -> None:
    """Losses share a metric, counts are counters, keys are labels, and missing numbers are 0."""
    numbers = {"policy_loss": -0.1, "value_loss": 0.5, "updates": 5, "episode_signal_reward/rnd": 2.0}
    metrics = LearnerMetrics()
    metrics.watch(lambda: snapshot(BehaviorState("A", numbers=numbers)))
    terms = [value(metrics, "loss_term", behavior="A", term=term) for term in ("policy", "value", "entropy")]
    assert terms == [-0.1, 0.5, 0.0]
    assert value(metrics, "updates_total", behavior="A") == 5
    assert value(metrics, "replay_drawn_steps_total", behavior="A") == 0
    assert value(metrics, "episode_signal_reward", behavior="A", signal="rnd") == 2.0
    assert value(metrics, "explained_variance_ratio", behavior="A") == 0.0


def test_events_of_a_trainer_are_counted() -> None:
    """Undone updates and evaluated episodes are counted when they happen."""
    meters = RunMeters()
    metrics = watched(meters)
    part = meters.behavior("A")
    part.note_skipped("not_finite")
    part.note_evaluation(7, is_complete=False)
    assert value(metrics, "skipped_updates_total", behavior="A", reason="not_finite") == 1
    assert value(metrics, "evaluation_episodes_total", behavior="A") == 7
    assert value(metrics, "evaluations_total", behavior="A", outcome="cut_short") == 1


def test_checkpoints_count_by_outcome() -> None:
    """Models count as checkpoints; the age is that of the newest run state."""
    meters = RunMeters()
    metrics = watched(meters)
    begun = value(metrics, "last_checkpoint_timestamp_seconds")
    meters.checkpoints.note_saved(0.2, is_run_state=False)
    assert value(metrics, "last_checkpoint_timestamp_seconds") == begun
    meters.checkpoints.note_saved(0.2, is_run_state=True)
    assert value(metrics, "last_checkpoint_timestamp_seconds") > begun
    meters.checkpoints.note_failed()
    assert value(metrics, "checkpoints_total", outcome="ok") == 2
    assert value(metrics, "checkpoints_total", outcome="failed") == 1
    assert value(metrics, "checkpoint_seconds_count") == 2


def test_time_held_adds_up_while_anybody_holds() -> None:
    """Time of holds is the union over behaviors, up to now."""
    clock, registry = Clock(), CollectorRegistry()
    holds = HoldClock(registry, clock)

    def seconds() -> float | None:
        return registry.get_sample_value("rollcast_learner_held_seconds_total", {"reason": "updating"})

    holds.set(HoldReason.UPDATING, "A", active=True)
    holds.set(HoldReason.UPDATING, "A", active=True)
    clock.now += 1
    holds.set(HoldReason.UPDATING, "B", active=True)
    clock.now += 1
    assert seconds() == 2
    assert registry.get_sample_value("rollcast_learner_held", {"reason": "updating"}) == 1
    holds.set(HoldReason.UPDATING, "A", active=False)
    clock.now += 1
    holds.set(HoldReason.UPDATING, "B", active=False)
    clock.now += 1
    assert seconds() == 3
    assert registry.get_sample_value("rollcast_learner_held", {"reason": "updating"}) == 0
    holds.set(HoldReason.UNSPECIFIED, "A", active=True)  # no word for it, and no harm
    assert seconds() == 3


def state_of(name: str, **books: object) -> BehaviorState:
    """Returns a behavior with some of the books filled in."""
    filled = LedgerNumbers(**{**empty_books(), **books})  # type: ignore[typeddict-item]
    return BehaviorState(name, mean_return_100=1.5, books=filled)


def test_the_books_of_a_scrape_balance() -> None:
    """The books of a scrape come from one snapshot, with every known reason and `other`."""
    metrics = LearnerMetrics()
    books = state_of("A", received=100, trained=60, dropped={"stale": 5, "made_up": 5}, queued=20, lost={"restart": 10})
    metrics.watch(lambda: snapshot(books))
    assert value(metrics, "env_steps_dropped_total", behavior="A", reason="stale") == 5
    assert value(metrics, "env_steps_dropped_total", behavior="A", reason="other") == 5
    assert value(metrics, "env_steps_dropped_total", behavior="A", reason="generation") == 0
    assert value(metrics, "env_steps_lost_total", behavior="A", event="rollback") == 0
    found = samples(metrics.exposition())
    fates = sum(
        number
        for (name, _), number in found.items()
        if name.removeprefix("rollcast_learner_env_steps_")
        in {"trained_total", "dropped_total", "queued", "lost_total"}
    )
    assert found["rollcast_learner_env_steps_received_total", (("behavior", "A"),)] == fates == 100


def test_exactly_one_state_and_one_verdict() -> None:
    """Exactly one state and one verdict are 1."""
    metrics = LearnerMetrics()
    metrics.watch(
        lambda: MetricsSnapshot(replace(RUN, state=RunState.PAUSED, bottleneck=Bottleneck("actors", actor_busy=0.75)))
    )
    found = samples(metrics.exposition())
    assert value(metrics, "actor_busy_ratio") == 0.75
    assert value(metrics, "actor_wait_ratio") == 0.25
    for name, word in (("run_state", "paused"), ("bottleneck", "actors")):
        ones = [labels for (full, labels), number in found.items() if full == f"rollcast_learner_{name}" and number]
        assert [labels[0][1] for labels in ones] == [word]


def test_calls_are_counted_as_go_does() -> None:
    """Calls are counted by gRPC code, and only unary methods have a duration."""
    metrics = LearnerMetrics()
    metrics.calls.declare("a.B", "Get", streams=(False, False))
    metrics.calls.declare("a.B", "Talk", streams=(True, True))
    for path in ("/a.B/Get", "/a.B/Talk"):
        call = metrics.calls.of(path)
        assert call is not None
        call.started.inc()
        call.handled(grpc.StatusCode.INVALID_ARGUMENT, 0.1)
    metrics.calls.of("/a.B/Strange").started.inc()
    assert b"Strange" not in metrics.exposition()
    assert b"undeclared" not in metrics.exposition()
    found = samples(metrics.exposition())
    handled = {labels: number for (name, labels), number in found.items() if name == "grpc_server_handled_total"}
    assert len(handled) == 2 * len(grpc.StatusCode)
    assert sum(handled.values()) == 2
    timed = [dict(labels)["grpc_method"] for name, labels in found if name == "grpc_server_handling_seconds_count"]
    assert timed == ["Get"]
    assert {code_name(code) for code in grpc.StatusCode} >= {"OK", "Canceled", "DeadlineExceeded", "DataLoss"}


def test_waits_of_all_behaviors_are_one_histogram() -> None:
    """Waits of all behaviors are one histogram; phases of updates have labels."""
    meters = RunMeters()
    metrics = watched(meters)
    assert value(metrics, "queue_wait_seconds_count") == 0
    for name in ("A", "B"):
        meters.behavior(name).queue_wait.observe(0.5)
        with meters.behavior(name).optimize.time():
            pass
    assert value(metrics, "queue_wait_seconds_bucket", le="0.25") == 0
    assert value(metrics, "queue_wait_seconds_bucket", le="0.5") == value(metrics, "queue_wait_seconds_count") == 2
    assert value(metrics, "queue_wait_seconds_sum") == 1.0
    assert value(metrics, "update_seconds_count", behavior="A", phase="optimize") == 1
