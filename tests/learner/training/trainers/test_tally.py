"""Tests the episode_statistics of episodes and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import GroupEnd, Purpose, StatAggregation
from rollcast.trajectories import Chunk
from structlog.testing import capture_logs

from learner.link.matches import games_of
from learner.shared.observe.meters import BehaviorCounts, BehaviorMeters, no_values
from learner.shared.observe.stats import StatsReporter, StatSummary
from learner.shared.observe.values import WAIT_SECONDS
from learner.training.curriculum.lessons import Lessons, no_lessons
from learner.training.trainers.episode_statistics import (
    MAX_KEYS,
    MAX_METRIC_KEYS,
    EpisodeRewards,
    EpisodeStatistics,
    RecordStatistics,
)
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.rl import RLTrainer
from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.curriculum.curricula import curriculum, parameters
from tests.learner.training.trainers.in_process import make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor


def make_chunk(returns: list[float], **columns: Any) -> Chunk:
    """Returns a chunk with episodes only."""
    values = {
        "episode/return": np.array(returns, np.float32),
        "episode/length": np.full(len(returns), 7, np.uint32),
        **columns,
    }
    return Chunk(episodes=len(returns), columns=values)


def mean_of(stats: StatsReporter, key: str) -> float | None:
    """Returns the mean of a statistic, or None."""
    summary = stats.summary(key)
    return None if summary is None else summary.mean


def test_training_episodes_are_counted_and_the_newest_kept() -> None:
    """The mean is over the newest episodes, and the count over all."""
    stats = StatsReporter("Test")
    episode_statistics = EpisodeStatistics(stats, 3, strength=2.0)
    assert episode_statistics.mean() is None
    episode_statistics.add(make_chunk([1.0, 2.0]))
    episode_statistics.add(make_chunk([3.0, 10.0]))
    assert list(episode_statistics.returns) == [2.0, 3.0, 10.0]
    assert (episode_statistics.episodes, episode_statistics.mean()) == (4, 5.0)
    assert mean_of(stats, "Environment/Cumulative Reward") == 4.0
    assert mean_of(stats, "Environment/Episode Length") == 7.0
    assert mean_of(stats, "Policy/Extrinsic Reward") == 8.0


def test_groups_and_infos_are_reported() -> None:
    """Group returns are a statistic and count as extrinsic reward; NaN infos are ignored."""
    stats = StatsReporter("Test")
    columns = {
        "episode/group_return": np.array([5.0, 7.0], np.float32),
        "info/goals": np.array([np.nan, 3.0], np.float32),
    }
    EpisodeStatistics(stats, 3).add(make_chunk([1.0, 1.0], **columns))
    assert mean_of(stats, "Environment/Group Cumulative Reward") == 6.0
    assert mean_of(stats, "Policy/Extrinsic Reward") == 7.0
    assert mean_of(stats, "Environment/goals") == 3.0


@pytest.mark.parametrize("is_told", [False, True])
def test_group_returns_of_agents_that_end_early_are_parts(*, is_told: bool) -> None:
    """The curve and lessons leave out group returns of agents whose mates play on; in matches records say which."""
    lessons = lessons_of_test(measure="group_reward", threshold=6.5, signal_smoothing=False)
    stats = StatsReporter("Test")
    columns: dict[str, Any] = {
        "episode/group_return": np.array([5.0, 7.0], np.float32),
        "episode/agent": np.array([3, 4], np.uint64),
        "episode/episode": np.array([8, 9], np.uint64),
        "episode/settings_revision": np.array([1, 1], np.uint64),
    }
    stands = np.array([GroupEnd.CONTINUES, GroupEnd.TERMINATED], np.uint8)
    if is_told:
        columns["episode/group_end"] = stands
    else:
        columns |= {"agent": columns["episode/agent"], "episode": columns["episode/episode"]}
        columns |= {"group": np.array([1, 1], np.uint64), "group_end": stands}
    EpisodeStatistics(stats, 3, lessons=lessons, grouped=True).add(make_chunk([1.0, 1.0], **columns))
    assert mean_of(stats, "Environment/Group Cumulative Reward") == 7.0
    assert lessons.numbers() == {"mass": 1}


def test_training_returns_are_those_of_evaluation() -> None:
    """The return of a group counts in targets, lessons and metrics; scenes with group rewards alone would see 0."""
    metrics, groups = BehaviorMeters(), {"episode/group_return": np.array([5.0, 7.0], np.float32)}
    lessons = Lessons(
        parameters(mass=curriculum(1, 2, behavior="Test", measure="reward", threshold=5.5, min_lesson_length=1)), seed=0
    )
    episode_statistics = EpisodeStatistics(StatsReporter("Test"), 3, metrics=metrics, lessons=lessons)
    evaluated = make_chunk([0.0, 0.0], **groups, **{"episode/purpose": np.full(2, Purpose.EVALUATE, np.uint8)})
    episode_statistics.add(evaluated)
    episode_statistics.add(
        make_chunk([0.0, 0.0], **groups, **{"episode/settings_revision": np.array([1, 1], np.uint64)})
    )
    assert lessons.numbers() == {"mass": 1}
    episode_statistics = EpisodeStatistics(StatsReporter("Test"), 3)
    episode_statistics.add(make_chunk([0.0, 0.0], **groups))
    assert list(episode_statistics.returns) == [game.total for game in games_of("Test", evaluated)] == [5.0, 7.0]
    assert (episode_statistics.mean(), episode_statistics.mean_since_update()) == (6.0, 6.0)


def test_huge_returns_add_up() -> None:
    """Two returns near the largest float32 have a finite sum."""
    stats, largest = StatsReporter("Test"), float(np.finfo(np.float32).max)
    episode_statistics = EpisodeStatistics(stats, 3, strength=2.0)
    episode_statistics.add(make_chunk([largest] * 3, **{"episode/group_return": np.full(3, largest, np.float32)}))
    assert episode_statistics.mean() == 2 * largest
    assert mean_of(stats, "Policy/Extrinsic Reward") == pytest.approx(4 * largest)


def lessons_of_test(**criteria: Any) -> Lessons:
    """Returns a curriculum of three lessons for the behavior Test."""
    return Lessons(parameters(mass=curriculum(1, 2, 3, behavior="Test", **criteria)), seed=0)


def test_episodes_of_earlier_lessons_enter_no_mean() -> None:
    """Episodes of an earlier lesson count, but not in the mean."""
    lessons = lessons_of_test(threshold=50)
    episode_statistics = EpisodeStatistics(StatsReporter("Test"), 100, lessons=lessons)
    revisions = np.array([1, 1, 1], np.uint64)
    episode_statistics.add(make_chunk([10.0, 90.0, 5.0], **{"episode/settings_revision": revisions}))
    assert lessons.numbers()["mass"] == 1
    assert (episode_statistics.episodes, list(episode_statistics.returns)) == (3, [])
    episode_statistics.add(make_chunk([7.0, 8.0], **{"episode/settings_revision": np.array([1, 2], np.uint64)}))
    assert list(episode_statistics.returns) == [8.0]
    episode_statistics.add(make_chunk([9.0]))
    assert list(episode_statistics.returns) == [8.0, 9.0], (
        "parameters do not reach who says no revision: it is as it was"
    )
    assert episode_statistics.episodes == 6


@pytest.mark.parametrize(
    ("criteria", "columns", "chunk_values"),
    [
        ({"measure": "group_reward"}, {"episode/group_return": [60.0, 70.0]}, {}),
        ({"measure": "statistic", "statistic": "Environment/goals"}, {"info/goals": [np.nan, 60.0]}, {}),
        ({"measure": "statistic", "statistic": "Goals"}, {}, {"Goals": 60.0}),
    ],
    ids=["group-reward", "info", "record"],
)
def test_a_lesson_ends_by_its_measure(
    criteria: dict[str, str], columns: dict[str, list[float]], chunk_values: dict[str, float]
) -> None:
    """Returns of the agents themselves do not end it."""
    lessons = lessons_of_test(threshold=50, signal_smoothing=False, **criteria)
    episode_statistics = EpisodeStatistics(StatsReporter("Test"), 100, lessons=lessons)
    begun = {"episode/settings_revision": np.array([1, 1], np.uint64)}
    episode_statistics.add(make_chunk([90.0, 90.0], **begun))
    assert lessons.numbers()["mass"] == 0
    episode_statistics.add(
        make_chunk([0.0, 0.0], **begun, **{name: np.array(each, np.float32) for name, each in columns.items()})
    )
    for name, value in chunk_values.items():
        episode_statistics.add(records([name, "Other"], (1, 99.0, 1), (0, value, 1)))
    assert lessons.numbers()["mass"] == 1


def test_a_lesson_that_another_behavior_ended_empties_the_mean_too() -> None:
    """A lesson that another behavior ended clears the mean too."""
    lessons = lessons_of_test(threshold=50)
    episode_statistics = EpisodeStatistics(StatsReporter("Other"), 100, lessons=lessons)
    episode_statistics.add(make_chunk([1.0], **{"episode/settings_revision": np.array([1], np.uint64)}))
    lessons.add_episode("Test", 90.0, 1)
    episode_statistics.add(make_chunk([2.0], **{"episode/settings_revision": np.array([2], np.uint64)}))
    assert list(episode_statistics.returns) == [2.0]


def test_returns_of_an_earlier_lesson_are_not_resumed() -> None:
    """Returns of an earlier lesson are not restored."""
    lessons = lessons_of_test(threshold=50)
    before = EpisodeStatistics(StatsReporter("Test"), 100, lessons=lessons)
    before.add(make_chunk([1.0], **{"episode/settings_revision": np.array([1], np.uint64)}))
    later = lessons_of_test(threshold=50)
    later.set_numbers({"mass": 1})
    for told, expected in ((lessons, [1.0]), (later, [])):
        after = EpisodeStatistics(StatsReporter("Test"), 100, lessons=told)
        after.load_state_dict(before.state_dict())
        assert (after.episodes, list(after.returns)) == (1, expected)


def test_lessons_are_statistics_of_every_behavior() -> None:
    """Each parameter's lesson is a statistic of every behavior under ML-Agents' name."""
    lessons = Lessons(
        parameters(mass=curriculum(1, 2, behavior="Test", measure="progress", threshold=0.3), wind=5), seed=0
    )
    stats = StatsReporter("Test")
    episode_statistics = EpisodeStatistics(stats, 3, lessons=lessons)
    episode_statistics.note_progress(0.4)
    episode_statistics.report_lessons()
    assert stats.value("Environment/Lesson Number/mass") == 1.0
    assert stats.value("Environment/Lesson Number/wind") == 0.0


def records(keys: Sequence[str], *values: tuple[int, float, int]) -> Chunk:
    """Returns a chunk with records: index of the key, value, aggregation."""
    numbers, numerics, kinds = zip(*values, strict=True)
    columns: dict[str, Any] = {
        "stat/key": np.array(numbers, np.uint32),
        "stat/value": np.array(numerics, np.float32),
        "stat/aggregation": np.array(kinds, np.uint8),
    }
    return Chunk(columns=columns, stat_keys=tuple(keys))


def shown(numbers: Mapping[str, float]) -> dict[str, float]:
    """Returns the shown statistics by key."""
    return {name.removeprefix("environment_statistic/"): value for name, value in numbers.items()}


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
    """Records are aggregated over all chunks since the last summary under their keys."""
    stats, numbers = StatsReporter("Test"), dict[str, float]()
    episode_statistics = RecordStatistics(stats, numbers, no_lessons())
    episode_statistics.add(records(["a/b c"], (0, 1.0, aggregation), (0, 6.0, aggregation)))
    episode_statistics.add(records(["other", "a/b c"], (1, 2.0, aggregation)))
    assert shown(numbers) == {"a/b c": expected}
    summary = stats.write_stats(1)["a/b c"]
    assert (summary.value, summary.count) == (expected, 3)


def test_hostile_keys_do_not_become_endless_series() -> None:
    """The number of keys is limited, with one warning, and that of metrics further."""
    stats, numbers = StatsReporter("Test"), dict[str, float]()
    episode_statistics = RecordStatistics(stats, numbers, no_lessons())
    written: set[str] = set()
    with capture_logs() as logs:
        for start in range(0, 3 * MAX_KEYS, 100):
            keys = [f"key{number}" for number in range(start, start + 100)]
            episode_statistics.add(records(keys, *((number, 1.0, StatAggregation.AVERAGE) for number in range(100))))
            written.update(stats.write_stats(start))
    assert written == {f"key{number}" for number in range(MAX_KEYS)}
    assert set(shown(numbers)) == {f"key{number}" for number in range(MAX_METRIC_KEYS)}
    assert [line["event"] for line in logs] == ["statistics_refused"]
    episode_statistics.add(
        records(["key7", "new"], (0, 5.0, StatAggregation.AVERAGE), (1, 5.0, StatAggregation.AVERAGE))
    )
    assert set(stats.write_stats(1)) == {"key7"}


def test_sums_wait_for_an_end() -> None:
    """Sums are divided by the number of ended episodes and absent before the first end."""
    rewards = EpisodeRewards()
    assert rewards.add({"rnd": 3.0, "curiosity": 1.0}, 0) == {}
    assert rewards.add({"rnd": 5.0, "curiosity": 1.0}, 4) == {"rnd": 2.0, "curiosity": 0.5}
    assert rewards.episodes == 4
    assert rewards.add({"rnd": 6.0, "curiosity": 0.0}, 3) == {"rnd": 2.0, "curiosity": 0.0}


CHUNKS = 10
HYPERPARAMETERS = {"sac": {"buffer_size": 500, "batch_size": 16, "buffer_init_steps": 60}}


class Keeping:
    """A writer that keeps its inputs."""

    def __init__(self) -> None:
        self.written: list[tuple[int, dict[str, tuple[int, float, float]]]] = []

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Keeps numbers, but for times of this machine."""
        kept = {key: each for key, each in summaries.items() if not key.startswith("Rollcast/")}
        self.written.append((step, {key: (kept[key].count, kept[key].mean, kept[key].std) for key in sorted(kept)}))

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Does nothing."""

    def restart(self, category: str, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


def episodes(purpose: Purpose, returns: list[float]) -> dict[str, Any]:
    """Returns columns of finished episodes of the first lesson, with an info."""
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
    """Returns chunks of evaluations and demonstrations with huge returns."""
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
                "first_step": np.zeros(2, np.uint32),
                "purpose": np.full(2, purpose, np.uint8),
            }
            found.append(Chunk(generation=1, segments=2, rows=20, columns=columns))
    return found


class Trained:
    """A trainer fed with the same training chunks, with or without others between them."""

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
        self.metrics = BehaviorMeters()
        context = bench.context(
            stats=StatsReporter("Continuous", [self.keeping]),
            lessons=self.lessons,
            metrics=self.metrics,
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

    def numbers(self) -> BehaviorCounts:
        """Returns all counters except for times."""
        none = no_values(WAIT_SECONDS)
        return replace(self.metrics.counts(), queue_wait=none, batch_wait=none, phase_seconds={})


def listed(state: Any) -> Any:
    """Returns a state with lists in place of tensors, which compare bit by bit."""
    if isinstance(state, torch.Tensor):
        return state.tolist()
    return {key: listed(part) for key, part in state.items()} if isinstance(state, Mapping) else state


@pytest.mark.parametrize(("kind", "trainer_type"), [(PPOTrainer, "ppo"), (SACTrainer, "sac")])
@pytest.mark.parametrize("has_steps", [False, True])
def test_it_changes_nothing_of_training(
    monkeypatch: pytest.MonkeyPatch, kind: type[RLTrainer], trainer_type: str, has_steps: bool
) -> None:
    """Evaluations change neither weights, optimizer, normalizer, generators, statistics nor lessons.

    Their episodes are in no book; steps that are sent all the same are dropped as not for training.
    """
    monkeypatch.setattr("learner.training.trainers.replay.PUBLISH_SECONDS", 1e9)  # else updates a turn go by the clock
    alone = Trained(kind, trainer_type, [])
    beside = Trained(kind, trainer_type, others(has_steps=has_steps))
    assert alone.trainer.version >= 3
    assert listed(alone.trainer.state_dict()) == listed(beside.trainer.state_dict())
    assert alone.keeping.written == beside.keeping.written
    assert any("Environment/Cumulative Reward" in summaries for _, summaries in alone.keeping.written)
    assert alone.numbers() == beside.numbers()
    assert alone.lessons.state_dict() == beside.lessons.state_dict()
    assert alone.trainer.get_step == beside.trainer.get_step
    found = [game for chunk in others(has_steps=has_steps) for game in games_of("Continuous", chunk)]
    assert [(game.match, game.total, game.length) for game in found] == [(3, 1e6, 9), (3, 2e6, 9)]  # no demonstration
    ours, theirs = (each.bench.ledger.books("Continuous") for each in (alone, beside))
    assert theirs.balanced
    extra = 2 * 20 * CHUNKS if has_steps else 0
    assert dict(theirs.dropped) == ({**ours.dropped, "not_for_training": extra} if extra else dict(ours.dropped))
    assert (theirs.trained, theirs.queued, theirs.received) == (ours.trained, ours.queued, ours.received + extra)


@pytest.mark.parametrize(
    "key",
    [
        "Environment/Cumulative Reward",
        "environment/cumulative_reward ",
        "Environment/Group Cumulative Reward",
        "Environment/Episode Length",
        "Environment/Lesson Number/mass",
        "Policy/Entropy",
        "Losses/Anything",
        "Evaluation/Cumulative Reward",
    ],
)
def test_an_actor_writes_no_curve_of_the_learner(key: str) -> None:
    """A statistic, or a number of an episode, with the name of a curve of the learner's is ignored with one warning."""
    stats = StatsReporter("A", [])
    episode_statistics = EpisodeStatistics(stats, 10)
    episode_statistics.add(make_chunk([2.0]))
    before = {each: mean_of(stats, each) for each in ("Environment/Cumulative Reward", key)}
    with capture_logs() as logs:
        episode_statistics.add(records([key, "Environment/Goals"], *((number, 1.6e8, 0) for number in (0, 0, 1))))
        info = key.removeprefix("Environment/")
        if info != key:
            episode_statistics.add(make_chunk([2.0], **{f"info/{info}": np.array([1.6e8], np.float32)}))
    assert [line["event"] for line in logs] == ["statistic_not_an_actors"]
    assert {each: mean_of(stats, each) for each in before} == before
    assert mean_of(stats, "Environment/Goals") == 1.6e8
