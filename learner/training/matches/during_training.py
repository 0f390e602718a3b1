"""Evaluation during training: at intervals some actors play whole episodes that are not trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import structlog

from learner.link.evaluation import EvaluationSink, Played
from learner.link.to_front import EndEvaluation, Release, Send, StartEvaluation
from learner.link.to_trainers import Experience
from learner.shared.exits import UserError
from learner.shared.leave_one_out import Source
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import Aggregation
from learner.shared.runfolder.store import CheckpointStore
from learner.shared.settings.service import EvaluationSettings, ServiceSettings
from learner.training.curriculum.lessons import Lessons
from learner.training.matches.best import CHECKPOINT_SHARE, BestKeeper, Candidate
from learner.training.matches.games import GamesRound
from learner.training.matches.opponents import EvaluationOpponents, numbers_of, report_games
from learner.training.matches.result import EvaluationResult
from learner.training.matches.round import Candidate as Player
from learner.training.matches.round import EvaluationRound, evaluators, players
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import Ending, RunPart, Trainers
from learner.training.trainers.roster import Roster

log = structlog.get_logger(__name__)


TOLD_AFTER_SECONDS: Final = 60.0
"""Seconds after which a long evaluation is logged, and again each time its duration has doubled."""
REST_FACTOR: Final = 9
"""Multiple of an abandoned evaluation's duration that passes before the next one: at most a tenth of the time is lost.
"""


class StallTimer:
    """Measures the duration of one evaluation.

    Args:
        max_silent_seconds: Longest time without a finished episode.
        clock: Returns monotonic seconds.
    """

    def __init__(self, max_silent_seconds: float, clock: Callable[[], float]) -> None:
        self._max_silent_seconds = max_silent_seconds
        self._clock = clock
        self._began_at = self._heard_at = clock()
        self._told_after = TOLD_AFTER_SECONDS

    @property
    def seconds(self) -> float:
        """Seconds since the evaluation began."""
        return self._clock() - self._began_at

    @property
    def silent_seconds(self) -> float:
        """Seconds since an episode last ended."""
        return self._clock() - self._heard_at

    @property
    def is_over(self) -> bool:
        """Returns whether the evaluation must be abandoned."""
        return self.silent_seconds >= self._max_silent_seconds

    @property
    def rests_until(self) -> float:
        """Time on the clock at which the next evaluation may begin if this one is abandoned now."""
        return self._clock() + REST_FACTOR * self.seconds

    def note_episode(self) -> None:
        """Notes a finished episode."""
        self._heard_at = self._clock()

    def is_to_be_told(self) -> bool:
        """Returns whether the duration must be logged now; true once for each threshold."""
        if self.seconds < self._told_after:
            return False
        while self._told_after <= self.seconds:
            self._told_after *= 2
        return True


RETRY_SECONDS: Final = 60.0
"""Seconds after which an evaluation is tried again whose opponents could not be written, as on a full disk."""
LOOK_SECONDS: Final = 1.0
"""Seconds between checks of which actors are training; a check at every turn would be slow with many actors."""


class Evaluator:
    """Starts an evaluation at regular intervals of trainer steps; used in the trainers' thread.

    One evaluation covers all behaviors, because an actor resets all of its behaviors at once. It measures the policies
    from the moment at which it began; training continues with the other actors.

    Args:
        settings: Interval, episodes and actors of evaluations.
        roster: The connected actors.
        best: Receives each result.
        send: Sends the service the orders for actors, and the versions that are no longer measured.
        meters: Counts evaluations.
        on_result: Called with each result and its least mean return (`EvaluationRound.least_mean_return`).
        opponents: Opponents of the policies; None for evaluations without opponents.
        clock: Returns monotonic seconds.

    Attributes:
        obstacle: The reason why no actor trains while all evaluate; otherwise empty.
    """

    def __init__(
        self,
        settings: EvaluationSettings,
        roster: Roster,
        best: BestKeeper,
        send: Send,
        *,
        meters: RunMeters,
        on_result: Callable[[EvaluationResult, float], object],
        opponents: EvaluationOpponents | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._stall_timer = StallTimer(settings.max_silent_seconds, clock)
        self._not_before = self._look_at = clock()
        self.obstacle = ""
        self._settings = settings
        self._roster = roster
        self._best = best
        self._meters = meters
        self._on_result = on_result
        self._send = send
        self._opponents = opponents
        self._running: EvaluationRound | GamesRound | None = None
        self._candidates: dict[str, Candidate] = {}
        self._intervals: dict[str, int] = {}
        self._ordered: set[str] = set()
        self._orders = count(1)
        self._measured: dict[int, str] = {}
        self._is_requested = False
        self._turn = 0

    @property
    def is_running(self) -> bool:
        """True while an evaluation runs."""
        return self._running is not None

    def add(self, behavior: str, team: int, order: int, played: Played) -> None:
        """Takes a finished episode; ignores one that no running evaluation ordered."""
        running = self._running
        if isinstance(running, EvaluationRound) and running.add((behavior, team), order, played):
            self._stall_timer.note_episode()

    def received(self, behavior: str, item: Experience) -> None:
        """Counts the games of a chunk; ignores those that no running evaluation ordered."""
        running = self._running
        if isinstance(running, GamesRound) and running.received(behavior, item):
            self._stall_timer.note_episode()

    def after_turn(self, trainers: Trainers) -> None:
        """Begins, continues or ends an evaluation."""
        if self._running is not None:
            self._go_on(self._running, trainers)
        elif self._clock() >= self._not_before and (self._is_requested or self._is_due(trainers)):
            self._begin(trainers)

    def request(self) -> None:
        """Requests an evaluation, regardless of the interval; callable from any thread."""
        self._is_requested = True

    def _is_due(self, trainers: Trainers) -> bool:
        """Returns whether any trainer has passed a multiple of the interval since its start or last evaluation."""
        interval_steps, is_due = self._settings.interval_steps, False
        if interval_steps is None:
            return False
        for name, trainer in trainers.items():
            passed = trainer.get_step // interval_steps
            is_due |= passed > self._intervals.setdefault(name, passed) and trainer.should_still_train
        return is_due

    def _begin(self, trainers: Trainers) -> None:
        training = {name: trainer for name, trainer in trainers.items() if trainer.should_still_train}
        self._measured = {trainer.context.behavior.index: name for name, trainer in training.items()}
        self._turn = sum(self._intervals.values())  # the same in a repeated or continued run
        opponents, free = self._met(), self._players()
        if not free:  # the evaluation stays due
            if opponents is not None and any(actor.is_connected and actor.teams for actor in self._roster.actors):
                opponents.warn()
            return
        try:
            if opponents is not None:
                opponents.prepare(trainers)
        except UserError as error:
            self._not_before = self._clock() + RETRY_SECONDS
            log.error("evaluation_put_off", reason=error.message, seconds=RETRY_SECONDS)
            return
        self._is_requested = False
        for trainer in training.values():
            trainer.publish_present(keep=True)  # makes the candidate below the measured policy
        found = self._round(training)
        self._candidates = {name: Candidate.of(trainer) for name, trainer in training.items()}
        interval_steps = self._settings.interval_steps or 1
        self._intervals.update({name: trainer.get_step // interval_steps for name, trainer in training.items()})
        self._running, self._stall_timer = found, StallTimer(self._settings.max_silent_seconds, self._clock)
        for order in found.deal(free):
            self._ordered.add(order.session_id)
            self._send(StartEvaluation(order))
        log.debug("evaluation_began", versions=found.versions, actors=len(free))

    def _met(self) -> EvaluationOpponents | None:
        """Returns the opponents of the measured policies; None without any."""
        opponents = self._opponents
        return opponents if opponents is not None and opponents.plays(self._measured.values()) else None

    def _present(self) -> list[Player]:
        """Returns the actors that could play."""
        actors, opponents = self._roster.actors, self._met()
        if opponents is not None:
            actors = opponents.fitting(actors)
        return players(actors, self._measured)

    def _players(self, running: EvaluationRound | GamesRound | None = None) -> list[Player]:
        """Returns the actors that play."""
        with_share = frozenset[str]() if running is None else running.principals
        return evaluators(self._present(), self._settings.actors, turn=self._turn, with_share=with_share)

    def _others(self, running: EvaluationRound | GamesRound, behavior: str) -> set[Source]:
        """Returns the present actors of principals that did not measure a behavior, without whose word no other decides."""
        said_by = running.played_by(behavior)
        present = {each.source for each in self._present() if any(name == behavior for name, _ in each.behavior_ids)}
        return {source for source in present if source.principal not in said_by}

    def _round(self, training: Trainers) -> EvaluationRound | GamesRound:
        if (opponents := self._met()) is not None:
            return opponents.begin(training, self._orders, is_deterministic=self._settings.deterministic)
        return EvaluationRound(
            max(self._settings.episodes, len({each.source.principal for each in self._players()})),
            {name: (trainer.published.generation, trainer.published.version) for name, trainer in training.items()},
            is_deterministic=self._settings.deterministic,
            numbers=self._orders,
        )

    def _go_on(self, running: EvaluationRound | GamesRound, trainers: Trainers) -> None:
        over = [name for name in running.versions if name not in trainers or not trainers[name].should_still_train]
        if running.is_done or over:
            self._end(running, trainers)
            return
        if self._stall_timer.is_over:
            self._give_up(running)
            self._end(running, trainers)
            return
        live = self._roster.session_ids
        for session_id in self._ordered - live:
            running.lose(session_id)
        self._ordered &= live
        if running.missing > 0:
            for order in running.deal(self._players(running)):
                self._ordered.add(order.session_id)
                self._send(StartEvaluation(order))
        self._tell(running)

    def _give_up(self, running: EvaluationRound | GamesRound) -> None:
        self._not_before = self._stall_timer.rests_until
        log.warning(
            "evaluation_given_up",
            seconds=round(self._stall_timer.seconds),
            silent_seconds=round(self._stall_timer.silent_seconds),
            episodes=f"{running.finished}/{running.episodes}",
            none_for_seconds=round(self._not_before - self._clock()),
            action="check the logs of its actors; if episodes take longer, raise rollcast.evaluation.max_silent_seconds",
        )

    def _tell(self, running: EvaluationRound | GamesRound) -> None:
        """Shows whether training waits for the evaluation, and logs its duration if it is long."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_SECONDS
        present = {candidate.session_id for candidate in players(self._roster.actors, self._measured)}
        is_alone = bool(present) and present <= self._ordered
        seconds = round(self._stall_timer.seconds)
        episodes = f"{running.finished}/{running.episodes}"
        self.obstacle = (
            f"training waits while every actor plays an evaluation ({episodes} episodes after {seconds} s); with more "
            "actors than rollcast.evaluation.actors, the others continue to train"
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

    def _end(self, running: EvaluationRound | GamesRound, trainers: Trainers) -> None:
        self._running, self.obstacle = None, ""
        for session_id in self._ordered:
            self._send(EndEvaluation(session_id))
        self._ordered.clear()
        for name, (_, version) in running.versions.items():
            self._send(Release(name))
            played = running.played(name)
            if played and name in trainers:
                self._report(trainers[name], running, version, played)
            else:
                self._meters.behavior(name).note_empty_evaluation()
        self._candidates = {}

    def _report(
        self, trainer: Trainer, running: EvaluationRound | GamesRound, version: int, played: list[Played]
    ) -> None:
        name = trainer.brain_name
        candidate = self._candidates[name]
        result = EvaluationResult.of(
            name,
            played,
            step=candidate.step,
            version=version,
            is_deterministic=running.is_deterministic,
            is_complete=running.is_done,
            principals=tuple(sorted(running.played_by(name) - {""})),
        )
        stats = trainer.stats_reporter
        if isinstance(running, GamesRound) and self._opponents is not None:
            result = self._opponents.rated(result, running)
            report_games(result, stats)
        for episode in played:
            stats.add_stat("Evaluation/Cumulative Reward", episode.total, Aggregation.HISTOGRAM)
            stats.add_stat("Evaluation/Episode Length", episode.length)
        stats.set_stat("Evaluation/Step", candidate.step)
        returns = result.returns
        least_mean = min(returns.mean, running.least_mean_return(name, self._others(running, name)))
        self._meters.behavior(name).note_evaluation(result.episodes, is_complete=result.is_complete)
        is_best = result.is_complete and self._best.note_evaluation(candidate, least_mean, result.principals)
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
            **{"measured_by": ", ".join(result.principals)} if result.principals else {},
            **{} if math.isfinite(least_mean) else {"unconfirmed": "no actor of another principal played"},
            **{f"score_against_{each.name}": round(each.score, 3) for each in result.opponents},
            **{}
            if result.rating is None
            else {"rating": round(result.rating), "rating_error": round(result.rating_error or 0)},
            **{} if result.is_complete else {"cut_short": True},
        )
        self._on_result(result, least_mean)


