"""Episodes and statistics records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from rollcast.enums import Purpose, StatAggregation
from rollcast.trajectories import Chunk
from structlog.testing import capture_logs

from learner.curriculum.lessons import Lessons
from learner.link.evaluation import Played
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.stats import StatsReporter, StatSummary
from learner.trainers.appo.trainer import APPOTrainer
from learner.trainers.ppo.trainer import PPOTrainer
from learner.trainers.rl import RLTrainer
from learner.trainers.sac.trainer import SACTrainer
from learner.trainers.tally import MAX_KEYS, MAX_METRIC_KEYS, EpisodeRewards, EpisodeTally, RecordTally
from tests.exposition import samples
from tests.learner.curriculum.curricula import curriculum, parameters
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.synthetic import CONTINUOUS, SyntheticActor


def make_chunk(returns: list[float], **columns: Any) -> Chunk:
    """A chunk with nothing but episodes."""
    values = {
        "episode/return": np.array(returns, np.float32),
        "episode/length": np.full(len(returns), 7, np.uint32),
        **columns,
    }
    return Chunk(episodes=len(returns), columns=values)


def mean_of(stats: StatsReporter, key: str) -> float | None:
    """The mean of a statistic, None if nothing was added."""
    summary = stats.summary(key)
    return None if summary is None else summary.mean


def test_training_episodes_are_counted_and_the_newest_kept() -> None:
    """The mean is over the newest episodes; the count over all."""
    stats = StatsReporter("Test")
    tally = EpisodeTally(stats, 3, strength=2.0)
    assert tally.mean() is None
    tally.add(make_chunk([1.0, 2.0]))
    tally.add(make_chunk([3.0, 10.0]))
    assert list(tally.returns) == [2.0, 3.0, 10.0]
    assert (tally.episodes, tally.mean()) == (4, 5.0)
    assert mean_of(stats, "Environment/Cumulative Reward") == 4.0
    assert mean_of(stats, "Environment/Episode Length") == 7.0
    assert mean_of(stats, "Policy/Extrinsic Reward") == 8.0


def test_other_episodes_enter_no_mean() -> None:
    """Evaluations are handed on with their assignment, return and length; demonstrations count nowhere."""

    class Sink:
        """Keeps what is handed on."""

        def __init__(self) -> None:
            self.found: list[tuple[str, int, int, Played]] = []

        def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
            self.found.append((behavior, team, assignment_id, played))

    stats, sink = StatsReporter("Test"), Sink()
    tally = EpisodeTally(stats, 3, evaluations=sink)
    purposes = np.array([Purpose.EVALUATE, Purpose.TRAIN, Purpose.DEMO], np.uint8)
    told = {"episode/purpose": purposes, "episode/assignment": np.array([4, 0, 0], np.uint64)}
    tally.add(make_chunk([100.0, 1.0, 100.0], **told))
    assert (tally.episodes, tally.mean()) == (1, 1.0)
    assert mean_of(stats, "Environment/Cumulative Reward") == 1.0
    assert sink.found == [("Test", 0, 4, Played(100.0, 7))]


def test_a_chunk_of_evaluations_alone_changes_nothing() -> None:
    """No statistic of training appears, not even an empty one, and no count moves."""
    stats = StatsReporter("Test")
    tally = EpisodeTally(stats, 3)
    before = tally.state_dict()
    tally.add(make_chunk([100.0, 5.0], **{"episode/purpose": np.full(2, Purpose.EVALUATE, np.uint8)}))
    assert tally.state_dict() == before
    assert stats.write_stats(1) == {}


def test_groups_and_infos_are_reported() -> None:
    """Group returns have a statistic of their own and count as extrinsic reward; absent infos (NaN) do not count."""
    stats = StatsReporter("Test")
    columns = {
        "episode/group_return": np.array([5.0, 7.0], np.float32),
        "info/goals": np.array([np.nan, 3.0], np.float32),
    }
    EpisodeTally(stats, 3).add(make_chunk([1.0, 1.0], **columns))
    assert mean_of(stats, "Environment/Group Cumulative Reward") == 6.0
    assert mean_of(stats, "Policy/Extrinsic Reward") == 7.0
    assert mean_of(stats, "Environment/goals") == 3.0


def test_records_of_the_environment_are_passed_on() -> None:
    """Each record goes to its key with its aggregation."""
    stats = StatsReporter("Test")
    columns: dict[str, Any] = {
        "stat/key": np.array([1, 0, 1], np.uint32),
        "stat/value": np.array([1.0, 5.0, 2.0], np.float32),
        "stat/aggregation": np.array([StatAggregation.SUM, StatAggregation.UNSPECIFIED, StatAggregation.SUM], np.uint8),
    }
    EpisodeTally(stats, 3).add(Chunk(columns=columns, stat_keys=("speed", "goals")))
    goals = stats.summary("goals")
    assert goals is not None
    assert (mean_of(stats, "speed"), goals.value) == (5.0, 3.0)


def test_the_tally_survives_a_round_trip() -> None:
    """Count and kept returns come back."""
    tally, other = EpisodeTally(StatsReporter("Test"), 3), EpisodeTally(StatsReporter("Test"), 3)
    tally.add(make_chunk([1.0, 2.5, 3.0, 4.0]))
    other.load_state_dict(tally.state_dict())
    assert (other.episodes, list(other.returns)) == (4, [2.5, 3.0, 4.0])


def test_huge_returns_add_up() -> None:
    """The largest float32 of an agent and of its group are a finite number together."""
    stats, largest = StatsReporter("Test"), float(np.finfo(np.float32).max)
    tally = EpisodeTally(stats, 3, strength=2.0)
    tally.add(make_chunk([largest] * 3, **{"episode/group_return": np.full(3, largest, np.float32)}))
    assert tally.mean() == largest
    assert mean_of(stats, "Policy/Extrinsic Reward") == pytest.approx(4 * largest)


def lessons_of_test(**criteria: Any) -> Lessons:
    """A curriculum of three lessons for the behavior Test."""
    return Lessons(parameters(mass=curriculum(1, 2, 3, behavior="Test", **criteria)), seed=0)


def test_episodes_of_earlier_lessons_enter_no_mean() -> None:
    """A lesson begins with no returns; what began before it counts as an episode and no more."""
    lessons = lessons_of_test(threshold=50)
    tally = EpisodeTally(StatsReporter("Test"), 100, lessons=lessons)
    revisions = np.array([1, 1, 1], np.uint64)
    tally.add(make_chunk([10.0, 90.0, 5.0], **{"episode/settings_revision": revisions}))
    assert lessons.numbers()["mass"] == 1
    assert (tally.episodes, list(tally.returns)) == (3, [])
    tally.add(make_chunk([7.0, 8.0], **{"episode/settings_revision": np.array([1, 2], np.uint64)}))
    assert list(tally.returns) == [8.0]
    tally.add(make_chunk([9.0]))
    assert list(tally.returns) == [8.0, 9.0], "parameters do not reach who says no revision: it is as it was"
    assert tally.episodes == 6


def test_only_training_episodes_end_a_lesson() -> None:
    """Evaluation and demonstration do not."""
    lessons = lessons_of_test(threshold=50)
    purposes = np.array([Purpose.EVALUATE, Purpose.TRAIN], np.uint8)
    columns = {"episode/purpose": purposes, "episode/settings_revision": np.array([1, 1], np.uint64)}
    EpisodeTally(StatsReporter("Test"), 100, lessons=lessons).add(make_chunk([90.0, 10.0], **columns))
    assert lessons.revision == 1


def test_a_lesson_that_another_behavior_ended_empties_the_mean_too() -> None:
    """The environments of all behaviors have changed."""
    lessons = lessons_of_test(threshold=50)
    tally = EpisodeTally(StatsReporter("Other"), 100, lessons=lessons)
    tally.add(make_chunk([1.0], **{"episode/settings_revision": np.array([1], np.uint64)}))
    lessons.add_episode("Test", 90.0, 1)
    tally.add(make_chunk([2.0], **{"episode/settings_revision": np.array([2], np.uint64)}))
    assert list(tally.returns) == [2.0]


def test_returns_of_an_earlier_lesson_are_not_resumed() -> None:
    """A run that goes on in a later lesson than its saved state begins with no returns."""
    lessons = lessons_of_test(threshold=50)
    before = EpisodeTally(StatsReporter("Test"), 100, lessons=lessons)
    before.add(make_chunk([1.0], **{"episode/settings_revision": np.array([1], np.uint64)}))
    later = lessons_of_test(threshold=50)
    later.set_numbers({"mass": 1})
    for told, expected in ((lessons, [1.0]), (later, [])):
        after = EpisodeTally(StatsReporter("Test"), 100, lessons=told)
        after.load_state_dict(before.state_dict())
        assert list(after.returns) == expected


def test_lessons_are_statistics_of_every_behavior() -> None:
    """One for each parameter, constants too, under ML-Agents' name; progress moves them."""
    lessons = Lessons(
        parameters(mass=curriculum(1, 2, behavior="Test", measure="progress", threshold=0.3), wind=5), seed=0
    )
    stats = StatsReporter("Test")
    tally = EpisodeTally(stats, 3, lessons=lessons)
    tally.note_progress(0.4)
    tally.report_lessons()
    assert stats.value("Environment/Lesson Number/mass") == 1.0
    assert stats.value("Environment/Lesson Number/wind") == 0.0


