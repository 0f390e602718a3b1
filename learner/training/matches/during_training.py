"""Evaluation during training: at intervals some actors play whole episodes that are not trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from learner.link.matches import match_numbers
from learner.link.to_front import EndEvaluation, Release, Send, StartMatch
from learner.link.to_trainers import Experience
from learner.shared.exits import UserError
from learner.shared.leave_one_out import Source
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import Aggregation
from learner.shared.runfolder.store import CheckpointStore
from learner.shared.settings.service import ServiceSettings
from learner.training.curriculum.lessons import Lessons
from learner.training.matches.best import CHECKPOINT_SHARE, BestKeeper, MeasuredPolicy
from learner.training.matches.opponents import EvaluationOpponents, numbers_of, report_games
from learner.training.matches.result import EvaluationResult
from learner.training.matches.round import Candidate, Round, candidates, evaluators
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import Ending, RunPart, Trainers
from learner.training.trainers.roster import Roster

log = structlog.get_logger(__name__)


TOLD_AFTER_SECONDS: Final = 60.0
"""Seconds after which a long evaluation is logged, and again each time its duration has doubled."""
REST_FACTOR: Final = 9
"""Multiple of an abandoned evaluation's duration that passes before the next one: at most a tenth of the time is lost.
"""
RETRY_SECONDS: Final = 60.0
"""Seconds after which an evaluation is tried again whose opponents could not be written, as on a full disk."""
LOOK_SECONDS: Final = 1.0
"""Seconds between checks of which actors are training; a check at every turn would be slow with many actors."""


class EvaluationManager(RunPart):
    """Starts an evaluation at regular intervals of trainer steps, and keeps the best policy; used in the trainers' thread.

    One evaluation covers all behaviors, because an actor resets all of its behaviors at once. It measures the policies
    from the moment at which it began; training continues with the other actors.

    Args:
        service: Interval, episodes and actors of evaluations.
        checkpoints: Writes the files of the best policies.
        roster: The connected actors.
        send: Sends the service the matches of actors, and the versions that are no longer measured.
        opponents: Opponents of the policies.
        generation: Generation of this start of the learner.
        lessons: Lessons that set the environment parameters.
        meters: Counts and shows results.
        on_result: Called with each result.
        on_saved: Called for each best checkpoint: behavior, step, file.
        on_not_saved: Called with the reason if one cannot be written.
        clock: Returns monotonic seconds.

    Attributes:
        obstacle: The reason why no actor trains while all evaluate; otherwise empty.
    """

    def __init__(
        self,
        service: ServiceSettings,
        checkpoints: CheckpointStore,
        roster: Roster,
        send: Send,
        opponents: EvaluationOpponents,
        *,
        generation: int,
        lessons: Lessons,
        meters: RunMeters,
        on_result: Callable[[EvaluationResult], object],
        on_saved: Callable[[str, int, Path], object],
        on_not_saved: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.obstacle = ""
        self._roster = roster
        self._send = send
        self._opponents = opponents
        self.service_changed(service)
        self._lessons = lessons
        self._revision = lessons.revision
        self._meters = meters
        self._on_result = on_result
        self._clock = clock
        self._best = BestKeeper(
            checkpoints,
            lessons,
            evaluates=service.evaluation.interval_steps is not None,
            on_best=lambda behavior, *best: meters.behavior(behavior).show_best(*best),
            every_seconds=service.checkpoint_seconds / CHECKPOINT_SHARE,
            on_saved=on_saved,
            on_not_saved=on_not_saved,
        )
        self._numbers = match_numbers(generation, evaluates=True)
        self._not_before = self._look_at = self._began_at = self._heard_at = clock()
        self._told_after = TOLD_AFTER_SECONDS
        self._running: Round | None = None
        self._policies: dict[str, MeasuredPolicy] = {}
        self._intervals: dict[str, int] = {}
        self._measured: dict[int, str] = {}
        self._is_requested = False
        self._turn = 0

    def request(self) -> None:
        """Requests an evaluation of the current policies, regardless of the interval; callable from any thread."""
        self._is_requested = True

    @property
    def is_running(self) -> bool:
        """True while an evaluation runs."""
        return self._running is not None

    def received(self, behavior: str, item: Experience) -> None:
        """Counts the episodes of a chunk; ignores those that no running evaluation ordered."""
        if self._running is not None and self._running.received(behavior, item):
            self._heard_at = self._clock()

    def trainer_added(self, trainer: Trainer) -> None:
        """Shows the best result that a resumed run has kept of a behavior, and reads its opponents.

        Raises:
            UserError: An opponent does not exist, or cannot be used for the behavior.
        """
        self._best.begin(trainer)
        if trainer.is_training:
            self._opponents.trainer_added(trainer)

    def service_changed(self, service: ServiceSettings) -> None:
        """Takes over another number of episodes, from the next evaluation on."""
        self._settings = service.evaluation
        self._opponents.settings = service.evaluation

    def after_turn(self, trainers: Trainers) -> None:
        """Begins, continues or ends an evaluation, and keeps what is best by training returns."""
        if self._running is not None:
            self._continue(self._running, trainers)
        elif self._clock() >= self._not_before and (self._is_requested or self._is_due(trainers)):
            self._begin(trainers)
        self._best.after_turn(trainers)

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Keeps the current best result, as this is the last chance."""
        if ending.is_good:
            self._best.after_turn(trainers, is_last=True)
        return True

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
        free = self._players()
        if not free:  # the evaluation stays due
            self._opponents.warn(self._roster.actors, training)
            return
        try:
            self._opponents.prepare(training)
        except UserError as error:
            self._not_before = self._clock() + RETRY_SECONDS
            log.error("evaluation_put_off", reason=error.message, seconds=RETRY_SECONDS)
            return
        self._is_requested = False
        for trainer in training.values():
            trainer.publish_present(keep=True)  # makes the policies below the measured ones
        self._running = self._opponents.begin(
            training,
            self._numbers,
            episodes=max(self._settings.episodes, len({each.source.principal for each in free})),
            is_deterministic=self._settings.deterministic,
        )
        self._policies = {name: MeasuredPolicy.of(trainer) for name, trainer in training.items()}
        interval_steps = self._settings.interval_steps or 1
        self._intervals.update({name: trainer.get_step // interval_steps for name, trainer in training.items()})
        self._revision, self._told_after = self._lessons.revision, TOLD_AFTER_SECONDS
        self._began_at = self._heard_at = self._clock()
        self._deal(self._running, free)
        log.debug("evaluation_began", versions=self._running.versions, actors=len(free))

    def _deal(self, running: Round, free: list[Candidate]) -> None:
        for match in running.deal(free):
            self._send(StartMatch(match))

    def _present(self) -> list[Candidate]:
        """Returns the actors that could play."""
        return self._opponents.present(self._roster.actors, self._measured)

    def _players(self, running: Round | None = None) -> list[Candidate]:
        """Returns the actors that play."""
        with_share = frozenset[str]() if running is None else running.principals
        return evaluators(self._present(), self._settings.actors, turn=self._turn, with_share=with_share)

    def _others(self, running: Round, behavior: str) -> set[Source]:
        """Returns the present actors of principals that did not measure a behavior, without whose word no other decides."""
        said_by = running.played_by(behavior)
        present = {each.source for each in self._present() if any(name == behavior for name, _ in each.behavior_ids)}
        return {source for source in present if source.principal not in said_by}

    def _continue(self, running: Round, trainers: Trainers) -> None:
        over = [name for name in running.versions if name not in trainers or not trainers[name].should_still_train]
        if running.is_done or over:
            self._end(running, trainers)
            return
        if self._silent_seconds >= self._settings.max_silent_seconds:
            self._give_up(running)
            self._end(running, trainers)
            return
        running.settle(self._roster.session_ids)
        if running.missing > 0:
            self._deal(running, self._players(running))
        self._tell(running)

    @property
    def _seconds(self) -> float:
        return self._clock() - self._began_at

    @property
    def _silent_seconds(self) -> float:
        return self._clock() - self._heard_at

    def _give_up(self, running: Round) -> None:
        self._not_before = self._clock() + REST_FACTOR * self._seconds
        log.warning(
            "evaluation_given_up",
            seconds=round(self._seconds),
            silent_seconds=round(self._silent_seconds),
            episodes=f"{running.finished}/{running.episodes}",
            none_for_seconds=round(self._not_before - self._clock()),
            action="check the logs of its actors; if episodes take longer, raise rollcast.evaluation.max_silent_seconds",
        )

    def _tell(self, running: Round) -> None:
        """Shows whether training waits for the evaluation, and logs its duration if it is long."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_SECONDS
        present = {candidate.session_id for candidate in candidates(self._roster.actors, self._measured)}
        is_alone = bool(present) and present <= running.sessions
        seconds = round(self._seconds)
        episodes = f"{running.finished}/{running.episodes}"
        self.obstacle = (
            f"training waits while every actor plays an evaluation ({episodes} episodes after {seconds} s); with more "
            "actors than rollcast.evaluation.actors, the others continue to train"
            if is_alone
            else ""
        )
        if self._seconds < self._told_after:
            return
        while self._told_after <= self._seconds:
            self._told_after *= 2
        told = log.warning if is_alone else log.info
        told(
            "evaluation_goes_on",
            seconds=seconds,
            silent_seconds=round(self._silent_seconds),
            episodes=episodes,
            actors=len(running.sessions),
            training_actors=len(present - running.sessions),
            **{"action": "start more actors, or lower rollcast.evaluation.episodes"} if is_alone else {},
            given_up_after_silent_seconds=self._settings.max_silent_seconds,
        )

    def _end(self, running: Round, trainers: Trainers) -> None:
        self._running, self.obstacle = None, ""
        for session_id in running.sessions:
            self._send(EndEvaluation(session_id))
        for name in running.versions:
            self._send(Release(name))
            result = running.result(name, self._policies[name].step)
            if result is not None and name in trainers:
                self._report(trainers[name], running, result)
            else:
                self._meters.behavior(name).note_empty_evaluation()
        self._policies = {}

    def _report(self, trainer: Trainer, running: Round, result: EvaluationResult) -> None:
        name, policy = result.behavior, self._policies[result.behavior]
        result = replace(result, principals=tuple(sorted(running.played_by(name) - {""})))
        stats = trainer.stats_reporter
        result = self._opponents.rated(result, running)
        report_games(result, stats)
        for episode in running.played(name):
            stats.add_stat("Evaluation/Cumulative Reward", episode.total, Aggregation.HISTOGRAM)
            stats.add_stat("Evaluation/Episode Length", episode.length)
        stats.set_stat("Evaluation/Step", policy.step)
        returns = result.returns
        least_mean = min(returns.mean, running.least_mean_return(name, self._others(running, name)))
        self._meters.behavior(name).note_evaluation(result.episodes, is_complete=result.is_complete)
        is_best = result.is_complete and self._best.note_evaluation(policy, least_mean, result.principals)
        log.info(
            "evaluation",
            behavior=name,
            step=policy.step,
            version=result.version,
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
        self._on_result(result)
        if result.is_complete and self._revision == self._lessons.revision:
            self._lessons.add_evaluation(name, least_mean)
        self._meters.behavior(name).show_evaluation(
            mean=returns.mean, std=returns.std, step=policy.step, length=result.lengths.mean, games=numbers_of(result)
        )
