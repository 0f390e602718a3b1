"""The barrier of lock-step: it begins rounds, waits for everything that they bring, and decides where a restart goes on.

A round begins when every actor of it is here, and is over when each has sent the quota of each of its agents. Then all
trainers make one update of all of it, new versions go out, and the next round begins. Nothing is trained that came at
another time, so that what a run comes to depends on its settings and not on clocks.

After every so many rounds the run is saved, and environments begin anew with seeds that follow from that round: in a run
that goes on, too. A restart goes on from there, and so comes to the same.

An actor that is lost spoils that: the run is marked as not reproducible, and goes on with those that are left. What the
lost one sent in its last round is trained. Who comes in its place plays from the next round on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from rollcast.enums import HoldReason
from rollcast.v1 import policy_pb2

from learner.common.exits import ExitCode, UserError
from learner.common.saved_values import count, text
from learner.curriculum.lessons import Lessons
from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.sessions import SessionTable
from learner.link.commands import Assign, Send, SetHold
from learner.observe.view import LockstepView
from learner.run.lockstep.rounds import Player, Round, assigned, check_full, check_room, quota_of, round_queue
from learner.settings.service import LockstepSettings
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)

STRANGER = "lockstep"
"""What the books say of steps that somebody took outside of any round."""
ENV_ERROR = "env_error"
SAY_SECONDS = 30.0
"""So often people are told what a run waits for; no clock decides anything else here."""
MAX_NAMED = 10

Save = Callable[[Mapping[str, Trainer]], object]


class Lockstep:
    """Leads a run in lock-step. All but `view` runs in the trainer thread, or before it does.

    Args:
        settings: how many actors, and how long a round is.
        behaviors: of the run.
        sessions: the actors.
        ledger: the books.
        lessons: what the environments are set to.
        send: hands the service a command: the assignment of a round, or a hold while actors are missing.
        on_spoiled: told why the run is not reproducible any more.
    """

    def __init__(
        self,
        settings: LockstepSettings,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        lessons: Lessons,
        *,
        send: Send,
        on_spoiled: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._behaviors = behaviors
        self._sessions = sessions
        self._ledger = ledger
        self._lessons = lessons
        self._on_spoiled = on_spoiled
        self._send = send
        self._is_holding = False
        self._round = 0  # completed
        self._checkpoint = 0
        self._reason = ""
        self._quota_steps = settings.quota_steps or 0
        self._playing: Round | None = None
        self._has_begun = False
        self._resets = True  # a learner that starts knows nothing of the environments it finds
        self._env_errors: dict[tuple[str, int], int] = {}
        self._say_at = self._short_at = 0.0

    @property
    def is_boundary(self) -> bool:
        """Whether what trainers are now is what a restart goes on from: nothing was trained since."""
        return self._round == self._checkpoint and not (self._playing is not None and self._playing.is_released)

    def view(self) -> LockstepView:
        """Returns how far it is; from any thread."""
        playing = self._playing
        joined = len(self._sessions.live()) if playing is None else len(playing.players) - len(playing.gone)
        return LockstepView(
            actors=self._settings.actors,
            joined=joined,
            round=self._round,
            checkpoint_round=self._checkpoint,
            quota_steps=self._quota_steps,
            reason=self._reason,
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns what a restart needs, as plain values."""
        return {"round": self._round, "checkpoint": self._checkpoint, "reason": self._reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`; one that is empty is of a run that was not in lock-step.

        Raises:
            KeyError, TypeError, ValueError: it is not what was saved.
        """
        if not state:
            self._reason = "the run began without lock-step"
            return
        self._round, self._checkpoint = count(state, "round"), count(state, "checkpoint")
        self._reason = text(state, "reason")

    def spoil(self, reason: str) -> None:
        """Marks the run: another one of the same settings would not come to the same. The first reason is kept."""
        if self._reason:
            return
        self._reason = f"{reason}, in round {self._round + 1}"
        log.warning(
            "not_reproducible", reason=self._reason, consequence="training goes on with the actors that are here"
        )
        if self._on_spoiled is not None:
            self._on_spoiled(self._reason)

    def note_lessons(self, *, reset: bool) -> None:
        """Notes that a lesson begins, with the next round.

        Args:
            reset: environments begin anew for it.
        """
        self._resets |= reset

    def before_turn(self) -> None:
        """Hands the trainers the round that is played, once it is complete.

        Raises:
            UserError: it does not fit the queue.
        """
        playing = self._playing
        if playing is None or playing.is_released:
            return
        # Before the queues: what somebody sent who is gone by now is in them.
        for player in playing.lose({session.session_id for session in self._sessions.live()}):
            self.spoil(f"actor {player.actor_index} ({player.name}) was lost")
        behaviors = self._trained()
        awaited = playing.awaited(behaviors)
        if awaited:
            check_full(behaviors)
            self._say_waiting(playing, awaited)
            return
        playing.is_released = True
        for behavior in behaviors:
            self._release(playing, behavior)

    def after_turn(self, trainers: Mapping[str, Trainer], *, save: Save, is_ending: bool = False) -> None:
        """Ends the round that was trained, saves the run where it is time, and begins the next one.

        Args:
            trainers: by behavior.
            save: writes the run state.
            is_ending: no more rounds are to begin.

        Raises:
            UserError: a round does not fit the memory that there is for it.
        """
        playing = self._playing
        if playing is not None:
            if not playing.is_released or any(round_queue(each).has_released for each in self._behaviors.all()):
                return
            self._complete(playing, trainers, save)
        if not is_ending:
            self._begin(trainers, save)

    def _trained(self) -> list[Behavior]:
        """Returns the behaviors that are trained, by name: they were declared in any order."""
        return sorted((each for each in self._behaviors.all() if each.training), key=lambda each: each.name)

    def _release(self, playing: Round, behavior: Behavior) -> None:
        released = round_queue(behavior).release(playing.session_ids)
        for reason in playing.faults(behavior, released.items):
            self.spoil(reason)
        for item in released.items:
            errors = item.chunk.discarded.get(ENV_ERROR, 0)
            before = self._env_errors.get((item.session_id, behavior.index), 0)
            self._env_errors[item.session_id, behavior.index] = errors
            if errors > before:
                self.spoil(f"environments of actor {item.actor_index} failed")
        strange = sum(item.chunk.rows for item in released.strangers)
        if strange:
            self._ledger.drop_queued(behavior.name, STRANGER, strange)

    def _complete(self, playing: Round, trainers: Mapping[str, Trainer], save: Save) -> None:
        for trainer in trainers.values():
            left = trainer.untrained_steps
            if left:
                raise UserError(
                    ExitCode.RUN_FILE,
                    f"{left} steps of round {playing.number} of {trainer.brain_name} were not trained: the training device "
                    "has no memory for a whole round; lower rollcast.lockstep.quota_steps or the number of agents",
                )
        self._round = playing.number
        self._playing = None
        # What the last round of a behavior brings is not trained: in a run with more steps it would be.
        has_ended = not playing.trained.issubset(each.index for each in self._trained())
        if self._round % self._settings.checkpoint_updates == 0 and not has_ended:
            # Also where saving fails: an undisturbed run would have begun anew here.
            self._checkpoint = self._round
            self._resets = True
            save(trainers)

    def _begin(self, trainers: Mapping[str, Trainer], save: Save) -> None:
        behaviors = [each for each in self._trained() if each.name in trainers]
        players = self._players(trainers)
        needed = 1 if self._has_begun else self._settings.actors
        # Actors of behaviors that are done play on for the others, and make no round by themselves.
        is_short = len(players) < needed or not any(player.plays(behaviors) for player in players)
        self._set_hold(active=is_short and bool(behaviors))
        if is_short:
            self._say_short(len(players), needed)
        if is_short or not behaviors:
            return
        if not self._has_begun:
            players = players[: self._settings.actors]
        quota_steps = self._settings.quota_steps or quota_of(behaviors, players)
        check_room(behaviors, players, quota_steps)
        self._quota_steps = quota_steps
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
        self._say_at = time.monotonic() + SAY_SECONDS
        self._send(Assign(assignment, playing.session_ids))

    def _say_waiting(self, playing: Round, awaited: Sequence[Player]) -> None:
        """Says now and then who keeps a long round from ending."""
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + SAY_SECONDS
            names = ", ".join(f"{player.actor_index} ({player.name})" for player in awaited[:MAX_NAMED])
            log.info("lockstep_waits", round=playing.number, awaited=len(awaited), actors=names)

    def _say_short(self, joined: int, needed: int) -> None:
        """Says now and then that actors are missing."""
        now = time.monotonic()
        if now >= self._short_at:
            self._short_at = now + SAY_SECONDS
            log.info("lockstep_waits_for_actors", joined=joined, needed=needed)

    def _set_hold(self, *, active: bool) -> None:
        """Shows whether everybody waits for actors that are missing."""
        if active != self._is_holding:
            self._is_holding = active
            self._send(SetHold(HoldReason.LOCKSTEP, active=active))

    def _players(self, trainers: Mapping[str, Trainer]) -> list[Player]:
        """Returns who could play now, by actor index: those who have declared what they have."""
        known = {trainer.context.behavior.index for trainer in trainers.values()}
        with self._sessions.lock:
            players = [Player.of(session) for session in self._sessions.live()]
        ready = [player for player in players if player.agents and known.issuperset(player.agents)]
        return sorted(ready, key=lambda player: player.actor_index)

    def _order(self, playing: Round) -> policy_pb2.Assignment:
        assignment = self._lessons.assignment(reset=self._resets) or policy_pb2.Assignment()
        assignment.reset = policy_pb2.RESET_MODE_NOW if self._resets else policy_pb2.RESET_MODE_NONE
        assignment.lockstep_quota_steps = self._quota_steps
        assignment.lockstep_round = playing.number
        assignment.lockstep_checkpoint = self._checkpoint
        assignment.behaviors.extend(assigned(self._behaviors.all(), playing.players, playing.versions))
        return assignment

    def _announce(self, players: Sequence[Player], behaviors: Sequence[Behavior]) -> None:
        steps = {
            behavior.name: self._quota_steps * sum(player.agents.get(behavior.index, 0) for player in players)
            for behavior in behaviors
        }
        log.info(
            "lockstep_begins",
            round=self._round + 1,
            actors=len(players),
            quota_steps=self._quota_steps,
            steps_per_update=steps,
            checkpoint_updates=self._settings.checkpoint_updates,
        )
