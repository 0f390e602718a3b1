"""The opponents of evaluations: their policies, and ratings from all games against them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog

from learner.link.to_trainers import Actor
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed
from learner.shared.observe.stats import StatsReporter
from learner.shared.policies import PolicyKey, StoredPolicy
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.service import EvaluationSettings
from learner.training.matches.elo import DRAW, LOSS, WIN
from learner.training.matches.game_records import GameRecords
from learner.training.matches.games import Playing, plays_games, plays_policies
from learner.training.matches.players import RANDOM, Kind, Player, distinct_names, opponent
from learner.training.matches.policies import load_model, random_policy
from learner.training.matches.rating import Strengths
from learner.training.matches.result import EvaluationResult
from learner.training.matches.round import Candidate, Round, candidates
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import RunPart, Trainers

log = structlog.get_logger(__name__)

KEPT: Final = 32
"""Evaluated policies that are rated together; older ones keep their ratings."""
_POLICY: Final = "policy"
"""Row of the evaluated policies in the ratings, which no opponent has as identity."""


class EvaluationOpponents(RunPart):
    """Keeps the opponents of a run's evaluations; used in the trainers' thread.

    The policies of all evaluations are successive players of one row, and each opponent is a row of one; see
    `learner.training.matches.rating.Strengths`. The first opponent that the run named is the origin of all ratings.

    Args:
        settings: Names the opponents.
        folder: Folder of the run.
        snapshots: Keeps the policies of the opponents, which actors fetch.
        records: Shows and keeps games.

    Attributes:
        settings: As given; the number of episodes may change while the run trains.
    """

    name = "evaluation_opponents"

    def __init__(
        self,
        settings: EvaluationSettings,
        folder: Path,
        snapshots: SnapshotFiles,
        records: GameRecords,
    ) -> None:
        self.settings = settings
        self._folder = folder
        self._snapshots = snapshots
        self._records = records
        self._strengths = Strengths()
        self._players: tuple[Player, ...] = ()
        self._models: dict[str, PolicyKey] = {}  # by identity
        self._behavior = ""
        self._index = -1
        self._random: PolicyKey | None = None
        self._has_warned = False
        self._scripts: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the opponents; empty for evaluations without opponents."""
        return tuple(each.name for each in self._players)

    def trainer_added(self, trainer: Trainer) -> None:
        """Converts the models of the opponents, and keeps them where actors fetch them.

        An own checkpoint of the run that no longer exists, or not yet, is left out with a warning.

        Raises:
            UserError: An opponent does not exist, or cannot be used for the behavior.
        """
        behavior = trainer.context.behavior
        if not self.settings.opponents or trainer.trainer_settings.self_play is None:
            return
        self._behavior, self._index = behavior.name, behavior.index
        self._players = distinct_names(self._find(behavior.name))
        models = {each.identity: load_model(each, behavior) for each in self._players if each.kind is Kind.MODEL}
        self._scripts = frozenset(each.script for each in self._players if each.script)
        self._models = {identity: self._write(policy) for identity, policy in models.items()}
        self._snapshots.reserve(behavior.name, self._models.values())
        for each in self._players:
            self._strengths.add_row(each.identity, 0.0)
        self._strengths.add_row(_POLICY, 0.0)

    def _find(self, behavior: str) -> list[Player]:
        found = []
        for text in self.settings.opponents:
            try:
                found.append(opponent(text, behavior, self._folder.parent, self._folder))
            except UserError as error:
                if not text.startswith("@"):
                    raise UserError(error.exit_code, f"rollcast.evaluation.opponents: {error.message}") from error
                log.warning("opponent_left_out", opponent=text, reason=error.message)
        return found

    def present(self, actors: Sequence[Actor], measured: Mapping[int, str]) -> list[Candidate]:
        """Returns the actors that can play an evaluation.

        Matches need the behavior with two teams and nothing else, and the script of each opponent that is one.

        Args:
            actors: The actors.
            measured: Names of the measured behaviors by index.
        """
        if not self._plays(measured.values()):
            return candidates(actors, measured)
        fitting = [
            actor
            for actor in actors
            if plays_games(actor, self._index) and plays_policies(actor) and self._scripts <= {actor.opponent}
        ]
        return candidates(fitting, measured)

    def _plays(self, behaviors: Collection[str]) -> bool:
        return bool(self._players) and self._behavior in behaviors

    def warn(self, actors: Sequence[Actor], behaviors: Collection[str]) -> None:
        """Logs once that no connected actor can play matches.

        Args:
            actors: The actors.
            behaviors: The measured behaviors.
        """
        if self._plays(behaviors) and not self._has_warned and any(each.is_connected and each.teams for each in actors):
            self._has_warned = True
            log.warning(
                "no_actor_plays_opponents",
                behavior=self._behavior,
                action="evaluations against opponents need an actor with two teams of this behavior and no other behavior",
            )

    def prepare(self, trainers: Trainers) -> None:
        """Makes the policy of the random player, which needs a published one; call it before `begin`.

        Args:
            trainers: Trainers of the measured behaviors.

        Raises:
            UserError: It cannot be written.
        """
        if self._plays(trainers) and self._random is None and any(each.kind is Kind.RANDOM for each in self._players):
            self._random = self._write(random_policy(trainers[self._behavior].snapshot()))
            self._snapshots.reserve(self._behavior, {*self._models.values(), self._random})

    def begin(self, measured: Trainers, numbers: Iterator[int], *, episodes: int, is_deterministic: bool) -> Round:
        """Returns an evaluation of the newest policies, which the service keeps.

        Args:
            measured: Trainers of the measured behaviors.
            numbers: Yields match numbers that were not used before.
            episodes: Episodes of each behavior, in an evaluation without opponents.
            is_deterministic: Whether the mode of the policies' distributions acts; opponents draw their actions.
        """
        if not self._plays(measured):
            policies = {name: PolicyKey.of(trainer.published) for name, trainer in measured.items()}
            return Round(policies, episodes, is_deterministic=is_deterministic, numbers=numbers)
        keys: dict[str, PolicyKey | None] = {**self._models, RANDOM: self._random}
        trainer = measured[self._behavior]
        name = f"step {trainer.get_step}"

        def record(playing: Playing) -> None:
            place, seat = playing.place
            rival = self._players[place].name
            self._records.add(self._behavior, playing.match, playing.record, (rival, name) if seat else (name, rival))

        return Round(
            {self._behavior: PolicyKey.of(trainer.published)},
            self.settings.episodes,
            is_deterministic=is_deterministic,
            numbers=numbers,
            opponents=[keys.get(each.identity) for each in self._players],  # actors have the scripts
            on_match=record,
        )

    def rated(self, result: EvaluationResult, running: Round) -> EvaluationResult:
        """Returns the result of an evaluation with its games, and the rating by all evaluations; call it once for each.

        Without opponents, it is the result itself.
        """
        if not running.plays_games:
            return result
        opponents = running.results(self.names)
        strengths, policy = self._strengths, self._strengths.current(_POLICY)
        for player, found in zip(self._players, opponents, strict=True):
            rival = strengths.current(player.identity)
            for seat in (found.first, found.second):
                for outcome, games in ((WIN, seat.wins), (DRAW, seat.draws), (LOSS, seat.losses)):
                    strengths.add(policy, rival, outcome, games)
        rating = strengths.ratings()[policy]
        strengths.advance(_POLICY, KEPT)
        return replace(result, opponents=opponents, rating=rating.value, rating_error=rating.error)

    def _write(self, policy: StoredPolicy) -> PolicyKey:
        try:
            return self._snapshots.write(policy)
        except WriteFailed as error:
            raise UserError(ExitCode.NOT_SAVED, f"rollcast.evaluation.opponents: {error}") from error

    def state_dict(self) -> dict[str, Any]:
        """Returns the games and ratings."""
        return self._strengths.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        if state:
            self._strengths.load_state_dict(state)


