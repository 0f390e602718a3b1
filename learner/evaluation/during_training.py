"""Evaluation while a run trains: now and then some actors play whole episodes that nothing learns from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from learner.checkpoints.store import CheckpointStore
from learner.curriculum.lessons import Lessons
from learner.evaluation.best import CHECKPOINT_SHARE, BestKeeper, Candidate
from learner.evaluation.round import EvaluationRound, players
from learner.ingest.sessions import SessionTable
from learner.link.commands import EndEvaluation, Send, StartEvaluation
from learner.link.evaluation import EvaluationResult, Played
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.stats import Aggregation
from learner.observe.view import Bottleneck
from learner.publish.store import PolicyStore
from learner.settings.service import EvaluationSettings, ServiceSettings
from learner.status.record import RunRecord
from learner.status.run_status import RunStatus
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)


TOLD_AFTER_SECONDS: Final = 60.0
"""One that takes longer is told of, and again each time that it has taken twice as long."""
REST_FACTOR: Final = 9
"""After one that was given up none begins for so many times as long as it took: at most a tenth of the time is lost."""


class StallTimer:
    """The clock of one evaluation.

    Args:
        max_silent_seconds: how long no episode may end.
        clock: monotonic seconds.
    """

    def __init__(self, max_silent_seconds: float, clock: Callable[[], float]) -> None:
        self._max_silent_seconds = max_silent_seconds
        self._clock = clock
        self._began_at = self._heard_at = clock()
        self._told_after = TOLD_AFTER_SECONDS

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return self._clock() - self._began_at

    @property
    def silent_seconds(self) -> float:
        """For how long no episode has ended."""
        return self._clock() - self._heard_at

    @property
    def is_over(self) -> bool:
        """Whether it is to be given up."""
        return self.silent_seconds >= self._max_silent_seconds

    @property
    def rests_until(self) -> float:
        """When the next one may begin if this one is given up now, on the clock."""
        return self._clock() + REST_FACTOR * self.seconds

    def note_episode(self) -> None:
        """An episode has ended."""
        self._heard_at = self._clock()

    def is_to_be_told(self) -> bool:
        """Returns whether it is time to say how long it has taken; true once each time."""
        if self.seconds < self._told_after:
            return False
        while self._told_after <= self.seconds:
            self._told_after *= 2
        return True


LOOK_SECONDS: Final = 1.0
"""So often it is looked which actors train meanwhile: turns may be a thousand a second, and actors a thousand."""


class Evaluator:
    """Makes an evaluation whenever a trainer has come so many steps further; in the trainer thread.

    One evaluation is of all behaviors at once, as an actor resets all of its behaviors at once. What was measured is the
    policy of the moment at which it began; training goes on meanwhile, with the other actors.

    Args:
        settings: how often, how long, by how many.
        sessions: the actors.
        store: keeps the measured versions available.
        best: told of each result.
        send: hands the service a command: what actors are to play.
        metrics: where results are shown.
        on_result: told of each result.
        clock: monotonic seconds.

    Attributes:
        obstacle: says why nobody trains, while all actors evaluate; else empty. May be read from any thread.
    """

    def __init__(
        self,
        settings: EvaluationSettings,
        sessions: SessionTable,
        store: PolicyStore,
        best: BestKeeper,
        send: Send,
        *,
        metrics: LearnerMetrics,
        on_result: Callable[[EvaluationResult], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._stall_timer = StallTimer(settings.max_silent_seconds, clock)
        self._not_before = self._look_at = clock()
        self.obstacle = ""
        self._settings = settings
        self._sessions = sessions
        self._store = store
        self._best = best
        self._metrics = metrics
        self._on_result = on_result
        self._send = send
        self._running: EvaluationRound | None = None
        self._candidates: dict[str, Candidate] = {}
        self._intervals: dict[str, int] = {}
        self._ordered: set[str] = set()

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Takes a finished episode; one that no running evaluation asked for counts nowhere."""
        if self._running is not None and self._running.add((behavior, team), assignment_id, played):
            self._stall_timer.note_episode()

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Begins, goes on with, or ends an evaluation."""
        if self._settings.interval_steps is None:
            return
        if self._running is not None:
            self._go_on(self._running, trainers)
        elif self._clock() >= self._not_before and self._is_due(trainers, self._settings.interval_steps):
            self._begin(trainers)

    def _is_due(self, trainers: Mapping[str, Trainer], interval_steps: int) -> bool:
        """Whether any trainer has passed a multiple of the interval since its last evaluation, or its start."""
        is_due = False
        for name, trainer in trainers.items():
            passed = trainer.get_step // interval_steps
            is_due |= passed > self._intervals.setdefault(name, passed) and trainer.should_still_train
        return is_due

    def _begin(self, trainers: Mapping[str, Trainer]) -> None:
        training = {name: trainer for name, trainer in trainers.items() if trainer.should_still_train}
        free = players(self._sessions, training)[: self._settings.actors]
        if not free:
            return  # nobody is here; it stays due
        for trainer in training.values():
            trainer.publish_present()  # what is kept below is what is measured
        pinned = {name: policy for name in training if (policy := self._store.pin(name)) is not None}
        versions = {name: (each.description.generation, each.description.version) for name, each in pinned.items()}
        found = EvaluationRound(self._settings.episodes, versions, is_deterministic=self._settings.deterministic)
        self._candidates = {name: Candidate.of(training[name]) for name in pinned}
        interval_steps = self._settings.interval_steps or 1
        self._intervals.update({name: trainer.get_step // interval_steps for name, trainer in training.items()})
        self._running, self._stall_timer = found, StallTimer(self._settings.max_silent_seconds, self._clock)
        for order in found.deal(free):
            self._ordered.add(order.session_id)
            self._send(StartEvaluation(order))
        log.debug("evaluation_began", versions=versions, actors=len(free))

    def _go_on(self, running: EvaluationRound, trainers: Mapping[str, Trainer]) -> None:
        over = [name for name in running.versions if name not in trainers or not trainers[name].should_still_train]
        if running.is_done or over:
            self._end(running, trainers)
            return
        if self._stall_timer.is_over:
            self._give_up(running)
            self._end(running, trainers)
            return
        live = {session.session_id for session in self._sessions.live()}
        for session_id in self._ordered - live:
            running.lose(session_id)
        self._ordered &= live
        if running.missing > 0:
            for order in running.deal(players(self._sessions, running.versions)[: self._settings.actors]):
                self._ordered.add(order.session_id)
                self._send(StartEvaluation(order))
        self._tell(running)

    def _give_up(self, running: EvaluationRound) -> None:
        self._not_before = self._stall_timer.rests_until
        log.warning(
            "evaluation_given_up",
            seconds=round(self._stall_timer.seconds),
            silent_seconds=round(self._stall_timer.silent_seconds),
            episodes=f"{running.finished}/{running.episodes}",
            none_for_seconds=round(self._not_before - self._clock()),
            action="look at its actors' logs; if episodes take longer, raise rollcast.evaluation.max_silent_seconds",
        )

    def _tell(self, running: EvaluationRound) -> None:
        """Shows what the evaluation holds up, and says in the log how long it has taken, if it is long."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_SECONDS
        present = {candidate.session_id for candidate in players(self._sessions, running.versions)}
        is_alone = bool(present) and present <= self._ordered
        seconds = round(self._stall_timer.seconds)
        episodes = f"{running.finished}/{running.episodes}"
        self.obstacle = (
            f"nobody trains while every actor plays an evaluation ({episodes} episodes after {seconds} s); an actor "
            "more than rollcast.evaluation.actors would train meanwhile"
            if is_alone
            else ""
        )
        if not self._stall_timer.is_to_be_told():
            return
        told = log.warning if is_alone else log.info
        told(
            "evaluation_goes_on",
            seconds=seconds,
            silent_seconds=round(self._stall_timer.silent_seconds),
            episodes=episodes,
            actors=len(self._ordered),
            training_actors=len(present - self._ordered),
            **{"action": "start more actors, or lower rollcast.evaluation.episodes"} if is_alone else {},
            given_up_after_silent_seconds=self._settings.max_silent_seconds,
        )

    def _end(self, running: EvaluationRound, trainers: Mapping[str, Trainer]) -> None:
        self._running, self.obstacle = None, ""
        for session_id in self._ordered:
            self._send(EndEvaluation(session_id))
        self._ordered.clear()
        for name, (_, version) in running.versions.items():
            self._store.unpin(name)
            played = running.played(name)
            if played and name in trainers:
                self._report(trainers[name], running, version, played)
            else:
                self._metrics.behavior(name).note_empty_evaluation()
        self._candidates = {}

    def _report(self, trainer: Trainer, running: EvaluationRound, version: int, played: list[Played]) -> None:
        name = trainer.brain_name
        candidate = self._candidates[name]
        result = EvaluationResult.of(
            name,
            played,
            step=candidate.step,
            version=version,
            is_deterministic=running.is_deterministic,
            is_complete=running.is_done,
        )
        stats = trainer.stats_reporter
        for episode in played:
            stats.add_stat("Evaluation/Cumulative Reward", episode.total, Aggregation.HISTOGRAM)
            stats.add_stat("Evaluation/Episode Length", episode.length)
        stats.set_stat("Evaluation/Step", candidate.step)
        returns = result.returns
        self._metrics.behavior(name).note_evaluation(
            mean=returns.mean,
            std=returns.std,
            episodes=result.episodes,
            step=candidate.step,
            is_complete=result.is_complete,
        )
        is_best = result.is_complete and self._best.note_evaluation(candidate, returns.mean)
        log.info(
            "evaluation",
            behavior=name,
            step=candidate.step,
            version=version,
            episodes=result.episodes,
            mean_return=round(returns.mean, 3),
            std=round(returns.std, 3),
            mean_length=round(result.lengths.mean, 1),
            best=is_best,
            **{} if result.is_complete else {"cut_short": True},
        )
        self._on_result(result)


