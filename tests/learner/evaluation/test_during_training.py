"""Evaluation during a run: when it begins, with whom, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollcast.policies import PolicyDescription
from structlog.testing import capture_logs
from torch import Tensor

from learner.checkpoints.choice import load_chosen
from learner.checkpoints.store import CheckpointStore
from learner.curriculum.lessons import no_lessons
from learner.evaluation.best import BestKeeper
from learner.evaluation.during_training import Evaluator
from learner.ingest.sessions import Opening, SessionTable
from learner.link.commands import Command, EndEvaluation, StartEvaluation
from learner.link.evaluation import EvaluationResult, Order, Played
from learner.link.policies import StoredPolicy
from learner.observe.metrics.learner import LearnerMetrics
from learner.publish.describe import Progress, describe
from learner.publish.publisher import PolicyPublisher
from learner.publish.store import PolicyStore
from learner.settings.service import EvaluationSettings
from learner.trainers import replay
from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.ingest.parts import NAME
from tests.learner.service.samples import make_policy
from tests.learner.starts import Start, opened
from tests.learner.trainers.sac.started import feed, make
from tests.learner.trainers.synthetic import SyntheticActor


class FakeService:
    """Numbers orders as the service does, and keeps them."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.released: list[str] = []

    def send(self, command: Command) -> None:
        """Takes a command as the service does."""
        match command:
            case StartEvaluation(order):
                self.orders.append(order)
                order.assignment_id = len(self.orders)
            case EndEvaluation(session_id):
                self.released.append(session_id)


class Stage:
    """A trainer with two actors, and an evaluator beside it."""

    def __init__(self, start: Start, **settings: Any) -> None:
        self.start = start
        self.now = 0.0
        self.sessions = [start.parts.open(name).session for name in ("a", "b")]
        for session in self.sessions:
            start.parts.declared(session)
            session.is_connected = True
        self.trainer: PPOTrainer = start.trainer()
        self.store = PolicyStore()
        self.service = FakeService()
        self.results: list[EvaluationResult] = []
        self.saved: list[int] = []
        best = BestKeeper(
            start.store,
            no_lessons(),
            evaluates=True,
            metrics=start.metrics,
            on_best=start.run_status.note_best,
            every_seconds=1.0,
            on_saved=lambda _name, step, _path: self.saved.append(step),
            on_not_saved=self.fail,
        )
        self.evaluator = Evaluator(
            EvaluationSettings(interval_steps=450, episodes=4, **settings),
            start.parts.sessions,
            self.store,
            best,
            self.service.send,
            metrics=start.metrics,
            on_result=self.results.append,
            clock=lambda: self.now,
        )
        self.turn()

    @staticmethod
    def fail(reason: str) -> None:
        """Nothing fails here."""
        raise AssertionError(reason)

    def turn(self, updates: int = 0) -> None:
        """Trains, publishes, and lets the evaluator look."""
        if updates:
            self.start.train(self.trainer, updates)
        description: PolicyDescription = replace(make_policy(0).description, version=self.trainer.version)
        held = self.store.latest(NAME)
        if held is None or held.description.version < self.trainer.version:
            self.store.publish(StoredPolicy(description, b""))
        self.evaluator.after_turn({NAME: self.trainer})

    def play(self, order: Order, value: float, episodes: int | None = None) -> None:
        """An actor reports."""
        for _ in range(order.episodes if episodes is None else episodes):
            self.evaluator.add(NAME, 0, order.assignment_id, Played(value, 10))


@contextmanager
def staged(tmp_path: Path, **settings: Any) -> Iterator[Stage]:
    """A stage in a run folder."""
    with opened(tmp_path) as folder, capture_logs():
        yield Stage(Start(folder, 1), **settings)


