"""Runs self-play between the turns of the trainers: snapshots, the team on turn, matches of all actors, ratings."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import structlog
from rollcast.enums import AssignmentRole

from learner.link.matches import Match, Seat, games_of, match_numbers
from learner.link.to_front import Send, StartMatch
from learner.link.to_trainers import Actor, Actors, Declared, Experience
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed
from learner.shared.policies import PolicyKey
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.saved_values import MAX_CLAIMED, count, shown
from learner.shared.settings.options import RunOptions
from learner.shared.settings.trainer import SelfPlaySettings
from learner.training.curriculum.lessons import Lessons
from learner.training.export.frozen import UnusableModel, load_frozen
from learner.training.matches.games import BehaviorId
from learner.training.matches.league import League
from learner.training.matches.rating import Strengths
from learner.training.matches.self_play_ratings import DrawnMatch, DrawnOpponent, Ratings
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import RunPart, Trainers
from learner.training.trainers.roster import Roster

Keys: TypeAlias = frozenset[tuple[str, PolicyKey]]
"""Policies by behavior."""

KEPT_MATCHES: Final = 64
"""Matches remembered of each session: games of older ones are not rated. Between two draws of opponents an actor may
finish no game, because the draws follow the ghost steps of all actors."""
_MAX_TEAM: Final = 2**31

log = structlog.get_logger(__name__)


class TeamQueue:
    """The teams of all behaviors with self-play, of which one learns at a time.

    Attributes:
        teams: The teams in the order in which they learn, the learning one first.
    """

    def __init__(self) -> None:
        self.teams: tuple[int, ...] = ()

    @property
    def on_turn(self) -> int | None:
        """The learning team; None before the first team."""
        return self.teams[0] if self.teams else None

    def add(self, teams: Iterable[int]) -> None:
        """Appends new teams in ascending order; the first one of all learns first."""
        self.teams += tuple(sorted(set(teams) - set(self.teams)))

    def change(self, can_learn: Callable[[int], bool]) -> bool:
        """Gives the turn to the next team that can learn; returns whether it is another one than before."""
        for place in range(1, len(self.teams)):
            if can_learn(self.teams[place]):
                self.teams = self.teams[place:] + self.teams[:place]
                return True
        return False

    def state_dict(self) -> dict[str, Any]:
        """Returns the teams in the order in which they learn."""
        return {"teams": list(self.teams)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        teams = state["teams"]
        if any(type(team) is not int or not -_MAX_TEAM <= team < _MAX_TEAM for team in teams):
            raise ValueError(f"the teams are {shown(teams)}, but must be whole numbers")
        if len(set(teams)) != len(teams):
            raise ValueError("a team appears twice")
        self.teams = tuple(teams)


class SelfPlayManager(RunPart):
    """Manages the self-play of all behaviors whose settings have it.

    Args:
        options: The run file.
        roster: The connected actors.
        send: Sends the service the matches of actors.
        snapshots: Keeps the files of snapshots.
        seed: Seed of the draws.
        generation: Generation of this start of the learner.
        on_elo: Called with a behavior and its rating when a snapshot is saved, and at the end.
        on_target: Ends the run; called after the turn in which an ELO reached ``rollcast.target_rating``.
        lessons: Lessons of the run; the target counts only in the last one of each parameter.
        clock: Returns monotonic seconds.
    """

    name = "self_play"

    def __init__(
        self,
        options: RunOptions,
        roster: Roster,
        send: Send,
        snapshots: SnapshotFiles,
        *,
        seed: int,
        generation: int,
        on_elo: Callable[[str, float], object],
        on_target: Callable[[], object],
        lessons: Lessons,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._roster = roster
        self._send = send
        self._snapshots = snapshots
        self._on_elo = on_elo
        self._on_target = on_target
        self._lessons = lessons
        self._queue = TeamQueue()
        self._seed = seed
        self._drawn = 0  # draws so far, each of which has a generator of its own
        self._leagues: dict[str, League] = {}
        self._strengths = Strengths()
        self._numbers = match_numbers(generation)
        self._matches: dict[str, deque[DrawnMatch]] = {}  # the newest of each session
        self._ratings = Ratings(self._leagues, self._strengths, clock)
        self._trainers: dict[str, Trainer] = {}
        self._ghosts: dict[tuple[str, str], int] = {}  # ghost steps by session and behavior, as last reported
        self._actors: Actors | None = None  # for which all sessions have their seats
        self._ids: frozenset[BehaviorId] = frozenset()  # of all actors
        self._learning: frozenset[str] = frozenset()
        self._saved: tuple[Keys, ...] = ()  # keys in the newest run states
        self._kept: Keys = frozenset()
        self._has_warned = False

    def trainer_added(self, trainer: Trainer) -> None:
        """Begins the self-play of a behavior, or continues it.

        Snapshots without a file are left out with a warning.

        Raises:
            UserError: A frozen opponent cannot be used.
        """
        settings = trainer.trainer_settings.self_play
        if settings is None or not trainer.is_training:
            return
        name = trainer.brain_name
        self._trainers[name] = trainer
        league = self._leagues.get(name)
        if league is None:
            league = self._leagues[name] = League(name, settings)
        self._strengths.add_row(name, settings.initial_elo)
        self._add_frozen(trainer.context.behavior, league)
        lost = league.discard_lost(self._snapshots.keys(name))
        if lost:
            log.warning("snapshots_lost", behavior=name, versions=[each.version for each in lost])
        self._snapshots.keep(name, league.keys)
        trainer.numbers.update(league.numbers())

    def _add_frozen(self, behavior: Declared, league: League) -> None:
        """Makes the models of the run file snapshots that actors fetch.

        Raises:
            UserError: A file cannot be used for this behavior, or cannot be copied to the run folder.
        """
        for name, path in league.settings.frozen_opponents.items():
            try:
                found = load_frozen(Path(path), behavior.spec, behavior.index)
                league.add_frozen(name, found.digest, self._snapshots.write(found.stored))
            except (UnusableModel, WriteFailed) as error:
                setting = f"behaviors.{behavior.name}.self_play.frozen_opponents.{name}"
                raise UserError(ExitCode.RUN_FILE, f"{setting}: {path}: {error}") from error

    def received(self, behavior: str, item: Experience) -> None:
        """Rates the games of a chunk and counts its ghost steps."""
        league = self._leagues.get(behavior)
        if league is None or behavior not in self._trainers:
            return
        ghosts = item.chunk.ghost_steps
        key = item.session_id, behavior
        league.ghost_steps += max(0, ghosts - self._ghosts.get(key, 0))
        self._ghosts[key] = max(ghosts, self._ghosts.get(key, 0))
        self._trainers[behavior].numbers["ghost_steps"] = league.ghost_steps
        for game in games_of(behavior, item.chunk):
            newest_first = reversed(self._matches.get(item.session_id, ()))
            match = next((each for each in newest_first if each.match.number == game.match), None)
            if match is not None:
                self._ratings.add(item.session_id, game, match, self._trainers)

    def after_turn(self, trainers: Trainers) -> None:
        """Saves snapshots, changes the team, and gives actors their matches."""
        del trainers
        if not self._trainers:
            return
        self._save_snapshots()
        self._look_at_actors()
        is_changed = self._change_team()
        is_swap = any(league.swaps.is_due(league.ghost_steps) for league in self._leagues.values())
        learning = self._learners()
        if is_changed or is_swap or learning != self._learning:
            self._learning = learning
            for league in self._leagues.values():
                league.swaps.restart(league.ghost_steps)
            self._seat(self._roster.actors)
        elif self._actors is not self._roster.newest:
            self._seat([actor for actor in self._roster.actors if not self._is_seated(actor)])
        self._actors = self._roster.newest
        self._ratings.refresh(self._trainers)
        self._tidy()
        if self._is_at_target():
            self._on_target()

    def _is_at_target(self) -> bool:
        target = self._options.rollcast.target_rating
        if target is None or not self._lessons.are_last():
            return False
        return any(league.elo.value >= target for league in self._leagues.values())

    def training_ended(self, trainers: Trainers, ended: Collection[str]) -> None:
        """Gives the turn to another team if the present one cannot learn any more, and reports the ratings."""
        del trainers, ended
        for name, league in self._leagues.items():
            self._on_elo(name, league.elo.value)
        on_turn = self._queue.on_turn
        if on_turn is not None and not self._can_learn(on_turn) and self._queue.change(self._can_learn):
            self._tell_team()

    def state_dict(self) -> dict[str, Any]:
        """Returns pools, ratings, the team on turn, counters and the state of the draws."""
        self._saved = (*self._saved[-1:], self._keys())
        return {
            "queue": self._queue.state_dict(),
            "random": {"drawn": self._drawn},
            "strengths": self._strengths.state_dict(),
            "leagues": {name: league.state_dict() for name, league in self._leagues.items()},
            "ghosts": [[*key, steps] for key, steps in self._ghosts.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        if not state:
            return
        self._queue.load_state_dict(state["queue"])
        self._drawn = count(state["random"], "drawn")
        self._strengths.load_state_dict(state["strengths"])
        for name, saved in state["leagues"].items():
            settings = self._settings_of(name)
            if settings is not None:
                league = self._leagues[name] = League(name, settings)
                league.load_state_dict(saved)
        for session_id, behavior, steps in state["ghosts"]:
            self._ghosts[str(session_id), str(behavior)] = count({"ghosts": steps}, "ghosts", most=MAX_CLAIMED)
        self._saved = (self._keys(),)

    def _settings_of(self, name: str) -> SelfPlaySettings | None:
        """Returns the settings of a behavior of an earlier start; None if it has no self-play any more."""
        try:
            return self._options.settings_for(name).self_play
        except UserError:
            return None

    def _save_snapshots(self) -> None:
        for name, trainer in self._trainers.items():
            league, steps = self._leagues[name], trainer.steps_trained
            if not league.is_save_due(steps):
                continue
            try:
                key = self._snapshots.write(trainer.snapshot())
            except WriteFailed as error:
                league.saves.restart(steps)  # tried again after the next interval
                log.error("snapshot_not_saved", behavior=name, error=str(error))
                continue
            league.save(key, steps)
            self._strengths.advance(name, league.settings.window + 1)
            trainer.numbers["pool_snapshots"] = len(league.snapshots)
            self._on_elo(name, league.elo.value)
            if league.saved > 1 and len(self._ids) == 1 and not self._has_warned:
                self._has_warned = True
                action = "give each actor's agents two teams, as the actor's --team 'player_1=1' does"
                log.warning("self_play_without_opponents", behavior=name, team=min(self._ids)[1], action=action)
            log.debug("snapshot_saved", behavior=name, version=key.version, step=steps, elo=league.elo.value)

    def _look_at_actors(self) -> None:
        """Adds new teams, and forgets the sessions that have ended."""
        if self._actors is self._roster.newest:
            return
        self._ids = frozenset(each for actor in self._roster.actors for each in self._ids_of(actor))
        self._queue.add(team for _, team in self._ids)
        present = self._roster.session_ids
        self._matches = {key: matches for key, matches in self._matches.items() if key in present}
        self._ghosts = {key: steps for key, steps in self._ghosts.items() if key[0] in present}

    def _ids_of(self, actor: Actor) -> list[BehaviorId]:
        indices = {trainer.context.behavior.index: name for name, trainer in self._trainers.items()}
        return [(indices[index], team) for index, teams in actor.teams.items() if index in indices for team in teams]

    def _learners(self) -> frozenset[str]:
        return frozenset(name for name, trainer in self._trainers.items() if trainer.should_still_train)

    def _can_learn(self, team: int) -> bool:
        learning = self._learners()
        return any(name in learning and each == team for name, each in self._ids)

    def _change_team(self) -> bool:
        """Gives the turn to the next team if the present one has had its steps; returns whether another one learns."""
        learning = self._learners()
        taught = [name for name, team in self._ids if team == self._queue.on_turn and name in learning]
        steps = {name: self._trainers[name].steps_trained for name in taught}
        if not any(self._leagues[name].turns.is_due(steps[name]) for name in taught):
            return False
        for name in taught:
            self._leagues[name].turns.restart(steps[name])
        is_changed = self._queue.change(self._can_learn)
        if is_changed:
            self._tell_team()
        return is_changed

    def _tell_team(self) -> None:
        log.info("team_changed", learning_team=self._queue.on_turn)

    def _is_seated(self, actor: Actor) -> bool:
        matches = self._matches.get(actor.session_id)
        seats = matches[-1].match.seats if matches else ()
        return {(seat.behavior, seat.team) for seat in seats} == set(self._ids_of(actor))

    def _seat(self, actors: Sequence[Actor]) -> None:
        """Gives actors their next matches."""
        on_turn = self._queue.on_turn
        if on_turn is None:
            return
        learning = self._learners()
        for actor in sorted(actors, key=lambda each: each.actor_index):
            if behavior_ids := self._ids_of(actor):
                drawn = self._draw(actor, behavior_ids, on_turn, learning)
                self._matches.setdefault(actor.session_id, deque(maxlen=KEPT_MATCHES)).append(drawn)
                self._send(StartMatch(drawn.match))
        for trainer in self._trainers.values():
            trainer.numbers["learning_team"] = on_turn

    def _draw(self, actor: Actor, ids: Collection[BehaviorId], on_turn: int, learning: Collection[str]) -> DrawnMatch:
        """Returns a new match of an actor: the team on turn learns, all others play drawn opponents.

        Args:
            actor: The actor, whose script plays all its opponents if it has one.
            ids: Its behavior ids with self-play.
            on_turn: The learning team.
            learning: Behaviors whose training has not ended.
        """
        self._drawn += 1
        random = np.random.default_rng([self._seed, self._drawn])
        seats, opponents = [], []
        for behavior, team in sorted(ids):
            if team == on_turn and behavior in learning:
                seats.append(Seat(behavior, team, AssignmentRole.LEARN))
                continue
            key = None
            # A finished behavior of the learning team plays its newest policy, and is nobody's opponent.
            if team != on_turn:
                league = self._leagues[behavior]
                found = league.script(actor.opponent) if actor.opponent else league.draw(random)
                if found is not None:
                    key = found.key
                    self._strengths.add_row(found.player[0], league.settings.initial_elo)
                player = self._strengths.current(behavior) if found is None else found.player
                opponents.append(DrawnOpponent(behavior, found, player, self._trainers[behavior].steps_trained))
            seats.append(Seat(behavior, team, AssignmentRole.OPPONENT, key))
        return DrawnMatch(Match(next(self._numbers), actor.session_id, tuple(seats)), tuple(opponents))

    def _keys(self) -> Keys:
        """Returns the policies that pools and present matches name."""
        pools = {(name, key) for name, league in self._leagues.items() for key in league.keys}
        newest = [opponent for matches in self._matches.values() for opponent in matches[-1].opponents]
        drawn = {(each.behavior, each.policy.key) for each in newest if each.policy}
        return frozenset(pools | {(name, key) for name, key in drawn if key is not None})

    def _tidy(self) -> None:
        """Deletes the files of policies that nothing names any more, neither the newest run states."""
        needed = self._keys().union(*self._saved)
        if self._kept - needed:
            files: dict[str, set[PolicyKey]] = {name: set() for name in self._leagues}
            for name, key in needed:
                files.setdefault(name, set()).add(key)
            for name, keys in files.items():
                self._snapshots.keep(name, keys)
        self._kept = needed
