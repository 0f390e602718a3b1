"""The metrics of a learner, as Prometheus reads them."""

from __future__ import annotations

import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import grpc
import numpy as np
import pytest
from prometheus_client.registry import CollectorRegistry
from rollcast.enums import HoldReason
from rollcast.errors import BY_REASON, MalformedChunk, Unexpected
from rollcast.faults import BAD_ACTION, BAD_OBSERVATION, NOT_FINITE

from learner.ingest import ledger, validate
from learner.ingest.behaviors import NOT_TRAINING
from learner.observe.metrics.behaviors import HoldClock, LossNumbers, ReplayNumbers
from learner.observe.metrics.learner import CONTENT_TYPE, LearnerMetrics, code_name
from learner.observe.metrics.state import BehaviorNumbers, GpuMemory, MetricsSnapshot, Spread
from learner.observe.metrics.values import DROP_REASONS, EPISODE_RETURN, LOSE_EVENTS, REJECT_REASONS
from learner.observe.view import BehaviorView, Bottleneck, LedgerNumbers, RunState, RunView, empty_books
from learner.trainers import intake, on_policy
from tests.exposition import samples

RUN = RunView("run", RunState.WAITING, 1, 0.0, "")


def value(metrics: LearnerMetrics, name: str, **labels: str) -> float:
    """Returns one sample of a learner."""
    return samples(metrics.exposition())[f"rollcast_learner_{name}", tuple(sorted(labels.items()))]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Returns monotonic seconds."""
        return self.now


def test_two_learners_in_one_process_do_not_meet() -> None:
    """Each instance has a registry of its own; what one counts, the other does not."""
    first, second = LearnerMetrics(), LearnerMetrics()
    first.intake.received.inc()
    assert value(first, "chunks_received_total") == 1
    assert value(second, "chunks_received_total") == 0


def test_a_registry_can_be_given() -> None:
    """Whoever has a registry reads the metrics there."""
    registry = CollectorRegistry()
    LearnerMetrics(registry).sessions.opened["full"].inc()
    assert registry.get_sample_value("rollcast_learner_sessions_opened_total", {"outcome": "full"}) == 1


def test_all_label_values_are_there_from_the_start() -> None:
    """A series that is missing until its first event would hide that event from `rate`."""
    metrics = LearnerMetrics()
    metrics.behavior("A")
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
    """Each error of `rollcast.errors` counts under its own word; UNEXPECTED and unknown ones count as internal."""
    metrics = LearnerMetrics()
    for reason in BY_REASON:
        metrics.error(reason)
    metrics.error("SOMETHING_ELSE")
    for reason in BY_REASON:
        if reason != Unexpected.default_reason:
            assert value(metrics, "errors_total", reason=reason.lower()) == 1
    assert value(metrics, "errors_total", reason="internal") == 2
    assert value(metrics, "errors_total", reason=MalformedChunk.default_reason.lower()) == 1


def test_every_word_of_the_books_is_known() -> None:
    """The words that parts of the learner write into the books are those that have a series."""
    rejected = {validate.GENERATION, NOT_TRAINING, NOT_FINITE, BAD_ACTION, BAD_OBSERVATION}
    assert rejected <= set(REJECT_REASONS)
    in_trainer = {intake.GENERATION, intake.STALE, intake.NOT_FOR_TRAINING, intake.TOO_LONG, on_policy.NOT_FINITE}
    assert rejected | in_trainer <= set(DROP_REASONS)
    assert {ledger.RESTART, ledger.ROLLBACK} == set(LOSE_EVENTS)


def test_an_unknown_reason_makes_no_series() -> None:
    """A reason that no list has counts as `other`."""
    metrics = LearnerMetrics()
    metrics.intake.rejected("made_up")
    metrics.intake.rejected("not_finite")
    assert value(metrics, "chunks_rejected_total", reason="other") == 1
    assert value(metrics, "chunks_rejected_total", reason="not_finite") == 1
    assert "made_up" not in metrics.exposition().decode()


def test_arrays_are_counted_into_buckets() -> None:
    """A value belongs to the first bucket whose bound it does not exceed; NaN and infinities are left out."""
    metrics = LearnerMetrics()
    lag = metrics.behavior("A").policy_lag
    lag.observe(np.array([0, 0, 1, 2, 3, 5, 300]))
    lag.observe(np.array([np.nan, np.inf, 4.0]), np.array([1, 1, 10]))
    for bound, expected in (("0.0", 2), ("1.0", 3), ("2.0", 4), ("4.0", 15), ("8.0", 16), ("256.0", 16), ("+Inf", 17)):
        assert value(metrics, "policy_lag_versions_bucket", behavior="A", le=bound) == expected
    assert value(metrics, "policy_lag_versions_count", behavior="A") == 17
    assert value(metrics, "policy_lag_versions_sum", behavior="A") == 0 + 0 + 1 + 2 + 3 + 5 + 300 + 40


def test_counts_from_a_device_are_added() -> None:
    """Whoever counts elsewhere, as a trainer does on a GPU, adds one number for each bucket."""
    metrics = LearnerMetrics()
    part = metrics.behavior("A")
    counts = np.zeros(len(part.lag_bounds) + 1)
    counts[0], counts[-1] = 3, 1
    part.policy_lag.add(counts, 1000.0)
    assert value(metrics, "policy_lag_versions_bucket", behavior="A", le="0.0") == 3
    assert value(metrics, "policy_lag_versions_bucket", behavior="A", le="+Inf") == 4


def test_buckets_of_returns_can_be_chosen() -> None:
    """The bounds of the histogram of returns are a setting."""
    metrics = LearnerMetrics(return_buckets=(-1.0, 0.0, 21.0))
    metrics.behavior("Pong").episode_return.observe(np.array([-21.0, 20.0]))
    assert value(metrics, "episode_return_bucket", behavior="Pong", le="21.0") == 2
    assert value(metrics, "episode_return_bucket", behavior="Pong", le="-1.0") == 1
    assert value(metrics, "episode_return_count", behavior="Pong") == 2
    assert value(metrics, "episode_return_sum", behavior="Pong") == -1
    assert list(EPISODE_RETURN) == sorted(set(EPISODE_RETURN))


def test_terms_add_up_to_the_loss() -> None:
    """The weighted terms are those whose sum is the loss."""
    metrics = LearnerMetrics()
    numbers = LossNumbers(
        policy=-0.1,
        value=0.5,
        entropy=-0.01,
        grad_norm=2.0,
        approx_kl=0.01,
        clip_ratio=0.1,
        explained_variance=0.9,
        entropy_nats=0.6,
        learning_rate=3e-4,
        log_prob_error_max=1e-6,
    )
    metrics.behavior("A").note_losses(numbers)
    terms = [value(metrics, "loss_term", behavior="A", term=term) for term in ("policy", "value", "entropy")]
    assert sum(terms) == pytest.approx(value(metrics, "loss", behavior="A"))
    assert value(metrics, "explained_variance_ratio", behavior="A") == 0.9
    assert value(metrics, "learning_rate", behavior="A") == 3e-4


def test_updates_and_publications_leave_their_time() -> None:
    """Timestamps are exported, not ages; before the first event they are that of the trainer's beginning."""
    metrics = LearnerMetrics()
    part = metrics.behavior("A")
    begun = value(metrics, "last_update_timestamp_seconds", behavior="A")
    part.note_update()
    part.note_published()
    part.note_skipped("not_finite")
    assert 0 < begun <= value(metrics, "last_update_timestamp_seconds", behavior="A")
    assert begun <= value(metrics, "last_publish_timestamp_seconds", behavior="A")
    assert value(metrics, "updates_total", behavior="A") == 1
    assert value(metrics, "skipped_updates_total", behavior="A", reason="not_finite") == 1