def test_it_begins_when_a_multiple_of_the_interval_is_passed(tmp_path: Path) -> None:
    """Not before; one actor plays, the other trains on; the result is of the version and step of the beginning."""
    with staged(tmp_path) as stage:
        stage.turn(1)
        assert (stage.trainer.get_step < 450, stage.service.orders) == (True, [])
        stage.turn(1)
        (order,) = stage.service.orders
        assert (order.session_id, order.episodes) == (stage.sessions[0].session_id, 4)
        assert order.versions == {NAME: (1, 2)}
        step = stage.trainer.get_step
        stage.turn(1)
        stage.play(order, 7.0)
        stage.turn()
        assert stage.service.released == [order.session_id]
        (result,) = stage.results
        assert (result.step, result.version, result.episodes, result.returns.mean) == (step, 2, 4, 7.0)
        assert result.is_complete
        assert stage.saved == [step]
        assert stage.trainer.stats_reporter.value("Evaluation/Cumulative Reward") == 7.0
        assert stage.trainer.stats_reporter.value("Evaluation/Step") == step


def test_several_actors_share_it(tmp_path: Path) -> None:
    """Equal shares; it is over when both have played theirs."""
    with staged(tmp_path, actors=2) as stage:
        stage.turn(2)
        first, second = stage.service.orders
        assert (first.episodes, second.episodes) == (2, 2)
        stage.play(first, 1.0, 4)  # more than its share: fast
        stage.turn()
        assert not stage.results
        stage.play(second, 3.0)
        stage.turn()
        assert [result.returns.mean for result in stage.results] == [2.0]


def test_the_share_of_a_lost_actor_is_played_by_another(tmp_path: Path) -> None:
    """The evaluation is complete all the same, and nobody who has gone is let go."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        (order,) = stage.service.orders
        stage.play(order, 1.0, 1)
        stage.start.parts.sessions.close(stage.sessions[0], ())
        stage.turn()
        again = stage.service.orders[1]
        assert (again.session_id, again.episodes) == (stage.sessions[1].session_id, 3)
        stage.play(again, 5.0)
        stage.turn()
        assert [result.episodes for result in stage.results] == [4]
        assert stage.service.released == [again.session_id]


def test_without_an_actor_it_stays_due(tmp_path: Path) -> None:
    """It begins as soon as one is there."""
    with staged(tmp_path) as stage:
        for session in stage.sessions:
            session.is_connected = False
        stage.turn(2)
        assert not stage.service.orders
        stage.sessions[1].is_connected = True
        stage.turn()
        assert [order.session_id for order in stage.service.orders] == [stage.sessions[1].session_id]


def test_the_end_of_training_cuts_it_short(tmp_path: Path) -> None:
    """What was played is reported as incomplete, becomes no best checkpoint, and the actor is let go."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        (order,) = stage.service.orders
        stage.play(order, 9.0, 1)
        stage.evaluator.after_turn({})
        assert (stage.results, stage.saved, stage.service.released) == ([], [], [order.session_id])


def test_actors_that_never_answer_are_let_go(tmp_path: Path) -> None:
    """After ten minutes without an episode it is given up, in words; what was played is reported as incomplete."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        (order,) = stage.service.orders
        stage.now = 500.0
        stage.play(order, 2.0, 1)
        stage.now = 1000.0
        stage.turn()
        assert not stage.results
        stage.now = 1100.0
        with capture_logs() as logs:
            stage.turn()
        assert [(result.episodes, result.is_complete) for result in stage.results] == [(1, False)]
        assert (stage.saved, stage.service.released) == ([], [order.session_id])
        (told,) = [line for line in logs if line["event"] == "evaluation_given_up"]
        assert (told["log_level"], told["seconds"], told["episodes"]) == ("warning", 1100, "1/4")
        assert "rollcast.evaluation.max_silent_seconds" in told["action"]


def test_the_silence_is_a_setting_and_training_has_most_of_the_time(tmp_path: Path) -> None:
    """After one that was given up, none begins for nine times as long as it took, though it is due."""
    with staged(tmp_path, max_silent_seconds=20) as stage:
        stage.turn(2)
        stage.now = 20.0
        stage.turn()
        assert stage.service.released == [stage.sessions[0].session_id]
        stage.now = 199.0
        stage.turn(2)
        assert len(stage.service.orders) == 1
        stage.now = 200.0
        stage.turn()
        assert len(stage.service.orders) == 2


def test_one_that_takes_long_is_told_of(tmp_path: Path) -> None:
    """After a minute, two, four and so on; a warning, and a bottleneck for operators, while no actor is left to train."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        with capture_logs() as logs:
            for stage.now in (59.0, 60.0, 61.0, 119.0, 120.0):
                stage.turn()
            assert not stage.evaluator.obstacle
            stage.sessions[1].is_connected = False
            stage.play(stage.service.orders[0], 1.0, 3)
            stage.now = 240.0
            stage.turn()
        told = [line for line in logs if line["event"] == "evaluation_goes_on"]
        assert [(line["seconds"], line["log_level"]) for line in told] == [
            (60, "info"),
            (120, "info"),
            (240, "warning"),
        ]
        assert (told[-1]["episodes"], told[-1]["silent_seconds"], told[-1]["training_actors"]) == ("3/4", 120, 0)
        assert stage.evaluator.obstacle.startswith("nobody trains while every actor plays an evaluation (3/4 episodes")
        stage.play(stage.service.orders[0], 1.0, 1)
        stage.turn()
        assert not stage.evaluator.obstacle