def records(keys: Sequence[str], *values: tuple[int, float, int]) -> Chunk:
    """A chunk with records: index of the key, value, aggregation."""
    numbers, numerics, kinds = zip(*values, strict=True)
    columns: dict[str, Any] = {
        "stat/key": np.array(numbers, np.uint32),
        "stat/value": np.array(numerics, np.float32),
        "stat/aggregation": np.array(kinds, np.uint8),
    }
    return Chunk(columns=columns, stat_keys=tuple(keys))


def shown(metrics: LearnerMetrics) -> dict[str, float]:
    """The statistics in the metrics, by key."""
    return {
        dict(labels)["key"]: value
        for (name, labels), value in samples(metrics.exposition()).items()
        if name == "rollcast_learner_environment_statistic"
    }


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (StatAggregation.AVERAGE, 3.0),
        (StatAggregation.MOST_RECENT, 2.0),
        (StatAggregation.SUM, 9.0),
        (StatAggregation.HISTOGRAM, 3.0),
    ],
)
def test_records_reach_trackers_and_metrics_under_their_own_keys(aggregation: int, expected: float) -> None:
    """The value is what the aggregation says, of all chunks since the last summary."""
    stats, metrics = StatsReporter("Test"), LearnerMetrics()
    tally = RecordTally(stats, metrics.behavior("Test"))
    tally.add(records(["a/b c"], (0, 1.0, aggregation), (0, 6.0, aggregation)))
    tally.add(records(["other", "a/b c"], (1, 2.0, aggregation)))
    assert shown(metrics) == {"a/b c": expected}
    summary = stats.write_stats(1)["a/b c"]
    assert (summary.value, summary.count) == (expected, 3)