class EvaluationManager:
    """Evaluations and best checkpoints of one run; an `EvaluationSink`. In the trainer thread.

    Args:
        service: how often, how long, by how many.
        checkpoints: writes the files.
        sessions: the actors.
        store: the policies.
        send: hands the service a command: what actors are to play.
        lessons: what the environments are set to.
        metrics: where results are shown.
        record: keeps them.
        run_status: shows them to operators.
    """

    def __init__(
        self,
        service: ServiceSettings,
        checkpoints: CheckpointStore,
        sessions: SessionTable,
        store: PolicyStore,
        send: Send,
        *,
        lessons: Lessons,
        metrics: LearnerMetrics,
        record: RunRecord,
        run_status: RunStatus,
    ) -> None:
        self._record = record
        self._run_status = run_status
        self._best = BestKeeper(
            checkpoints,
            lessons,
            evaluates=service.evaluation.interval_steps is not None,
            metrics=metrics,
            on_best=run_status.note_best,
            every_seconds=service.checkpoint_seconds / CHECKPOINT_SHARE,
            on_saved=record.note_saved,
            on_not_saved=record.note_not_saved,
        )
        self._evaluator = Evaluator(
            service.evaluation, sessions, store, self._best, send, metrics=metrics, on_result=self._note
        )

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Takes a finished episode of an evaluation."""
        self._evaluator.add(behavior, team, assignment_id, played)

    def begin(self, trainer: Trainer) -> None:
        """Shows what a run that goes on has kept of a behavior."""
        self._best.begin(trainer)

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Looks whether there is something to measure or to keep."""
        self._evaluator.after_turn(trainers)
        self._best.after_turn(trainers)

    def finish(self, trainers: Mapping[str, Trainer]) -> None:
        """The run ends: what is best now is kept now."""
        self._best.after_turn(trainers, is_last=True)

    def bottleneck(self, found: Bottleneck) -> Bottleneck:
        """Returns a bottleneck as it is to be shown: while all actors evaluate, that is what holds the run up.

        May be called from any thread.
        """
        obstacle = self._evaluator.obstacle
        return replace(found, name="none", text=obstacle) if obstacle else found

    def _note(self, result: EvaluationResult) -> None:
        self._record.note_evaluation(result)
        self._run_status.note_evaluation(result.behavior, result.returns.mean)
