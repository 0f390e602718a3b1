"""Rates the finished games of learning seats and reports them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rollcast.enums import AssignmentRole

from learner.link.matches import Game
from learner.training.curriculum.measures import statistic
from learner.training.matches.elo import DRAW, LOSS, WIN, Opponent, rate
from learner.training.matches.games import RESULTS, GameCounter
from learner.training.matches.league import League
from learner.training.matches.pool import CURRENT
from learner.training.matches.rating import Results, Strengths
from learner.training.matches.self_play_games import Drawn, Table
from learner.training.trainers.base import Trainer

ELO: Final = "Self-play/ELO"
"""Name of ML-Agents' rating among the statistics; lessons can measure it by ``measure: statistic``."""
FIT_SECONDS: Final = 5.0
"""Shortest time between two estimates of the strengths."""
_OUTCOMES: Final = ((WIN, "Wins"), (DRAW, "Draws"), (LOSS, "Losses"))


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

    def add(self, session_id: str, game: Game, table: Table, trainers: Mapping[str, Trainer]) -> None:
        """Rates a record of a learning agent.

        Ignores records without a result, of matches without opponents, and of agents whose mates play on: their last
        rewards say nothing about the game.

        Args:
            session_id: Session that sent the record.
            game: The record.
            table: Its match.
            trainers: Trainers by behavior name.
        """
        result = RESULTS.get(game.result)
        if game.role is not AssignmentRole.LEARN or result is None or not table.opponents or game.has_mates_left:
            return
        trainer, league = trainers[game.behavior], self._leagues[game.behavior]
        if game.is_over:
            self._rate(trainer, league, result, table.opponents)
        if self._counter.is_first(session_id, game):
            self._count(trainer, league, game, result, table.opponents)
            self._note_age(
                trainer,
                [trainers[each.behavior].steps_trained - each.step for each in table.opponents if not each.fixed],
            )
            for each in table.opponents:
                if each.fixed:
                    self._report(trainers[each.behavior], self._leagues[each.behavior], each.fixed, result)

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
                    if (rating := ratings.get((each.row, 0))) is not None:
                        trainers[name].numbers[f"opponent_rating/{each.name}"] = rating.value
                        stats.set_stat(f"Self-play/Against {each.name}/Rating", rating.value)

    def _rate(self, trainer: Trainer, league: League, result: float, opponents: tuple[Drawn, ...]) -> None:
        rate(league.elo, result, [self._opponent(each) for each in opponents])
        elo = league.elo.current
        trainer.numbers["elo"] = elo
        trainer.stats_reporter.add_stat(ELO, elo)
        if statistic(ELO) in trainer.context.lessons.measures(trainer.brain_name):
            trainer.context.lessons.add_statistic(trainer.brain_name, ELO, elo)

    def _opponent(self, drawn: Drawn) -> Opponent:
        league = self._leagues[drawn.behavior]
        if drawn.fixed:
            return Opponent(league.fixed[drawn.fixed].elo, CURRENT)
        return Opponent(league.elo, CURRENT if drawn.number is None else league.pool.slot(drawn.number))

    def _count(self, trainer: Trainer, league: League, game: Game, result: float, opponents: tuple[Drawn, ...]) -> None:
        share = 1.0 / len(opponents)
        league.results.setdefault(game.team, Results()).add(result)
        for each in opponents:
            self._strengths.add(self._strengths.current(game.behavior), each.player, result, share)
            if each.fixed:
                self._leagues[each.behavior].fixed[each.fixed].results.add(result, share)
            elif each.number is not None:
                self._leagues[each.behavior].against.setdefault(each.number, Results()).add(result, share)
        stats = trainer.stats_reporter
        for outcome, name in _OUTCOMES:
            stats.add_stat(f"Self-play/Team {game.team}/{name}", float(result == outcome))
        stats.add_stat("Self-play/Game Length", game.length)
        trainer.numbers["game_steps"] = game.length
        trainer.numbers.update(numbers_of(league))

    def _report(self, trainer: Trainer, league: League, row: str, result: float) -> None:
        """Reports a game against an opponent that never learns, under its own behavior."""
        for outcome, name in _OUTCOMES:
            trainer.stats_reporter.add_stat(
                f"Self-play/Against {league.fixed[row].name}/{name}", float(result == outcome)
            )
        trainer.numbers.update(numbers_of(league))

    def _note_age(self, trainer: Trainer, ages: Sequence[int]) -> None:
        if not ages:
            return
        steps = sum(ages) / len(ages)
        trainer.stats_reporter.add_stat("Self-play/Opponent Age", steps)
        trainer.numbers["opponent_age_steps"] = steps


def numbers_of(league: League) -> dict[str, float]:
    """Returns the reported numbers of a behavior that a resumed run knows at once."""
    found: dict[str, float] = {
        "elo": league.elo.current,
        "pool_snapshots": len(league.pool),
        "ghost_steps": league.ghost_steps,
    }
    for team, each in league.results.items():
        found[f"games_won/{team}"] = each.wins
        found[f"games_drawn/{team}"] = each.draws
        found[f"games_lost/{team}"] = each.losses
    for opponent in league.fixed:
        found[f"opponent_elo/{opponent.name}"] = opponent.elo.current
        found[f"games_won_against/{opponent.name}"] = opponent.results.wins
        found[f"games_drawn_against/{opponent.name}"] = opponent.results.draws
        found[f"games_lost_against/{opponent.name}"] = opponent.results.losses
    return found