def test_checkpoints_count_by_outcome() -> None:
    """A model is a checkpoint, too, but only a run state is what a restart goes on from."""
    metrics = LearnerMetrics()
    begun = value(metrics, "last_checkpoint_timestamp_seconds")
    metrics.checkpoints.note_saved(0.2, is_run_state=False)
    assert value(metrics, "last_checkpoint_timestamp_seconds") == begun
    metrics.checkpoints.note_saved(0.2, is_run_state=True)
    assert value(metrics, "last_checkpoint_timestamp_seconds") > begun
    metrics.checkpoints.note_failed()
    assert value(metrics, "checkpoints_total", outcome="ok") == 2
    assert value(metrics, "checkpoints_total", outcome="failed") == 1
    assert value(metrics, "checkpoint_seconds_count") == 2


def test_time_held_adds_up_while_anybody_holds() -> None:
    """Two behaviors that update at once hold the actors once; a hold that goes on counts up to now."""
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


def numbers_of(name: str, **books: object) -> BehaviorNumbers:
    """Returns a behavior with some of the books filled in."""
    filled = LedgerNumbers(**{**empty_books(), **books})  # type: ignore[typeddict-item]
    return BehaviorNumbers(BehaviorView(name, mean_return_100=1.5, books=filled))


def test_the_books_of_a_scrape_balance() -> None:
    """All terms of a behavior's books come from one snapshot; every known reason is there; others are `other`."""
    metrics = LearnerMetrics()
    books = numbers_of(
        "A", received=100, trained=60, dropped={"stale": 5, "made_up": 5}, queued=20, lost={"restart": 10}
    )
    metrics.watch(lambda: MetricsSnapshot(RUN, behaviors=(books,)))
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
    """Of the words that exclude each other one is 1."""
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


