"""Evaluation and demonstrations beside training: weights, normalizer, statistics, metrics, lessons, books stay bit-equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk

from learner.curriculum.lessons import Lessons
from learner.link.evaluation import Played
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.stats import StatsReporter, StatSummary
from learner.trainers.appo.trainer import APPOTrainer
from learner.trainers.ppo.trainer import PPOTrainer
from learner.trainers.rl import RLTrainer
from learner.trainers.sac.trainer import SACTrainer
from tests.learner.curriculum.curricula import curriculum, parameters
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.synthetic import CONTINUOUS, SyntheticActor

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