def test_the_measured_version_stays_available_until_the_end(tmp_path: Path) -> None:
    """However many versions are published meanwhile."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        (order,) = stage.service.orders
        for version in range(3, 13):
            stage.store.publish(make_policy(version))
        assert stage.store.get(NAME, 1, 2).description.version == 2
        stage.play(order, 0.0)
        stage.turn()
        assert stage.results


def test_episodes_that_nobody_asked_for_count_nowhere(tmp_path: Path) -> None:
    """Late ones of the evaluation before, and strange ones."""
    with staged(tmp_path) as stage:
        stage.evaluator.add(NAME, 0, 0, Played(1.0, 1))
        stage.turn(2)
        stage.evaluator.add(NAME, 0, 77, Played(1.0, 1))
        stage.evaluator.add(NAME, 5, 1, Played(1.0, 1))
        stage.turn()
        assert not stage.results


def test_the_kept_policy_is_the_measured_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a trainer that makes many versions and broadcasts few: its newest is broadcast, measured and kept."""
    monkeypatch.setattr(replay, "PUBLISH_SECONDS", 1e9)
    with opened(tmp_path) as folder, capture_logs():
        bench, trainer = make()
        name, store, checkpoints = trainer.brain_name, PolicyStore(), CheckpointStore(folder)
        publisher, keep = (
            PolicyPublisher(trainer.policy, store, describe(trainer.policy, behavior_index=0, generation=1)),
            bench.published.publish,
        )
        publisher.publish(trainer.policy.state_dict(), bench.published.progress[-1])

        def publish(state: Mapping[str, Tensor], progress: Progress) -> None:
            keep(state, progress)
            publisher.publish(state, progress)

        monkeypatch.setattr(bench.published, "publish", publish)
        sessions = SessionTable(bench.table, bench.ledger, generation=1)
        session = sessions.open(Opening("a", "its instance", None)).session
        sessions.declare(session, bench.behavior, 0, 1)
        session.is_connected = True
        best = BestKeeper(
            checkpoints,
            no_lessons(),
            evaluates=True,
            metrics=LearnerMetrics(),
            on_best=lambda *_: None,
            every_seconds=1.0,
            on_saved=lambda *_: None,
            on_not_saved=Stage.fail,
        )
        settings = EvaluationSettings(interval_steps=40, episodes=1)
        service, actor = FakeService(), SyntheticActor(bench)
        metrics = LearnerMetrics()
        evaluator = Evaluator(settings, sessions, store, best, service.send, metrics=metrics, on_result=lambda _: None)
        evaluator.after_turn({name: trainer})
        feed(bench, actor, trainer, 3)
        assert trainer.version == 30 > bench.published.progress[-1].version
        evaluator.after_turn({name: trainer})
        (order,) = service.orders
        measured = bench.published.state
        feed(bench, actor, trainer)
        evaluator.add(name, 0, order.assignment_id, Played(1.0, 10))
        evaluator.after_turn({name: trainer})
        kept = load_chosen(folder.path, name, "best", checkpoints.status)
    assert order.versions == {name: (1, 30)} == {name: (1, kept.state["version"])}
    networks = kept.state["model"]["networks"]
    assert all(torch.equal(value, networks[f"policy.{key}"]) for key, value in measured.items())