def test_what_is_not_known_is_absent() -> None:
    """A mean return before the first episode, actors that are not there, and a GPU: no NaN, but no series."""
    metrics = LearnerMetrics()
    metrics.watch(lambda: MetricsSnapshot(RUN, behaviors=(BehaviorNumbers(BehaviorView("A")),)))
    found = {name for name, _ in samples(metrics.exposition())}
    prefix = "rollcast_learner_"
    absent = {"episode_return_mean", "actor_step_share_ratio", "actor_policy_lag_versions", "gpu_memory_reserved_bytes"}
    assert not found & {prefix + name for name in absent}
    nan = [number for number in samples(metrics.exposition()).values() if number != number]  # noqa: PLR0124
    assert nan == []


def test_calls_are_counted_as_go_does() -> None:
    """Codes are Go's words; only unary methods have a duration, since a stream lasts as long as its actor."""
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


def test_threads_lose_no_count() -> None:
    """Counting arrays from several threads loses nothing."""
    metrics = LearnerMetrics()
    lag = metrics.behavior("A").policy_lag

    def count() -> None:
        for _ in range(500):
            lag.observe(np.array([1]))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(metrics, "policy_lag_versions_count", behavior="A") == 2000


def full() -> LearnerMetrics:
    """Returns the metrics of a learner that shows all it can."""
    metrics = LearnerMetrics()
    metrics.set_build("0.1.0", "abc", 1)
    metrics.behavior('odd "name"\n')
    metrics.calls.declare("a.B", "Get", streams=(False, False))
    metrics.watch(
        lambda: MetricsSnapshot(
            RUN,
            behaviors=(numbers_of('odd "name"\n'),),
            step_shares=Spread(0.5, 1, 2),
            policy_lags=Spread(0, 0, 1),
            gpu=GpuMemory(1, 2),
        )
    )
    return metrics


def test_promtool_finds_nothing_to_say() -> None:
    """Names, types, units and help texts keep to Prometheus' rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        assert b"# HELP" in full().exposition()  # what can be said without it
        return
    done = subprocess.run([promtool, "check", "metrics"], input=full().exposition(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_names_of_behaviors_are_escaped() -> None:
    """A behavior's name comes from outside; quotes and line ends in it break nothing."""
    names = {dict(labels).get("behavior") for _, labels in samples(full().exposition())}
    assert names == {None, 'odd "name"\n'}


def test_the_text_travels_over_http(serve: Callable[[Callable[[], bytes], str], str]) -> None:
    """A scrape over a real socket yields what the registry holds."""
    metrics = full()
    metrics.intake.received.inc(7)
    url = serve(metrics.exposition, CONTENT_TYPE)
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own
        body = answer.read()
    assert samples(body)["rollcast_learner_chunks_received_total", ()] == 7


class CsvWriter:
    """A writer of this name."""


def test_writers_are_told_apart_by_their_kind() -> None:
    """The series of a run's writers are there before one fails."""
    metrics, writer = LearnerMetrics(), CsvWriter()
    metrics.declare_stats_writers([writer])
    assert value(metrics, "stats_writer_failures_total", writer="csv") == 0
    metrics.stats_writer_failed(writer)
    assert value(metrics, "stats_writer_failures_total", writer="csv") == 1


def test_a_replay_memory_is_shown() -> None:
    """Sizes as they are, counts as counters; a behavior without such a memory has zeros."""
    metrics = LearnerMetrics()
    part = metrics.behavior("A")
    assert value(metrics, "replay_steps", behavior="A") == 0
    part.show_replay(ReplayNumbers(steps=100, owed=3, drawn=640, evicted=0, evicted_undrawn=0))
    part.show_replay(ReplayNumbers(steps=90, owed=0, drawn=1280, evicted=40, evicted_undrawn=7))
    assert value(metrics, "replay_steps", behavior="A") == 90
    assert value(metrics, "owed_updates", behavior="A") == 0
    assert value(metrics, "replay_drawn_steps_total", behavior="A") == 1280
    assert value(metrics, "replay_evicted_steps_total", behavior="A") == 40
    assert value(metrics, "replay_evicted_undrawn_steps_total", behavior="A") == 7
    part.note_update(5)
    assert value(metrics, "updates_total", behavior="A") == 5
