"""Runs a tournament on the connected actors: gives each its next match, and keeps the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import AssignmentRole

from learner.link.matches import Match, Seat
from learner.link.to_front import Send, StartMatch
from learner.link.to_trainers import Actor, Experience
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed
from learner.shared.policies import PolicyKey
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.training.matches.game_records import GameRecords
from learner.training.matches.games import TEAMS, Matches, Playing, plays_games, plays_policies
from learner.training.matches.journal import Journal, MatchResult
from learner.training.matches.players import Kind, Player
from learner.training.matches.policies import load_model, random_policy
from learner.training.matches.rating import INTERVAL, Pair, Results, Standings, rate
from learner.training.matches.round import Gathering
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import RunPart, Trainers
from learner.training.trainers.roster import Roster

log = structlog.get_logger(__name__)

LEAST_GAMES: Final = 10
"""Games of a match of an actor with fewer games at a time: a match costs a reset of all environments."""


@dataclass(frozen=True, slots=True)
class TournamentRules:
    """Players and rules of a tournament.

    Attributes:
        players: The players.
        behavior: Name of the behavior.
        random_moves: Moves of each player at the start of a game that are random.
        is_deterministic: Whether models play their most likely actions.
        interval: Halves of the intervals at which the tournament ends, in points.
        games: Most games of all players together.
        match_games: Games of a match; None for as many as the actor plays at a time, but at least `LEAST_GAMES`.
        actors: Number of actors to wait for.
        max_silent_seconds: Seconds without the end of a game after which a match is abandoned.
    """

    players: tuple[Player, ...]
    behavior: str
    random_moves: int
    is_deterministic: bool
    interval: float
    games: int
    match_games: int | None
    actors: int
    max_silent_seconds: float


class Tournament(RunPart):
    """Plays a tournament on the connected actors; used in the trainers' thread.

    A match is played by one actor: a number of games of two players, in one order of seats. It counts as a whole. The
    games of a match whose actor has left do not count, because short games are the first to end.

    Args:
        rules: What is played.
        roster: The connected actors.
        send: Sends the service the matches of actors.
        journal: Keeps the results.
        snapshots: Keeps the policies of the players, which actors fetch.
        records: Shows and keeps games.
        on_done: Ends the run, once the intervals are narrow enough or all games are played.
        clock: Returns monotonic seconds.

    Attributes:
        standings: The present ratings.
        results: Results of all finished matches, by the places of the players in the first and the second seat.
    """

    def __init__(
        self,
        rules: TournamentRules,
        roster: Roster,
        send: Send,
        journal: Journal,
        snapshots: SnapshotFiles,
        *,
        records: GameRecords,
        on_done: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = rules
        self._roster = roster
        self._send = send
        self._journal = journal
        self._snapshots = snapshots
        self._records = records
        self._on_done = on_done
        self._clock = clock
        self._number = journal.next_number
        self._keys: dict[int, PolicyKey] = {}
        self._index: int | None = None
        self._matches = Matches()
        self._left_out: set[str] = set()
        self._gathering = Gathering(rules.actors, clock)
        self.results = journal.results(rules.players)
        self.standings = rate(len(rules.players), self.results)

    @property
    def games(self) -> int:
        """Number of finished games."""
        return int(sum(each.games for each in self.results.values()))

    @property
    def is_narrow(self) -> bool:
        """True if the intervals are narrow enough."""
        return narrow_enough(self.standings, self.results.values(), self._rules.interval)

    @property
    def is_done(self) -> bool:
        """True if the intervals are narrow enough, or all games are played."""
        return self.is_narrow or self.games >= self._rules.games

    def trainer_added(self, trainer: Trainer) -> None:
        """Converts the models of the players, and keeps them where actors fetch them.

        Raises:
            UserError: A model cannot be used for the behavior.
        """
        behavior = trainer.context.behavior
        if behavior.name != self._rules.behavior:
            return
        self._index = behavior.index
        found = {
            place: load_model(player, behavior, is_deterministic=self._rules.is_deterministic)
            for place, player in enumerate(self._rules.players)
            if player.kind is Kind.MODEL
        }
        for place, player in enumerate(self._rules.players):
            if player.kind is Kind.RANDOM:
                found[place] = random_policy(next(iter(found.values())))
        try:
            self._keys = {place: self._snapshots.write(stored) for place, stored in found.items()}
            self._snapshots.keep(behavior.name, set(self._keys.values()))
        except WriteFailed as error:
            raise UserError(ExitCode.NOT_SAVED, f"{error}; choose another folder with --output") from error

    def received(self, behavior: str, item: Experience) -> None:
        """Counts the finished games of a chunk."""
        playing = self._matches.received(behavior, item)
        if playing is not None:
            playing.heard_at = self._clock()
            if playing.is_over:
                self._finish(playing)

    def after_turn(self, trainers: Trainers) -> None:
        """Gives free actors their next matches, and ends the tournament once it is done."""
        del trainers
        index = self._index
        if index is None:
            return
        if self.is_done:
            self._on_done()
            return
        present = {actor.session_id: actor for actor in self._roster.actors if actor.is_connected}
        self._abandon()
        players = {key: actor for key, actor in present.items() if self._may_take_part(actor, index)}
        if self._gathering.note(players):
            for actor in sorted(players.values(), key=lambda each: each.actor_index):
                if actor.session_id not in self._matches.playing:
                    self._start(actor, index)

    def _finish(self, playing: Playing) -> None:
        match, found = playing.match, playing.results
        first, second = (self._rules.players[place] for place in playing.place)
        games = playing.counted(self._rules.behavior)
        result = MatchResult(
            match.number,
            first.identity,
            second.identity,
            int(found.wins),
            int(found.draws),
            int(found.losses),
            sum(each.length for each in games) / len(games),
            playing.actor,
        )
        self._journal.add(result)
        self._records.add(self._rules.behavior, match, playing.record, (first.name, second.name))
        self.results = self._journal.results(self._rules.players)
        self.standings = rate(len(self._rules.players), self.results)
        log.info(
            "match",
            first=first.name,
            second=second.name,
            wins=result.wins,
            draws=result.draws,
            losses=result.losses,
            games=self.games,
            widest_interval=round(self.standings.widest, 1),
            actor=playing.actor,
        )

    def _abandon(self) -> None:
        """Abandons the matches of actors that have left, or play no game to its end."""
        most = self._rules.max_silent_seconds
        silent = {
            each.match.session_id
            for each in self._matches.playing.values()
            if self._clock() - each.heard_at >= most and each.match.session_id in self._roster.session_ids
        }
        for playing in self._matches.lost(self._roster.session_ids - silent):
            session_id, reason = playing.match.session_id, "its actor has left"
            if session_id in silent:
                reason = f"no game has ended for {most:g} s (rollcast.evaluation.max_silent_seconds)"
                self._leave_out(session_id, playing.actor, reason)
            log.warning(
                "match_abandoned",
                match=playing.match.number,
                actor=playing.actor,
                reason=reason,
                episodes=playing.finished,
            )

    def _may_take_part(self, actor: Actor, index: int) -> bool:
        """Returns whether an actor plays the behavior with two teams and nothing else; says once why it does not."""
        if actor.session_id in self._left_out:
            return False
        if not actor.teams:
            return False  # it declares its behaviors soon
        if plays_games(actor, index):
            return True
        others, teams = set(actor.teams) - {index}, len(actor.teams.get(index, ()))
        if others:
            self._leave_out(actor.session_id, actor.name, f"it has {len(others)} other behaviors")
        elif teams > TEAMS:
            self._leave_out(actor.session_id, actor.name, f"it has {teams} teams of {self._rules.behavior}, not two")
        return False  # the second team may follow

    def _leave_out(self, session_id: str, name: str, reason: str) -> None:
        self._left_out.add(session_id)
        log.warning("actor_left_out", actor=name, reason=reason)

    def _start(self, actor: Actor, index: int) -> None:
        rules = self._rules
        planned: dict[Pair, int] = {}
        for each in self._matches.playing.values():
            planned[each.place] = planned.get(each.place, 0) + each.episodes
        left = rules.games - self.games - sum(planned.values())
        at_a_time = max(1, actor.agents.get(index, 1) // TEAMS)
        games = min(rules.match_games or max(at_a_time, LEAST_GAMES), left)
        if games < 1:
            return
        pair = next_pair(
            self.standings,
            self.results,
            planned,
            games=games,
            interval=rules.interval,
            may_play=lambda pair: _can_play(actor, [rules.players[place] for place in pair]),
        )
        if pair is None:
            self._leave_out(actor.session_id, actor.name, "it can play no two of the players")
            return
        seats = tuple(
            Seat(rules.behavior, team, AssignmentRole.OPPONENT, self._keys.get(place))
            for team, place in zip(actor.teams[index], pair, strict=True)
        )
        match = Match(self._number, actor.session_id, seats, episodes=games, random_steps=rules.random_moves)
        self._number += 1
        playing = Playing(match, pair, actor=actor.name, heard_at=self._clock())
        self._send(StartMatch(self._matches.add(playing)))


def missing_scripts(rules: TournamentRules, results: Mapping[Pair, Results]) -> Sequence[str]:
    """Returns the scripts among the players of which no game was played: no actor with them took part."""
    played = {place for pair, found in results.items() if found.games for place in pair}
    return [player.script for place, player in enumerate(rules.players) if player.script and place not in played]


def _can_play(actor: Actor, players: Sequence[Player]) -> bool:
    """Returns whether an actor can play a game of two players; each script needs an actor of its own."""
    if not plays_policies(actor):
        return False
    scripts = [player.script for player in players if player.script]
    return len(scripts) < TEAMS and all(script == actor.opponent for script in scripts)


def next_pair(
    standings: Standings,
    results: Mapping[Pair, Results],
    planned: Mapping[Pair, int],
    *,
    games: int,
    interval: float,
    may_play: Callable[[Pair], bool],
) -> Pair | None:
    """Returns the places of the players of the next match; the first takes the first seat. None if no pair may play.

    It is the pair whose games lower the sum of the variances of the ratings most (A-optimality), of those ratings that are
    not narrow enough yet. Games that are being played count as played. Seats alternate: the first seat is for the player
    that has had it less often, in games of the pair and then in all games.

    Args:
        standings: The present ratings of N players.
        results: Results of finished matches.
        planned: Numbers of games of the matches that are being played.
        games: Games of the next match.
        interval: Halves of intervals, in points, that are narrow enough.
        may_play: Returns whether a pair may play, in whichever order of seats.
    """
    players = len(standings.ratings)
    pairs = [(one, two) for one in range(players) for two in range(one + 1, players) if may_play((one, two))]
    if not pairs:
        return None
    played = {pair: found.games for pair, found in results.items()}
    for pair, number in planned.items():
        played[pair] = played.get(pair, 0.0) + number
    covariance = standings.covariance.copy()
    for pair, number in planned.items():
        towards, factor = _gain(covariance, standings, pair, number)
        covariance -= factor * np.outer(towards, towards)
    wide = INTERVAL * np.sqrt(np.maximum(np.diag(covariance), 0.0)) > interval
    counted = wide if wide.any() else np.ones(players, np.bool_)

    def gain(pair: Pair) -> float:
        towards, factor = _gain(covariance, standings, pair, games)
        return round(
            factor * float((towards[counted] ** 2).sum()), 6
        )  # rounding errors decide between equal pairs otherwise

    def games_of(pair: Pair) -> float:
        return played.get(pair, 0.0) + played.get(pair[::-1], 0.0)

    one, two = min(pairs, key=lambda pair: (-gain(pair), games_of(pair), pair))

    def lead(player: int) -> float:
        return sum(number * ((first == player) - (second == player)) for (first, second), number in played.items())

    def first_seats(pair: Pair) -> tuple[float, float]:
        return played.get(pair, 0.0), lead(pair[0]) - lead(pair[1])

    return min((one, two), (two, one), key=first_seats)


def narrow_enough(standings: Standings, results: Collection[Results], interval: float) -> bool:
    """Returns whether all intervals are narrow enough, and there were games at all."""
    return bool(results) and standings.widest <= interval


def _gain(
    covariance: NDArray[np.float64], standings: Standings, pair: Pair, games: int
) -> tuple[NDArray[np.float64], float]:
    """Returns what games of a pair take from the covariance of the ratings: ``factor * outer(towards, towards)``.

    It is the change of an inverse by a matrix of rank one (Sherman-Morrison).

    Returns:
        ``towards``, ``[N]``, and ``factor``.
    """
    first, second = pair
    towards = covariance[:, first] - covariance[:, second]
    weight = games * standings.information(pair)
    return towards, weight / (1.0 + weight * float(towards[first] - towards[second]))
