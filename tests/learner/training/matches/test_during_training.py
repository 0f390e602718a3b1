"""Tests evaluations during training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rollcast.errors import VersionEvicted
from structlog.testing import capture_logs

from learner.link.matches import Match
from learner.link.to_front import EndEvaluation, Policy, Release, StartMatch, ToFront
from learner.service.policies.store import PolicyStore
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.service import EvaluationSettings, ServiceSettings
from learner.training.curriculum.lessons import no_lessons
from learner.training.matches.during_training import EvaluationManager
from learner.training.matches.game_records import GameRecords
from learner.training.matches.opponents import EvaluationOpponents
from learner.training.matches.result import EvaluationResult
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.roster import Roster
from tests.learner.service.calls.samples import make_policy
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import Start, opened
from tests.learner.training.matches.games import evaluated as evaluated_episodes


class FakeService:
    """Keeps policies as the service does, and notes what actors are to play."""

    def __init__(self) -> None:
        self.store = PolicyStore()
        self.orders: list[Match] = []
        self.released: list[str] = []

    def send(self, message: ToFront) -> None:
        """Takes a message as the service does."""
        match message:
            case Policy(stored, keep):
                self.store.publish(stored, keep=keep)
            case Release(behavior):
                self.store.release(behavior)
            case StartMatch(order):
                self.orders.append(order)
            case EndEvaluation(session_id):
                self.released.append(session_id)


class Stage:
    """A trainer with two actors, or one of each of some principals, and an evaluator."""

    def __init__(self, start: Start, principals: tuple[str, ...] = ("", ""), **settings: Any) -> None:
        self.start = start
        self.now = 0.0
        self.principals = principals
        self.sessions = [start.parts.open(name).session for name in "abcdef"[: len(principals)]]
        for session in self.sessions:
            start.parts.declared(session)
            session.is_connected = True
        self.service = FakeService()
        start.published.send = self.service.send
        self.trainer: PPOTrainer = start.trainer()
        self.roster = Roster()
        self.results: list[EvaluationResult] = []
        self.least_means: list[float] = []
        self.saved: list[int] = []
        self.lessons = lessons = no_lessons()
        lessons.add_evaluation = lambda _, mean: self.least_means.append(mean)  # type: ignore[method-assign,assignment]
        evaluation = EvaluationSettings(interval_steps=450, **{"episodes": 4, **settings})
        files = SnapshotFiles(start.store.folder.path)
        self.evaluator = EvaluationManager(
            ServiceSettings(evaluation=evaluation),
            start.store,
            self.roster,
            self.service.send,
            EvaluationOpponents(evaluation, start.store.folder.path, files, GameRecords(None, start.meters)),
            generation=1,
            lessons=lessons,
            meters=start.meters,
            on_result=self.results.append,
            on_saved=lambda _name, step, _path: self.saved.append(step),
            on_not_saved=self.fail,
            clock=lambda: self.now,
        )
        self.turn()

    @staticmethod
    def fail(reason: str) -> None:
        """Fails the test."""
        raise AssertionError(reason)

    def turn(self, updates: int = 0) -> None:
        """Trains, and lets the evaluator look at who is here."""
        if updates:
            self.start.train(self.trainer, updates)
        found = self.start.parts.sessions.actors()
        actors = tuple(replace(actor, principal=self.principals[actor.actor_index]) for actor in found.actors)
        self.roster.newest = replace(found, actors=actors)
        self.evaluator.after_turn({NAME: self.trainer})

    def play(self, order: Match, value: float, episodes: int | None = None, team: int = 0) -> None:
        """Reports episodes of an actor."""
        returns = [value] * (order.episodes if episodes is None else episodes)
        self.evaluator.received(NAME, evaluated_episodes(order, *returns, behavior_id=(NAME, team), length=10))


@contextmanager
def staged(tmp_path: Path, **settings: Any) -> Iterator[Stage]:
    """Makes a stage in a run folder."""
    with opened(tmp_path) as folder, capture_logs():
        yield Stage(Start(folder, 1), **settings)


def test_it_begins_when_a_multiple_of_the_interval_is_passed(tmp_path: Path) -> None:
    """An evaluation starts after each interval with one actor, of the version at its start."""
    with staged(tmp_path) as stage:
        stage.turn(1)
        assert (stage.trainer.get_step < 450, stage.service.orders) == (True, [])
        shown, present = list[bool](), stage.trainer.publish_present

        def publish(*, keep: bool = False) -> None:
            shown.append(keep)
            present(keep=keep)

        stage.trainer.publish_present = publish  # type: ignore[method-assign]
        stage.turn(1)
        assert shown == [True]  # trainers with replay memory do not broadcast each version
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
    """Several actors have equal shares, and the evaluation ends with the last one."""
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
    """Another actor plays the share of a lost one."""
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
    """A due evaluation starts once there is an actor."""
    with staged(tmp_path) as stage:
        for session in stage.sessions:
            session.is_connected = False
        stage.turn(2)
        assert not stage.service.orders
        stage.sessions[1].is_connected = True
        stage.turn()
        assert [order.session_id for order in stage.service.orders] == [stage.sessions[1].session_id]


def test_the_end_of_training_cuts_it_short(tmp_path: Path) -> None:
    """The end of training reports an incomplete evaluation, which is never the best."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        (order,) = stage.service.orders
        stage.play(order, 9.0, 1)
        stage.evaluator.after_turn({})
        assert (stage.results, stage.saved, stage.service.released) == ([], [], [order.session_id])


