"""Runs a tournament on the connected actors: gives each its next match, and keeps the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from rollcast.enums import AssignmentRole

from learner.link.matches import Match, Seat
from learner.link.to_front import Send, StartMatch
from learner.link.to_trainers import Actor, Experience
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed
from learner.shared.policies import PolicyKey
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.training.matches.game_records import GameRecords
from learner.training.matches.journal import Journal, MatchResult
from learner.training.matches.players import Kind, Player
from learner.training.matches.policies import load_model, random_policy
from learner.training.matches.schedule import narrow_enough, next_pair
from learner.training.matches.score import TEAMS, MatchScore, plays_games, plays_policies
from learner.training.matches.self_play_games import GameCounter
from learner.training.matches.standings import Pair, rate
from learner.training.matches.strength import Results
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import RunPart, Trainers
from learner.training.trainers.roster import Roster

log = structlog.get_logger(__name__)

LEAST_GAMES: Final = 10
"""Games of a match of an actor with fewer games at a time: a match costs a reset of all environments."""
SETTLE_SECONDS: Final = 1.0
"""Seconds without a new actor before the first match: the actors of one script do not start at the same moment."""


@dataclass(frozen=True, slots=True)
class Plan:
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


@dataclass(slots=True, eq=False)
class _Playing:
    """A match that an actor plays.

    Attributes:
        score: The games of the first seat.
        pair: Places of the players in the first and the second seat.
        actor: Name of the actor.
        heard_at: When the end of a game was last reported, in monotonic seconds.
    """

    score: MatchScore
    pair: Pair
    actor: str
    heard_at: float


class Tournament(RunPart):
    """Plays a tournament on the connected actors; used in the trainers' thread.

    A match is played by one actor: a number of games of two players, in one order of seats. It counts as a whole. The
    games of a match whose actor has left do not count, because short games are the first to end.

    Args:
        plan: What is played.
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
        plan: Plan,
        roster: Roster,
        send: Send,
        journal: Journal,
        snapshots: SnapshotFiles,
        *,
        records: GameRecords,
        on_done: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
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
        self._playing: dict[str, _Playing] = {}
        self._counter = GameCounter()
        self._left_out: dict[str, str] = {}
        self._present: frozenset[str] = frozenset()
        self._changed_at = clock()
        self._has_begun = False
        self.results = journal.results(plan.players)
        self.standings = rate(len(plan.players), self.results)

    @property
    def games(self) -> int:
        """Number of finished games."""
        return int(sum(each.games for each in self.results.values()))

    @property
    def is_narrow(self) -> bool:
        """True if the intervals are narrow enough."""
        return narrow_enough(self.standings, self.results.values(), self._plan.interval)

    @property
    def is_done(self) -> bool:
        """True if the intervals are narrow enough, or all games are played."""
        return self.is_narrow or self.games >= self._plan.games

    def trainer_added(self, trainer: Trainer) -> None:
        """Converts the models of the players, and keeps them where actors fetch them.

        Raises:
            UserError: A model cannot be used for the behavior.
        """
        behavior = trainer.context.behavior
        if behavior.name != self._plan.behavior:
            return
        self._index = behavior.index
        found = {
            place: load_model(player, behavior, is_deterministic=self._plan.is_deterministic)
            for place, player in enumerate(self._plan.players)
            if player.kind is Kind.MODEL
        }
        for place, player in enumerate(self._plan.players):
            if player.kind is Kind.RANDOM:
                found[place] = random_policy(next(iter(found.values())))
        try:
            self._keys = {place: self._snapshots.write(stored) for place, stored in found.items()}
            self._snapshots.keep(behavior.name, set(self._keys.values()))
        except WriteFailed as error:
            raise UserError(ExitCode.NOT_SAVED, f"{error}; choose another folder with --output") from error

    def received(self, behavior: str, item: Experience) -> None:
        """Counts the finished games of a chunk."""
        playing = self._playing.get(item.session_id)
        if playing is None:
            return
        if playing.score.add(behavior, item, self._counter):
            playing.heard_at = self._clock()
        if playing.score.is_over:
            del self._playing[item.session_id]
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
        if frozenset(players) != self._present:
            self._present, self._changed_at = frozenset(players), self._clock()
        if not self._has_begun:
            self._has_begun = len(players) >= self._plan.actors and self._clock() - self._changed_at >= SETTLE_SECONDS
        if self._has_begun:
            for actor in sorted(players.values(), key=lambda each: each.actor_index):
                if actor.session_id not in self._playing:
                    self._start(actor, index)

    def _finish(self, playing: _Playing) -> None:
        first, second = (self._plan.players[place] for place in playing.pair)
        found, played = playing.score.results, playing.score.played
        result = MatchResult(
            playing.score.match.number,
            first.identity,
            second.identity,
            int(found.wins),
            int(found.draws),
            int(found.losses),
            sum(each.length for each in played) / len(played),
            playing.actor,
        )
        self._journal.add(result)
        self._records.add(self._plan.behavior, playing.score.match, playing.score.record, (first.name, second.name))
        self.results = self._journal.results(self._plan.players)
        self.standings = rate(len(self._plan.players), self.results)
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
        live = self._roster.session_ids
        now = self._clock()
        for session_id, playing in list(self._playing.items()):
            reason = ""
            if session_id not in live:
                reason = "its actor has left"
            elif now - playing.heard_at >= self._plan.max_silent_seconds:
                reason = f"no game has ended for {self._plan.max_silent_seconds:g} s (rollcast.evaluation.max_silent_seconds)"
                self._leave_out(session_id, playing.actor, reason)
            if reason:
                del self._playing[session_id]
                log.warning(
                    "match_abandoned",
                    match=playing.score.match.number,
                    actor=playing.actor,
                    reason=reason,
                    episodes=len(playing.score.played),
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
            self._leave_out(actor.session_id, actor.name, f"it has {teams} teams of {self._plan.behavior}, not two")
        return False  # the second team may follow

    def _leave_out(self, session_id: str, name: str, reason: str) -> None:
        self._left_out[session_id] = reason
        log.warning("actor_left_out", actor=name, reason=reason)

    def _start(self, actor: Actor, index: int) -> None:
        plan = self._plan
        planned: dict[Pair, int] = {}
        for each in self._playing.values():
            planned[each.pair] = planned.get(each.pair, 0) + each.score.match.episodes
        left = plan.games - self.games - sum(planned.values())
        at_a_time = max(1, actor.agents.get(index, 1) // TEAMS)
        games = min(plan.match_games or max(at_a_time, LEAST_GAMES), left)
        if games < 1:
            return
        pair = next_pair(
            self.standings,
            self.results,
            planned,
            games=games,
            interval=plan.interval,
            may_play=lambda pair: _can_play(actor, [plan.players[place] for place in pair]),
        )
        if pair is None:
            self._leave_out(actor.session_id, actor.name, "it can play no two of the players")
            return
        seats = tuple(
            Seat(plan.behavior, team, AssignmentRole.OPPONENT, self._keys.get(place))
            for team, place in zip(actor.teams[index], pair, strict=True)
        )
        match = Match(self._number, actor.session_id, seats, episodes=games, random_steps=plan.random_moves)
        self._number += 1
        self._playing[actor.session_id] = _Playing(MatchScore(match), pair, actor.name, self._clock())
        self._send(StartMatch(match))


def missing_scripts(plan: Plan, results: Mapping[Pair, Results]) -> Sequence[str]:
    """Returns the scripts among the players of which no game was played: no actor with them took part."""
    played = {place for pair, found in results.items() if found.games for place in pair}
    return [player.script for place, player in enumerate(plan.players) if player.script and place not in played]


def _can_play(actor: Actor, players: Sequence[Player]) -> bool:
    """Returns whether an actor can play a game of two players; each script needs an actor of its own."""
    if not plays_policies(actor):
        return False
    scripts = [player.script for player in players if player.script]
    return len(scripts) < TEAMS and all(script == actor.opponent for script in scripts)