class EvaluationManager(RunPart, EvaluationSink):
    """Manages evaluations and best checkpoints of one run.

    Args:
        service: Interval, episodes and actors of evaluations.
        checkpoints: Writes the files.
        roster: The connected actors.
        send: Sends the service the orders for actors, and the versions that are no longer measured.
        opponents: Opponents of the policies.
        lessons: Lessons that set the environment parameters.
        meters: Counts and shows results.
        on_result: Called with each result.
        on_saved: Called for each best checkpoint: behavior, step, file.
        on_not_saved: Called with the reason if one cannot be written.
    """

    def __init__(
        self,
        service: ServiceSettings,
        checkpoints: CheckpointStore,
        roster: Roster,
        send: Send,
        opponents: EvaluationOpponents,
        *,
        lessons: Lessons,
        meters: RunMeters,
        on_result: Callable[[EvaluationResult], object],
        on_saved: Callable[[str, int, Path], object],
        on_not_saved: Callable[[str], object],
    ) -> None:
        self._meters = meters
        self._lessons = lessons
        self._revision = lessons.revision
        self._on_result = on_result
        self._best = BestKeeper(
            checkpoints,
            lessons,
            evaluates=service.evaluation.interval_steps is not None,
            on_best=self._show_best,
            every_seconds=service.checkpoint_seconds / CHECKPOINT_SHARE,
            on_saved=on_saved,
            on_not_saved=on_not_saved,
        )
        self._opponents = opponents
        self._evaluator = Evaluator(
            service.evaluation, roster, self._best, send, meters=meters, on_result=self._note, opponents=opponents
        )

    def add(self, behavior: str, team: int, order: int, played: Played) -> None:
        """Takes a finished episode of an evaluation."""
        self._evaluator.add(behavior, team, order, played)

    def request(self) -> None:
        """Requests an evaluation of the current policies; callable from any thread."""
        self._evaluator.request()

    def received(self, behavior: str, item: Experience) -> None:
        """Takes the finished games of evaluations against opponents."""
        self._evaluator.received(behavior, item)

    def trainer_added(self, trainer: Trainer) -> None:
        """Shows the best result that a resumed run has kept of a behavior, and reads its opponents.

        Raises:
            UserError: An opponent does not exist, or cannot be used for the behavior.
        """
        self._best.begin(trainer)
        if trainer.is_training:
            self._opponents.trainer_added(trainer)

    def after_turn(self, trainers: Trainers) -> None:
        """Checks whether there is anything to measure or keep."""
        if not self._evaluator.is_running:
            self._revision = self._lessons.revision  # of the evaluation that may begin now
        self._evaluator.after_turn(trainers)
        self._best.after_turn(trainers)

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Keeps the current best result, as this is the last chance."""
        if ending.is_good:
            self._best.after_turn(trainers, is_last=True)
        return True

    def obstacle(self) -> str:
        """Returns why no actor trains while all evaluate; otherwise an empty text."""
        return self._evaluator.obstacle

    def _note(self, result: EvaluationResult, least_mean: float) -> None:
        self._on_result(result)
        returns = result.returns
        if result.is_complete and self._revision == self._lessons.revision:
            self._lessons.add_evaluation(result.behavior, least_mean)
        self._meters.behavior(result.behavior).show_evaluation(
            mean=returns.mean, std=returns.std, step=result.step, length=result.lengths.mean, games=numbers_of(result)
        )

    def _show_best(self, behavior: str, reward: float, step: int, principals: int) -> None:
        self._meters.behavior(behavior).show_best(reward, step, principals)