def test_actors_that_never_answer_are_let_go(tmp_path: Path) -> None:
    """After ten minutes without an episode the evaluation is given up as incomplete."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        (order,) = stage.service.orders
        stage.now = 500.0
        stage.play(order, 2.0, 1)
        stage.now = 1000.0
        stage.turn()
        assert not stage.results
        stage.now = 1100.0
        stage.turn()
        assert [(result.episodes, result.is_complete) for result in stage.results] == [(1, False)]
        assert (stage.saved, stage.service.released) == ([], [order.session_id])


def test_the_silence_is_a_setting_and_training_has_most_of_the_time(tmp_path: Path) -> None:
    """After a given-up evaluation the next one waits nine times as long as it took."""
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
    """A long evaluation is reported after a minute, two, four and so on, also as a bottleneck."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        with capture_logs() as logs:
            for stage.now in (59.0, 60.0, 61.0, 119.0, 120.0):
                stage.turn()
            assert not stage.evaluator.obstacle
            stage.sessions[1].is_connected = False
            stage.now = 240.0
            stage.turn()
        told = [line["seconds"] for line in logs if line["event"] == "evaluation_goes_on"]
        assert told == [60, 120, 240]
        assert stage.evaluator.obstacle.startswith("training waits while every actor plays an evaluation (0/4 episodes")
        stage.play(stage.service.orders[0], 1.0)
        stage.turn()
        assert not stage.evaluator.obstacle


def test_the_measured_version_stays_available_until_the_end(tmp_path: Path) -> None:
    """The evaluated version stays available until the end."""
    with staged(tmp_path) as stage:
        stage.turn(2)
        (order,) = stage.service.orders
        store = stage.service.store
        for version in range(3, 13):
            store.publish(make_policy(version))
        assert store.get(NAME, 1, 2).description.version == 2
        stage.play(order, 0.0)
        stage.turn()
        assert stage.results
        with pytest.raises(VersionEvicted):
            store.get(NAME, 1, 2)


def test_episodes_that_nobody_asked_for_count_nowhere(tmp_path: Path) -> None:
    """Late episodes of an earlier evaluation and unrequested ones do not count."""
    with staged(tmp_path) as stage:
        stage.play(Match(0, stage.sessions[0].session_id), 1.0, 1)
        stage.turn(2)
        (order,) = stage.service.orders
        stage.play(replace(order, number=77), 1.0, 1)
        stage.play(order, 1.0, 1, team=5)
        stage.play(replace(order, session_id=stage.sessions[1].session_id), 1.0, 1)
        stage.turn()
        assert not stage.results


def best_of(stage: Stage) -> tuple[float | None, int]:
    """Returns the return of the best checkpoint, and how many principals measured it."""
    best = stage.start.store.status.best(NAME)
    return (None, 0) if best is None else (best.entry.reward, best.principals)


def evaluated(stage: Stage, **values: float) -> dict[str, Any]:
    """Plays an evaluation in which the actors of each principal report a value; returns the line of the log."""
    done = len(stage.service.orders)
    with capture_logs() as lines:
        while not any(line["event"] == "evaluation" for line in lines):
            stage.turn(0 if stage.evaluator.is_running else 1)
            for order in stage.service.orders[done:]:
                place = next(each.actor_index for each in stage.sessions if each.session_id == order.session_id)
                stage.play(order, values[stage.principals[place]])
            done = len(stage.service.orders)
    return next(dict(line) for line in lines if line["event"] == "evaluation")