def numbers_of(result: EvaluationResult) -> dict[str, float]:
    """Returns the numbers of an evaluation's games, by names of `learner.shared.observe.behavior_state.FIELDS`."""
    if result.rating is None or result.rating_error is None:
        return {}
    found = {"evaluation_rating": result.rating, "evaluation_rating_interval": result.rating_error}
    for each in result.opponents:
        found[f"evaluation_score/{each.name}"] = each.score
        for seat, games in (("first", each.first), ("second", each.second)):
            found[f"evaluation_won_{seat}/{each.name}"] = games.wins
            found[f"evaluation_drawn_{seat}/{each.name}"] = games.draws
            found[f"evaluation_lost_{seat}/{each.name}"] = games.losses
    return found


def report_games(result: EvaluationResult, stats: StatsReporter) -> None:
    """Adds the rating and the results by seat, as shares of the games in that seat, to the statistics."""
    if result.rating is not None and result.rating_error is not None:
        stats.set_stat("Evaluation/Rating", result.rating)
        stats.set_stat("Evaluation/Rating Interval", result.rating_error)
    for each in result.opponents:
        stats.set_stat(f"Evaluation/Against {each.name}/Score", each.score)
        for seat, games in (("First", each.first), ("Second", each.second)):
            for outcome, number in (("Wins", games.wins), ("Draws", games.draws), ("Losses", games.losses)):
                if games.games:
                    stats.set_stat(f"Evaluation/Against {each.name}/{seat} Seat {outcome}", number / games.games)
