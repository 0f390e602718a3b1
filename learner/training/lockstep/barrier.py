"""The barrier of lock-step: begins rounds, waits for all their experience, and decides where a restart continues.

A round begins when all its actors are connected, and ends when each has sent the quota of each of its agents. All
trainers then make one update from all of it, new versions are published, and the next round begins. Experience from any
other time is not trained, so that the result of a run depends on its settings and not on clocks.

After a fixed number of rounds the run is saved and environments restart with seeds derived from that round, also in a
run that continues. A restart continues from there and therefore gets the same result.

A lost actor breaks this: the run is marked as not reproducible and continues with the remaining actors. Steps that the
lost actor sent in its last round are trained. Its replacement plays from the next round on.

An actor that stays connected and does not end its round, or that fills the queue, is left out in the same way, until it
opens another session; its steps of the round are dropped. So is one that raises its number of agents until no round has
room, or far beyond the agents that take steps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from rollcast.enums import HoldReason
from rollcast.v1 import policy_pb2

from learner.link.to_front import Assign, Send, SetHold
from learner.link.to_trainers import Actor, Declared
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.rates import GrowingInterval
from learner.shared.observe.values import LEFT_OUT_REASONS
from learner.shared.observe.view import LockstepView
from learner.shared.saved_values import count, text
from learner.shared.settings.service import LockstepSettings
from learner.training.curriculum.lessons import Lessons
from learner.training.lockstep.round_queue import RoundQueue
from learner.training.lockstep.rounds import (
    Round,
    assigned,
    check_full,
    check_room,
    misfits,
    plays,
    quota_of,
    too_large,
)
from learner.training.trainers.conductor import Conductor
from learner.training.trainers.outcome_report import OutcomeReport
from learner.training.trainers.parts import RunPart, Trainers
from learner.training.trainers.roster import Roster

log = structlog.get_logger(__name__)

ENV_ERROR = "env_error"
SAY_SECONDS = 30.0
"""Seconds between two log lines about what a run waits for; only `max_wait_seconds` decides by a clock."""
LONGEST_SECONDS = 600.0
"""Longest interval between two log lines about missing actors."""
MAX_NAMED = 10
LATE, TOO_LARGE = LEFT_OUT_REASONS
MAX_IDLE_RATIO = 16
"""Announced agents for each agent that takes steps; an actor that announces more is left out."""
LONGEST_TURN_SECONDS = 10.0
"""Most seconds between two turns that count as waiting; trainers take no turns while the run is paused."""


class Lockstep(RunPart):
    """Leads a run in lock-step. Call all methods except `view` in the trainers' thread, before it or after it.

    Args:
        settings: Number of actors and length of a round.
        roster: The connected actors.
        lessons: Lessons that set the environment parameters.
        send: Sends the service the assignment of a round, and a hold of all actors while some are missing.
        is_ending: Returns whether no more rounds begin.
        on_spoiled: Called with the reason when the run stops being reproducible.
        conductor: Tells the other ranks of each round.
        ranks: Number of ranks that train together.
        clock: Returns monotonic seconds.
    """

    name = "lockstep"

    def __init__(
        self,
        settings: LockstepSettings,
        roster: Roster,
        lessons: Lessons,
        *,
        send: Send,
        is_ending: Callable[[], bool] = lambda: False,
        on_spoiled: Callable[[str], None] | None = None,
        conductor: Conductor | None = None,
        ranks: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._roster = roster
        self._queues: list[RoundQueue] = []
        self._lessons = lessons
        self._on_spoiled = on_spoiled
        self._conductor = conductor
        self._ranks = ranks
        self._send = send
        self._is_ending = is_ending
        self._is_holding = False
        self._round = 0  # completed rounds
        self._checkpoint = 0
        self._reason = ""
        self._quota_steps = settings.quota_steps or 0
        self._playing: Round | None = None
        self._has_begun = False
        self._resets = True  # a starting learner knows nothing about the environments it finds
        self._env_errors: dict[tuple[str, int], int] = {}
        self._left_out: set[str] = set()
        self._times_left_out = dict.fromkeys(LEFT_OUT_REASONS, 0)
        self._clock = clock
        self._waited_seconds = 0.0
        self._waited_at: float | None = None
        self._say_at = 0.0
        self._short = GrowingInterval(SAY_SECONDS, LONGEST_SECONDS)

    @property
    def is_boundary(self) -> bool:
        """Returns whether a restart continues from the trainers' current state: nothing was trained since."""
        return self._round == self._checkpoint and not (self._playing is not None and self._playing.is_released)

    def view(self) -> LockstepView:
        """Returns the progress of the rounds; callable from any thread."""
        playing = self._playing
        joined = len(self._roster.actors) if playing is None else len(playing.players) - len(playing.gone)
        return LockstepView(
            actors=self._settings.actors,
            joined=joined,
            round=self._round,
            checkpoint_round=self._checkpoint,
            quota_steps=self._quota_steps,
            reason=self._reason,
            left_out=dict(self._times_left_out),
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a restart needs, as plain values."""
        ranks = {"ranks": self._ranks} if self._ranks > 1 else {}
        return {"round": self._round, "checkpoint": self._checkpoint, "reason": self._reason, **ranks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`; an empty state comes from a run without lock-step.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        if not state:
            self._reason = "the run began without lock-step"
            return
        self._round, self._checkpoint = count(state, "round"), count(state, "checkpoint")
        self._reason = text(state, "reason")
        ranks = count(state, "ranks") if "ranks" in state else 1
        if ranks != self._ranks:
            self._reason = (
                self._reason or f"the run began with {ranks} trainer processes and continues with {self._ranks}"
            )

    def spoil(self, reason: str) -> None:
        """Marks the run as not reproducible with the same settings. The first reason is kept."""
        if self._reason:
            return
        self._reason = f"{reason}, in round {self._round + 1}"
        log.warning("not_reproducible", reason=self._reason, consequence="training continues with the remaining actors")
        if self._on_spoiled is not None:
            self._on_spoiled(self._reason)

    def note_lessons(self, *, reset: bool) -> None:
        """Notes that a lesson begins with the next round.

        Args:
            reset: Whether environments restart for it.
        """
        self._resets |= reset

    def make_queue(self, declared: Declared, outcomes: OutcomeReport) -> RoundQueue:
        """Creates the queue of a behavior, which holds experience until its round is over.

        Args:
            declared: The behavior.
            outcomes: Settles its steps.
        """
        queue = RoundQueue(declared, outcomes, self._conductor)
        self._queues.append(queue)
        return queue

    def before_turn(self, trainers: Trainers) -> None:
        """Passes the current round to the trainers once it is complete.

        Raises:
            UserError: The round does not fit the queue.
        """
        del trainers
        playing = self._playing
        if playing is None or playing.is_released:
            return
        for player in playing.lose(self._roster.session_ids):
            self.spoil(f"actor {player.actor_index} ({player.name}) was lost")
        queues = self._trained()
        for queue in queues:
            for place in queue.take_too_large():
                self._leave_out_large(playing, queue, place)
        awaited = playing.awaited(queues)
        if awaited:
            check_full(queues)
            if not self._is_too_late(playing, awaited):
                self._say_waiting(playing, awaited)
                return
            for player in awaited:
                self._leave_out_of(
                    playing, player, LATE, f"did not end its round within {self._settings.max_wait_seconds:g} s"
                )
        playing.is_released = True
        steps: Counter[tuple[str, int]] = Counter()
        for queue in queues:
            steps.update(self._release(playing, queue))
        self._check_agents(playing, steps)

    def _check_agents(self, playing: Round, steps: Mapping[tuple[str, int], int]) -> None:
        """Leaves out actors that announce many more agents than took steps, before and after a round.

        Quotas are shares of an update for each announced agent, so such an actor would make all rounds short. A number
        that was raised during the round is judged after the next one.
        """
        now = {actor.session_id: actor.agents for actor in self._roster.actors}
        for player in playing.players:
            for index, agents in player.agents.items():
                announced = min(agents, now.get(player.session_id, {}).get(index, 0))
                acted = max(1, -(-steps.get((player.session_id, index), 0) // max(1, self._quota_steps)))
                if announced > MAX_IDLE_RATIO * acted and player.session_id not in self._left_out | playing.gone:
                    what = f"announced {announced} agents, of which at most {acted} took steps"
                    self._leave_out(playing.number, player, TOO_LARGE, what)

    def play(self, trainers: Trainers, save: Callable[[Trainers], object]) -> None:
        """Ends the trained round after a turn, saves the run if due, and begins the next round.

        Args:
            trainers: All trainers.
            save: Writes the run state.

        Raises:
            UserError: A round does not fit the available memory.
        """
        playing = self._playing
        if playing is not None:
            if not playing.is_released or any(queue.has_released for queue in self._queues):
                return
            self._complete(playing, trainers, save)
        if not self._is_ending():
            self._begin(trainers, save)

    def _is_too_late(self, playing: Round, awaited: Sequence[Actor]) -> bool:
        """Returns whether actors that ended their round have waited too long for others; a pause does not count."""
        now, before = self._clock(), self._waited_at
        self._waited_at = now
        if len(awaited) == len(playing.players) - len(playing.gone):
            return False  # no actor waits for another
        if before is not None:
            self._waited_seconds += min(now - before, LONGEST_TURN_SECONDS)
        return self._waited_seconds >= self._settings.max_wait_seconds

    def _leave_out_large(self, playing: Round, queue: RoundQueue, place: int) -> None:
        """Leaves out an actor that took most of a full queue.

        Raises:
            UserError: No other actor is left, so the round itself is too large.
        """
        remaining = [player for player in playing.players if player.session_id not in playing.gone]
        for player in [each for each in remaining if each.actor_index == place]:
            if len(remaining) == 1:
                raise too_large(queue.behavior, "takes more than there is room for")
            self._leave_out_of(
                playing, player, TOO_LARGE, "filled the queue (rollcast.queue_bytes) with its part of a round"
            )

    def _leave_out_of(self, playing: Round, player: Actor, reason: str, what: str) -> None:
        """Continues the present round and later ones without an actor."""
        playing.gone.add(player.session_id)
        self._leave_out(playing.number, player, reason, what)

    def _leave_out(self, number: int, player: Actor, reason: str, what: str) -> None:
        """Continues rounds from a number on without an actor until it opens another session."""
        self._left_out.add(player.session_id)
        self._times_left_out[reason] += 1
        log.warning(
            "actor_left_out",
            actor=player.name,
            actor_index=player.actor_index,
            round=number,
            reason=reason,
            why=f"it {what}",
            next="restart the actor; until then the rounds go on without it",
        )
        self.spoil(f"actor {player.actor_index} ({player.name}) {what}")

    def _trained(self) -> list[RoundQueue]:
        """Returns the queues of the trained behaviors, sorted by name, because they may be declared in any order."""
        return sorted((each for each in self._queues if not each.is_closed), key=lambda each: each.behavior.name)

    def _release(self, playing: Round, queue: RoundQueue) -> Counter[tuple[str, int]]:
        """Passes a round to a trainer; returns its steps by session and behavior."""
        behavior, items = queue.behavior, queue.release(playing.session_ids - self._left_out)
        for reason in playing.faults(behavior, items):
            self.spoil(reason)
        for item in items:
            errors = item.chunk.discarded.get(ENV_ERROR, 0)
            before = self._env_errors.get((item.session_id, behavior.index), 0)
            self._env_errors[item.session_id, behavior.index] = errors
            if errors > before:
                self.spoil(f"environments of actor {item.actor_index} failed")
        steps: Counter[tuple[str, int]] = Counter()
        for item in items:
            steps[item.session_id, behavior.index] += item.chunk.rows
        return steps

    def _complete(self, playing: Round, trainers: Trainers, save: Callable[[Trainers], object]) -> None:
        for trainer in trainers.values():
            left = trainer.untrained_steps
            if left:
                raise UserError(
                    ExitCode.RUN_FILE,
                    f"{left} steps of round {playing.number} of {trainer.brain_name} were not trained: the training device "
                    "lacks memory for a whole round; lower rollcast.lockstep.quota_steps or the number of agents",
                )
        self._round = playing.number
        self._playing = None
        # No run state after a behavior's last round, which is not trained but would be in a run with more steps.
        has_ended = not playing.trained.issubset(queue.behavior.index for queue in self._trained())
        if self._round % self._settings.checkpoint_updates == 0 and not has_ended:
            # Also done if saving fails, because an undisturbed run would have restarted its environments here.
            self._checkpoint = self._round
            self._resets = True
            save(trainers)

    def _begin(self, trainers: Trainers, save: Callable[[Trainers], object]) -> None:
        behaviors = [queue.behavior for queue in self._trained()]
        players = self._players(trainers)
        needed = 1 if self._has_begun else self._settings.actors
        # Actors of finished behaviors continue to play for the others, and make no round by themselves.
        is_short = len(players) < needed or not any(plays(player, behaviors) for player in players)
        self._set_hold(active=is_short and bool(behaviors))
        if is_short:
            self._say_short(len(players), needed)
        else:
            self._short.restart()
        if is_short or not behaviors:
            return
        if not self._has_begun:
            players = players[: self._settings.actors]
        players = self._fitting(behaviors, players)
        self._quota_steps = self._quota(behaviors, players)
        if not self._has_begun:
            self._announce(players, behaviors)
            if self._round == 0:
                save(trainers)
        self._has_begun = True
        versions = {trainer.context.behavior.index: trainer.version for trainer in trainers.values()}
        playing = Round(self._round + 1, tuple(players), versions, frozenset(behavior.index for behavior in behaviors))
        assignment = self._order(playing)
        self._resets = False
        self._playing = playing
        self._waited_seconds, self._waited_at = 0.0, None
        self._say_at = time.monotonic() + SAY_SECONDS
        self._send(Assign(assignment, playing.session_ids))

    def _quota(self, behaviors: Sequence[Declared], players: Sequence[Actor]) -> int:
        return self._settings.quota_steps or quota_of(behaviors, players)

    def _fitting(self, behaviors: Sequence[Declared], players: list[Actor]) -> list[Actor]:
        """Returns the players of a round that fits the queue; leaves out the one with the most agents until it does.

        An actor may raise its number of agents after the first round, and must not end the run of the others by it.

        Raises:
            UserError: The first round does not fit, or that of a single player.
        """
        while True:
            try:
                check_room(behaviors, players, self._quota(behaviors, players))
            except UserError:
                if not self._has_begun or len(players) == 1:
                    raise
            else:
                return players
            largest = max(players, key=lambda player: sum(player.agents.values()))
            agents = sum(largest.agents.values())
            self._leave_out(self._round + 1, largest, TOO_LARGE, f"has {agents} agents, for which no round has room")
            players = [player for player in players if player is not largest]

    def _say_waiting(self, playing: Round, awaited: Sequence[Actor]) -> None:
        """Logs from time to time which actors keep a long round from ending."""
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + SAY_SECONDS
            names = ", ".join(f"{player.actor_index} ({player.name})" for player in awaited[:MAX_NAMED])
            log.info("lockstep_waits", round=playing.number, awaited=len(awaited), actors=names)

    def _say_short(self, joined: int, needed: int) -> None:
        """Logs at growing intervals that actors are missing."""
        if self._short.passed():
            log.info("lockstep_waits_for_actors", joined=joined, needed=needed)

    def _set_hold(self, *, active: bool) -> None:
        """Begins or ends a hold of all actors because others are missing."""
        if active != self._is_holding:
            self._is_holding = active
            self._send(SetHold(HoldReason.LOCKSTEP, active=active))

    def _players(self, trainers: Trainers) -> list[Actor]:
        """Returns the actors that can play now, by actor index: those that have declared their behaviors."""
        known = {trainer.context.behavior.index for trainer in trainers.values()}
        self._left_out &= self._roster.session_ids
        actors = (actor for actor in self._roster.actors if actor.session_id not in self._left_out)
        ready = [actor for actor in actors if actor.agents and known.issuperset(actor.agents)]
        return sorted(ready, key=lambda player: player.actor_index)

    def _order(self, playing: Round) -> policy_pb2.Assignment:
        assignment = self._lessons.assignment(reset=self._resets) or policy_pb2.Assignment()
        assignment.reset = policy_pb2.RESET_MODE_NOW if self._resets else policy_pb2.RESET_MODE_NONE
        assignment.lockstep_quota_steps = self._quota_steps
        assignment.lockstep_round = playing.number
        assignment.lockstep_checkpoint = self._checkpoint
        assignment.behaviors.extend(
            assigned((each.behavior for each in self._queues), playing.players, playing.versions)
        )
        return assignment

    def _announce(self, players: Sequence[Actor], behaviors: Sequence[Declared]) -> None:
        steps = {
            behavior.name: self._quota_steps * sum(player.agents.get(behavior.index, 0) for player in players)
            for behavior in behaviors
        }
        if self._settings.quota_steps is None:
            for name, buffer_size in misfits(behaviors, steps).items():
                log.warning(
                    "buffer_size_does_not_fit",
                    behavior=name,
                    buffer_size=buffer_size,
                    update_steps=steps[name],
                    hint=f"all agents take equally many steps: set buffer_size to {steps[name]}",
                )
        log.info(
            "lockstep_begins",
            round=self._round + 1,
            actors=len(players),
            quota_steps=self._quota_steps,
            steps_per_update=steps,
            checkpoint_updates=self._settings.checkpoint_updates,
        )