def test_hostile_keys_do_not_become_endless_series() -> None:
    """The first keys stay known, across summaries; later ones are left out with one line, and fewer are metrics."""
    stats, metrics = StatsReporter("Test"), LearnerMetrics()
    tally = RecordTally(stats, metrics.behavior("Test"))
    written: set[str] = set()
    with capture_logs() as logs:
        for start in range(0, 3 * MAX_KEYS, 100):
            keys = [f"key{number}" for number in range(start, start + 100)]
            tally.add(records(keys, *((number, 1.0, StatAggregation.AVERAGE) for number in range(100))))
            written.update(stats.write_stats(start))
    assert written == {f"key{number}" for number in range(MAX_KEYS)}
    assert set(shown(metrics)) == {f"key{number}" for number in range(MAX_METRIC_KEYS)}
    assert [line["event"] for line in logs] == ["statistics_refused"]
    tally.add(records(["key7", "new"], (0, 5.0, StatAggregation.AVERAGE), (1, 5.0, StatAggregation.AVERAGE)))
    assert set(stats.write_stats(1)) == {"key7"}


def test_a_value_that_is_no_number_shows_as_none() -> None:
    """NaN in a chunk neither raises nor hides the others."""
    stats, metrics = StatsReporter("Test"), LearnerMetrics()
    RecordTally(stats, metrics.behavior("Test")).add(
        records(["a", "b"], (0, float("nan"), StatAggregation.AVERAGE), (1, 2.0, StatAggregation.AVERAGE))
    )
    assert shown(metrics)["b"] == 2.0


