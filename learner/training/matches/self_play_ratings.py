"""Rates the finished games of learning seats and reports them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rollcast.enums import AssignmentRole

from learner.link.matches import Game, Match
from learner.training.curriculum.measures import statistic
from learner.training.matches.elo import DRAW, LOSS, WIN, rate
from learner.training.matches.games import RESULTS, GameCounter
from learner.training.matches.league import League, Opponent
from learner.training.matches.rating import RatedPlayer, Results, Strengths
from learner.training.trainers.base import Trainer

ELO: Final = "Self-play/ELO"
"""Name of ML-Agents' rating among the statistics; lessons can measure it by ``measure: statistic``."""
FIT_SECONDS: Final = 5.0
"""Shortest time between two estimates of the strengths."""
_OUTCOMES: Final = ((WIN, "Wins"), (DRAW, "Draws"), (LOSS, "Losses"))


@dataclass(frozen=True, slots=True)
class DrawnOpponent:
    """An opponent in a match.

    Attributes:
        behavior: Name of its behavior.
        policy: What was drawn; None for the newest policy.
        player: The player in `learner.training.matches.rating.Strengths`.
        step: Trained steps of its behavior when the match began.
    """

    behavior: str
    policy: Opponent | None
    player: RatedPlayer
    step: int

    @property
    def learned_at(self) -> int | None:
        """Trained steps of its behavior when its policy was saved or the match began; None if it never learns."""
        return self.step if self.policy is None else self.policy.step


@dataclass(frozen=True, slots=True)
class DrawnMatch:
    """A match of one actor and its opponents."""

    match: Match
    opponents: tuple[DrawnOpponent, ...]


class Ratings:
    """Rates games and reports the results in the trainers' statistics and numbers.

    Args:
        leagues: Ratings of each behavior; grows later.
        strengths: Strengths of all players.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, leagues: Mapping[str, League], strengths: Strengths, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._leagues = leagues
        self._strengths = strengths
        self._counter = GameCounter()
        self._clock = clock
        self._fitted_at = clock() - FIT_SECONDS

    def add(self, session_id: str, game: Game, drawn: DrawnMatch, trainers: Mapping[str, Trainer]) -> None:
        """Rates a record of a learning agent.

        Ignores records without a result, of matches without opponents, and of agents whose mates play on: their last
        rewards say nothing about the game.

        Args:
            session_id: Session that sent the record.
            game: The record.
            drawn: Its match.
            trainers: Trainers by behavior name.
        """
        result, opponents = RESULTS.get(game.result), drawn.opponents
        if game.role is not AssignmentRole.LEARN or result is None or not opponents or game.has_mates_left:
            return
        trainer = trainers[game.behavior]
        if game.is_over:
            self._rate(trainer, result, opponents)
        if self._counter.is_first(session_id, game):
            self._count(trainer, game, result, opponents)
            ages = [
                trainers[each.behavior].steps_trained - each.learned_at
                for each in opponents
                if each.learned_at is not None
            ]
            if ages:
                trainer.numbers["opponent_age_steps"] = sum(ages) / len(ages)
                trainer.stats_reporter.add_stat("Self-play/Opponent Age", sum(ages) / len(ages))
            for each in opponents:
                if each.policy is not None and each.policy.name:  # reported under its own behavior
                    other = trainers[each.behavior]
                    self._add_outcome(other, f"Against {each.policy.name}", result)
                    other.numbers.update(self._leagues[each.behavior].numbers())

    def refresh(self, trainers: Mapping[str, Trainer]) -> None:
        """Estimates the strengths if it is time, and reports them."""
        if self._clock() < self._fitted_at + FIT_SECONDS:
            return
        self._fitted_at = self._clock()
        ratings = self._strengths.ratings()
        for name, league in self._leagues.items():
            if name in trainers:
                found, stats = ratings[self._strengths.current(name)], trainers[name].stats_reporter
                trainers[name].numbers.update(self_play_rating=found.value, self_play_rating_interval=found.error)
                stats.set_stat("Self-play/Rating", found.value)
                stats.set_stat("Self-play/Rating Interval", found.error)
                for each in league.fixed:
                    if (rating := ratings.get(each.player)) is not None:
                        trainers[name].numbers[f"opponent_rating/{each.name}"] = rating.value
                        stats.set_stat(f"Self-play/Against {each.name}/Rating", rating.value)

    def _rate(self, trainer: Trainer, result: float, opponents: tuple[DrawnOpponent, ...]) -> None:
        own = self._leagues[trainer.brain_name].elo
        rate(own, result, [each.policy.elo if each.policy else self._leagues[each.behavior].elo for each in opponents])
        trainer.numbers["elo"] = own.value
        trainer.stats_reporter.add_stat(ELO, own.value)
        if statistic(ELO) in trainer.context.lessons.measures(trainer.brain_name):
            trainer.context.lessons.add_statistic(trainer.brain_name, ELO, own.value)

    def _count(self, trainer: Trainer, game: Game, result: float, opponents: tuple[DrawnOpponent, ...]) -> None:
        league, share = self._leagues[game.behavior], 1.0 / len(opponents)
        league.results.setdefault(game.team, Results()).add(result)
        for each in opponents:
            self._strengths.add(self._strengths.current(game.behavior), each.player, result, share)
            if each.policy is not None:
                each.policy.results.add(result, share)
        self._add_outcome(trainer, f"Team {game.team}", result)
        trainer.stats_reporter.add_stat("Self-play/Game Length", game.length)
        trainer.numbers["game_steps"] = game.length
        trainer.numbers.update(league.numbers())

    @staticmethod
    def _add_outcome(trainer: Trainer, group: str, result: float) -> None:
        for outcome, name in _OUTCOMES:
            trainer.stats_reporter.add_stat(f"Self-play/{group}/{name}", float(result == outcome))
