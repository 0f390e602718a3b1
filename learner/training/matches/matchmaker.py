"""Seats the behavior ids of an actor: the team on turn learns, all others play drawn opponents."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rollcast.enums import AssignmentRole

from learner.link.matches import Match, Seat, match_numbers
from learner.training.matches.draw import Random, draw
from learner.training.matches.fixed import FixedOpponent
from learner.training.matches.league import League
from learner.training.matches.pool import Snapshot
from learner.training.matches.rating import Strengths
from learner.training.matches.self_play_games import Drawn, Table

BehaviorId = tuple[str, int]
"""Name and team."""


class Matchmaker:
    """Draws matches.

    Args:
        leagues: Pools and settings of all behaviors with self-play; grows later.
        strengths: Knows the players.
        random: Source of random numbers.
        generation: Generation of this start of the learner.
    """

    def __init__(self, leagues: Mapping[str, League], strengths: Strengths, random: Random, *, generation: int) -> None:
        self._leagues = leagues
        self._strengths = strengths
        self._random = random
        self._numbers = match_numbers(generation)

    def seat(
        self,
        session_id: str,
        behavior_ids: Collection[BehaviorId],
        *,
        on_turn: int,
        learning: Collection[str],
        steps: Mapping[str, int],
        script: str = "",
    ) -> Table:
        """Returns a new match of an actor.

        Args:
            session_id: Session of the actor.
            behavior_ids: Its behavior ids with self-play.
            on_turn: The learning team.
            learning: Behaviors whose training has not ended.
            steps: Trained steps of each behavior.
            script: Name of the actor's script, which plays all its opponents; empty for none.
        """
        seats, opponents = [], []
        random = self._random.next()
        for behavior, team in sorted(behavior_ids):
            if team == on_turn and behavior in learning:
                seats.append(Seat(behavior, team, AssignmentRole.LEARN))
                continue
            league = self._leagues[behavior]
            # A finished behavior of the learning team plays its newest policy, and is nobody's opponent.
            drawn = None
            if team != on_turn:
                drawn = league.fixed.script(behavior, script) if script else draw(league, random)
                opponents.append(self._drawn(behavior, team, drawn, steps[behavior]))
            seats.append(Seat(behavior, team, AssignmentRole.OPPONENT, None if drawn is None else drawn.key))
        return Table(Match(next(self._numbers), session_id, tuple(seats)), tuple(opponents))

    def _drawn(self, behavior: str, team: int, found: FixedOpponent | Snapshot | None, steps: int) -> Drawn:
        if found is None:
            return Drawn(behavior, team, None, self._strengths.current(behavior), steps)
        if isinstance(found, Snapshot):
            return Drawn(behavior, team, found.number, (behavior, found.number), found.step, found.key)
        self._strengths.add_row(found.row, self._leagues[behavior].settings.initial_elo)
        return Drawn(behavior, team, None, self._strengths.current(found.row), steps, found.key, found.row)