def test_sums_wait_for_an_end() -> None:
    """Nothing is said before an episode has ended; then all sums since the last end are divided by the ends."""
    rewards = EpisodeRewards()
    assert rewards.add({"rnd": 3.0, "curiosity": 1.0}, 0) == {}
    assert rewards.add({"rnd": 5.0, "curiosity": 1.0}, 4) == {"rnd": 2.0, "curiosity": 0.5}
    assert rewards.episodes == 4
    assert rewards.add({"rnd": 6.0, "curiosity": 0.0}, 3) == {"rnd": 2.0, "curiosity": 0.0}


def test_weighted_means_are_those_of_the_episodes() -> None:
    """Agents whose episodes are of any length and end at any time: the mean is that of the sums of whole episodes."""
    random = np.random.default_rng(1)
    rewards, shown, whole = EpisodeRewards(), [], []
    running = np.zeros(8)
    for _ in range(4000):
        steps = random.exponential(size=8)
        running += steps
        ends = random.random(8) < 0.05
        whole += running[ends].tolist()
        running[ends] = 0.0
        for mean in rewards.add({"rnd": float(steps.sum())}, int(ends.sum())).values():
            shown += [mean] * rewards.episodes
    assert len(shown) == len(whole)
    assert np.mean(shown) == pytest.approx(np.mean(whole), rel=0.01)


CHUNKS = 14
HYPERPARAMETERS = {"sac": {"buffer_size": 500, "batch_size": 16, "buffer_init_steps": 60}}


class Keeping:
    """A writer and a sink that keep what they are given."""

    def __init__(self) -> None:
        self.written: list[tuple[int, dict[str, tuple[int, float, float]]]] = []
        self.played: list[tuple[str, int, int, Played]] = []

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Keeps numbers, but for times of this machine."""
        kept = {key: each for key, each in summaries.items() if not key.startswith("Rollcast/")}
        self.written.append((step, {key: (kept[key].count, kept[key].mean, kept[key].std) for key in sorted(kept)}))

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Is no number."""

    def restart(self, category: str, step: int) -> None:
        """Does not happen."""

    def close(self) -> None:
        """Has nothing to close."""

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Keeps an episode of an evaluation."""
        self.played.append((behavior, team, assignment_id, played))


def episodes(purpose: Purpose, returns: list[float]) -> dict[str, Any]:
    """Columns of finished episodes, of the first lesson and with a number that the environment reported."""
    count = len(returns)
    return {
        "episode/return": np.array(returns, np.float32),
        "episode/length": np.full(count, 9, np.uint32),
        "episode/purpose": np.full(count, purpose, np.uint8),
        "episode/assignment": np.full(count, 3, np.uint64),
        "episode/settings_revision": np.ones(count, np.uint64),
        "info/goals": np.full(count, 70.0, np.float32),
    }


def others(*, has_steps: bool) -> list[Chunk]:
    """What an actor that evaluates sends, and what one that records demonstrations may send; huge returns, all of it."""
    found = []
    for purpose in (Purpose.EVALUATE, Purpose.DEMO):
        found.append(Chunk(generation=1, episodes=2, columns=episodes(purpose, [1e6, 2e6])))
        if has_steps:
            rng = np.random.default_rng(5)
            columns: dict[str, Any] = {
                "obs/state": 1e4 * rng.normal(size=(20, 5)).astype(np.float32),
                "final_obs/state": 1e4 * rng.normal(size=(2, 5)).astype(np.float32),
                "continuous_action": rng.normal(size=(20, 2)).astype(np.float32),
                "log_prob": rng.normal(size=(20, 2)).astype(np.float32),
                "reward": 1e6 * np.ones(20, np.float32),
                "length": np.array([12, 8], np.uint32),
                "end": np.array([1, 2], np.uint8),
                "purpose": np.full(2, purpose, np.uint8),
            }
            found.append(Chunk(generation=1, segments=2, rows=20, columns=columns))
    return found


class Trained:
    """A trainer that was fed with the same training chunks, and perhaps with others between them."""

    def __init__(self, kind: type[RLTrainer], trainer_type: str, between: list[Chunk]) -> None:
        settings = {
            "trainer_type": trainer_type,
            "hyperparameters": HYPERPARAMETERS.get(trainer_type, {"buffer_size": 60, "batch_size": 16, "num_epoch": 2}),
            "network_settings": {"hidden_units": 16, "normalize": True},
            "time_horizon": 20,
            "summary_freq": 100,
            "max_steps": 100_000,
        }
        self.bench = bench = make_bench(settings, CONTINUOUS)
        self.keeping = Keeping()
        self.lessons = Lessons(parameters(mass=curriculum(1, 2, behavior="Continuous", threshold=1e3)), seed=0)
        self.metrics = LearnerMetrics()
        context = bench.context(
            stats=StatsReporter("Continuous", [self.keeping]),
            lessons=self.lessons,
            metrics=self.metrics.behavior("Continuous"),
            evaluations=self.keeping,
        )
        self.trainer = kind(context)
        self.trainer.start()
        actor = SyntheticActor(bench)
        for number in range(CHUNKS):
            finished = episodes(Purpose.TRAIN, [float(number)])
            bench.put(actor.chunk([10, 7, 3], episodes=1, columns=finished))
            for chunk in between:
                bench.put(chunk)
            while self.trainer.advance():
                pass

    def numbers(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """All metrics but times."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.metrics.exposition().decode())
            for sample in family.samples
            if family.name.startswith("rollcast_learner") and "seconds" not in family.name
        }