@pytest.mark.parametrize(
    "principals",
    [("bad", "good"), ("good", "bad"), ("bad", "bad", "bad", "good"), ("bad", "good", "good")],
    ids="-".join,
)
@pytest.mark.parametrize("settings", [{}, {"actors": 3}, {"episodes": 1}], ids=["default", "three", "one episode"])
@pytest.mark.parametrize("lie", [500_000.0, 3.4e38])
def test_no_principal_measures_the_best_policy_alone(
    tmp_path: Path, principals: tuple[str, ...], settings: dict[str, int], lie: float
) -> None:
    """With several principals two of them play, and the smaller of their means decides, for lessons too."""
    with staged(tmp_path, principals=principals, **settings) as stage:
        for _ in range(3):
            line = evaluated(stage, bad=lie, good=7.0)
            assert line["measured_by"] == "bad, good"
        assert best_of(stage) == (7.0, 2)
        assert max(stage.least_means) == 7.0


def test_who_leaves_does_not_leave_the_evaluation_to_one_principal(tmp_path: Path) -> None:
    """The share of a lost actor is played by another principal, or the result decides nothing while one is present."""
    with staged(tmp_path, principals=("bad", "bad", "good", "late")) as stage:
        stage.sessions[3].is_connected = False
        stage.turn(2)
        orders = {order.session_id: order for order in stage.service.orders}
        assert set(orders) == {stage.sessions[0].session_id, stage.sessions[2].session_id}
        stage.play(orders[stage.sessions[0].session_id], 1e6)
        stage.start.parts.sessions.close(stage.sessions[2], ())
        stage.sessions[3].is_connected = True
        stage.turn()
        again = stage.service.orders[-1]
        assert again.session_id == stage.sessions[3].session_id
        stage.start.parts.sessions.close(stage.sessions[3], ())
        stage.turn()
        last = stage.service.orders[-1]
        assert last.session_id in {stage.sessions[0].session_id, stage.sessions[1].session_id}
        stage.play(last, 1e6)
        returned = stage.start.parts.open("f").session
        stage.start.parts.declared(returned)
        returned.is_connected = True
        stage.principals = (*stage.principals, "good")
        with capture_logs() as lines:
            stage.turn()
        (line,) = [line for line in lines if line["event"] == "evaluation"]
        assert (line["best"], line["unconfirmed"]) == (False, "no actor of another principal played")
        assert best_of(stage) == (None, 0)
        assert stage.least_means == [float("-inf")]


def test_the_word_of_one_principal_lasts_until_several_measure(tmp_path: Path) -> None:
    """One principal alone decides, which the log says; it then neither keeps nor replaces what several measured."""
    with staged(tmp_path, principals=("bad", "good")) as stage:
        stage.sessions[1].is_connected = False
        assert evaluated(stage, bad=500_000.0)["measured_by"] == "bad"
        assert best_of(stage) == (500_000.0, 1)
        stage.sessions[1].is_connected = True
        assert evaluated(stage, bad=500_000.0, good=7.0)["best"]
        assert best_of(stage) == (7.0, 2)
        stage.sessions[1].is_connected = False
        assert not evaluated(stage, bad=500_000.0)["best"]
        assert best_of(stage) == (7.0, 2)


def test_principals_take_turns(tmp_path: Path) -> None:
    """Of three principals each misses some evaluations, so one that reports too little does not spoil all of them."""
    with staged(tmp_path, principals=("bad", "good", "honest")) as stage:
        pairs = {evaluated(stage, bad=-1e9, good=7.0, honest=8.0)["measured_by"] for _ in range(6)}
        assert pairs == {"bad, good", "good, honest", "bad, honest"}
        assert best_of(stage) == (7.0, 2)


def test_actors_of_one_principal_keep_their_number(tmp_path: Path) -> None:
    """With one principal `actors` play as before, and the log names whose word it is."""
    with staged(tmp_path, principals=("lab", "lab")) as stage:
        assert evaluated(stage, lab=3.0)["measured_by"] == "lab"
        assert len(stage.service.orders) == 1
        assert best_of(stage) == (3.0, 1)