def assert_equal(ours: Any, theirs: Any, where: str = "state") -> None:
    """Compares saved states, tensors bit by bit."""
    if isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs), where
    elif isinstance(ours, Mapping):
        assert ours.keys() == theirs.keys(), where
        for key in ours:
            assert_equal(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), where
        for place, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(left, right, f"{where}[{place}]")
    else:
        assert ours == theirs, where


@pytest.mark.parametrize(("kind", "trainer_type"), [(PPOTrainer, "ppo"), (APPOTrainer, "appo"), (SACTrainer, "sac")])
@pytest.mark.parametrize("has_steps", [False, True])
def test_it_changes_nothing_of_training(
    monkeypatch: pytest.MonkeyPatch, kind: type[RLTrainer], trainer_type: str, has_steps: bool
) -> None:
    """Weights, optimizer, normalizer, generators, counts, summaries, metrics and lessons are those of a run without."""
    monkeypatch.setattr("learner.trainers.replay.PUBLISH_SECONDS", 1e9)  # else updates a turn go by the clock
    alone = Trained(kind, trainer_type, [])
    beside = Trained(kind, trainer_type, others(has_steps=has_steps))
    assert alone.trainer.version >= 3
    assert_equal(alone.trainer.state_dict(), beside.trainer.state_dict())
    assert alone.keeping.written == beside.keeping.written
    assert any("Environment/Cumulative Reward" in summaries for _, summaries in alone.keeping.written)
    assert alone.numbers() == beside.numbers()
    assert alone.lessons.state_dict() == beside.lessons.state_dict()
    assert alone.trainer.get_step == beside.trainer.get_step
    assert len(beside.keeping.played) == 2 * CHUNKS  # each chunk of evaluations, and no demonstration
    assert beside.keeping.played[0] == ("Continuous", 0, 3, Played(1e6, 9))


def test_records_alone_stand_in_no_book() -> None:
    """What actors send of an evaluation has no steps: the books are those of a run without, entry by entry."""
    alone, beside = Trained(PPOTrainer, "ppo", []), Trained(PPOTrainer, "ppo", others(has_steps=False))
    assert alone.bench.ledger.state_dict() == beside.bench.ledger.state_dict()
    assert alone.bench.behavior.queue.unsettled_steps == beside.bench.behavior.queue.unsettled_steps


def test_steps_that_are_sent_all_the_same_are_dropped_as_not_for_training() -> None:
    """A client that sends them loses nothing in the books: received and dropped grow, and nothing else."""
    alone, beside = Trained(PPOTrainer, "ppo", []), Trained(PPOTrainer, "ppo", others(has_steps=True))
    ours, theirs = (each.bench.ledger.books("Continuous") for each in (alone, beside))
    assert theirs.balanced
    assert dict(theirs.dropped) == {**ours.dropped, "not_for_training": 2 * 20 * CHUNKS}
    assert (theirs.trained, theirs.queued) == (ours.trained, ours.queued)
    assert theirs.received == ours.received + 2 * 20 * CHUNKS
