"""Assembles the status of a running learner for the panel, the log lines, the status page and the summary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from learner.link.control import SettingChange
from learner.link.to_front import Stats
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.ledger import Ledger, LedgerBooks
from learner.service.ingest.sessions import SessionTable
from learner.service.policies.store import PolicyStore
from learner.service.view.history import History
from learner.shared.observe.behavior_state import ActorNumbers, BehaviorState, LedgerNumbers, TrainerStats
from learner.shared.observe.milestones import Milestones
from learner.shared.observe.rates import WindowedRate
from learner.shared.observe.view import MAX_TROUBLES, AwayView, Bottleneck, RunState, RunView, TroubleView
from learner.shared.settings.service import ServiceSettings

LOOK_SECONDS: Final = 1.5
"""Longest interval between two reports of the trainers in seconds, unless a turn takes longer."""


@dataclass(slots=True)
class _BehaviorNotes:
    milestones: Milestones
    rate: WindowedRate
    kept: TrainerStats = field(default_factory=TrainerStats)


class RunStatus:
    """Combines the state of the service with the trainers' last statistics, and returns views.

    Args:
        behaviors: The behaviors of the run.
        sessions: The actors.
        ledger: The ledger of steps.
        store: The published policies.
        service: Targets and limits.
        run_id: Name of the run.
        generation: Number of this start of the learner.
        clock: Returns monotonic seconds; the trainers use the same clock.

    Attributes:
        stats: Last statistics of the trainers. Replaced as a whole, so any thread may read it.
        history: The curves of the run.
        bottleneck: What limits the run.
        since: Time of the clock from which the time limit counts: this start, or an earlier one of the same command.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        store: PolicyStore,
        service: ServiceSettings,
        *,
        run_id: str,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stats = Stats(clock())
        self.history = History()
        self.bottleneck = Bottleneck()
        self._behaviors = behaviors
        self._sessions = sessions
        self._ledger = ledger
        self._store = store
        self._service = service
        self._run_id = run_id
        self._generation = generation
        self._clock = clock
        self._started = self.since = clock()
        # Replaced as a whole and never changed, because another thread may be iterating over it.
        self._notes: Mapping[str, _BehaviorNotes] = {}
        self._adding = threading.Lock()

    def milestones(self, behavior: str) -> Milestones:
        """Returns the milestones of a behavior."""
        return self._note(behavior).milestones

    def state_dict(self) -> dict[str, Any]:
        """Returns the checkpoint state: clocks, last statistics of the trainers and the curves of the page."""
        return {
            "milestones": {name: notes.milestones.state_dict() for name, notes in self._notes.items()},
            "news": {name: self._trainer(name).state_dict() for name in self._notes},
            "history": self.history.state_dict(),
            "marks": self.history.marks(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from `state_dict`. Until the trainers report, the numbers are those of the checkpoint.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: The state is invalid.
        """
        for name, milestones in state["milestones"].items():
            self._note(name).milestones.load_state_dict(milestones)
        for name, kept in state["news"].items():
            self._note(name).kept = TrainerStats.from_state(kept)
        self.history.load_state_dict(state["history"])
        self.history.load_marks(state.get("marks", ()))

    def take_stats(self, stats: Stats) -> None:
        """Stores the trainers' statistics; called in the thread of the service."""
        self.stats = stats
        for name in stats.trainers:
            self._note(name).milestones.target_return = self._target_return
        for name in stats.at_target:
            behavior = self._behaviors.by_name(name)
            if behavior is not None:
                milestones = self._note(name).milestones
                milestones.note_steps(self._sessions.steps_taken(behavior.index))
                milestones.note_target()

    def note_changes(self, changes: Iterable[SettingChange]) -> None:
        """Marks changes of settings in the curves."""
        self.history.mark(self.uptime_seconds, "; ".join(each.text for each in changes))

    @property
    def stats_age_seconds(self) -> float:
        """Seconds since the trainers' last statistics."""
        return max(0.0, self._clock() - self.stats.made_at)

    @property
    def busy_seconds(self) -> float:
        """Seconds that the trainers have worked. While they send no statistics, they are assumed to be in a turn."""
        return self.stats.busy_seconds + max(0.0, self.stats_age_seconds - LOOK_SECONDS)

    def note_bottleneck(self, found: Bottleneck) -> None:
        """Stores what limits the run: the evaluation while every actor plays one, otherwise `found`."""
        obstacle = self.stats.obstacle
        self.bottleneck = replace(found, name="none", text=obstacle) if obstacle else found

    def note_steps(self) -> None:
        """Reads how many steps the actors have taken. Call it often and from one thread; it drives the clocks."""
        acting = {index for session in self._sessions.live() if session.is_connected for index in session.accounts}
        for behavior in self._behaviors.all():
            notes = self._note(behavior.name)
            taken = self._sessions.steps_taken(behavior.index)
            notes.milestones.note_steps(taken)
            notes.milestones.note_activity(is_idle=self.stats.is_paused or behavior.index not in acting)
            # An actor that returns after a rollback reports all its steps at once; they were not taken recently.
            notes.rate.update(taken - self._ledger.untimed_steps(behavior.name))

    @property
    def uptime_seconds(self) -> float:
        """Seconds since this start of the learner."""
        return self._clock() - self._started

    @property
    def command_seconds(self) -> float:
        """Seconds since the first start of the command."""
        return self._clock() - self.since

    def run_view(
        self,
        state: RunState,
        address: str,
        *,
        tls: bool = False,
        games: bool = False,
        page: str = "",
        has_own_actors: bool = False,
    ) -> RunView:
        """Returns the current status. Its error is the trainers', or that of the last actor while none is left."""
        actors, troubles = len(self._sessions.live()), self._troubles()
        return RunView(
            run_id=self._run_id,
            state=state,
            generation=self._generation,
            uptime_seconds=self.uptime_seconds,
            address=address,
            tls=tls,
            games=games,
            has_own_actors=has_own_actors,
            actors=actors,
            quarantined=self._sessions.quarantine.view(),
            actors_opened=self._sessions.opened,
            away=self._away(),
            last_error=self.stats.last_error or ("" if actors else self._sessions.last_failure),
            behaviors=tuple(self.behavior_state(behavior) for behavior in self._behaviors.all()),
            bottleneck=self.bottleneck,
            lessons=self.stats.lessons,
            lockstep=self.stats.lockstep,
            gpu=self.stats.gpu,
            page=page,
            troubles=troubles[:MAX_TROUBLES],
            troubled=len(troubles),
        )

    def _away(self) -> tuple[AwayView, ...]:
        """Returns the actors whose lease has run out, the latest first."""
        now = self._sessions.clock()
        away = sorted(self._sessions.away(), key=lambda session: session.last_seen, reverse=True)
        return tuple(AwayView(each.actor_name, each.actor_index, max(0.0, now - each.last_seen)) for each in away)

    def _troubles(self) -> tuple[TroubleView, ...]:
        """Returns the actors with a problem, by place."""
        now, troubles = self._sessions.clock(), []
        for session in sorted(self._sessions.live(), key=lambda session: session.actor_index):
            error = session.complaint(now)
            if error:
                with self._sessions.lock:
                    given_up = sum(account.given_up.total for account in session.accounts.values())
                state = session.environments.state
                troubles.append(
                    TroubleView(session.actor_name, error, 0 if state is None else state.failures, given_up)
                )
        return tuple(troubles)

    @property
    def _target_return(self) -> float | None:
        return self.stats.changed.get("target_return", self._service.target_return)

    def behavior_state(self, behavior: Behavior) -> BehaviorState:
        """Returns the state of one behavior."""
        news, queue = self._trainer(behavior.name), behavior.queue
        counts = self.stats.counts.behaviors.get(behavior.name)
        policy = self._store.latest(behavior.name)
        of_front = {
            "ahead_limit_steps": queue.pace.ahead_limit_steps,
            "unsettled_steps": self._behaviors.unsettled_steps(behavior),
            "credit_steps": self._sessions.credit_steps(behavior.index),
            "policy_version": 0 if policy is None else policy.description.version,
            "policy_bytes": 0 if policy is None else len(policy.payload),
        }
        with self._sessions.lock:  # shared with the ledger, so that all numbers are of one moment
            taken, books = self._sessions.steps_taken(behavior.index), self._ledger.books(behavior.name)
            given_up, outstanding = self._sessions.given_up(behavior), self._sessions.outstanding_steps(behavior.index)
        return BehaviorState(
            name=behavior.name,
            version=news.version,
            env_steps_taken=taken,
            env_steps_trained=news.env_steps_trained,
            max_steps=news.max_steps or behavior.settings.max_steps,
            steps_per_second=self._note(behavior.name).rate.per_second,
            episodes=news.episodes,
            mean_return_100=news.mean_return,
            target_return=self._target_return,
            queued_steps=queue.queued_steps,
            queued_bytes=queue.queued_bytes,
            queue_capacity_bytes=queue.capacity_bytes,
            numbers={**news.numbers, **({} if counts is None else counts.measured), **of_front},
            own_fields=news.fields,
            books=ledger_numbers(books),
            actor_books=ActorNumbers(
                discarded=dict(+given_up.discarded), dropped=dict(+given_up.dropped), outstanding=outstanding
            ),
            game=None if counts is None else counts.game,
        )

    def _trainer(self, behavior: str) -> TrainerStats:
        found = self.stats.trainers.get(behavior)
        return self._note(behavior).kept if found is None else found

    def _note(self, behavior: str) -> _BehaviorNotes:
        if behavior not in self._notes:
            with self._adding:
                if behavior not in self._notes:
                    milestones = Milestones(self._clock, target_return=self._target_return)
                    fresh = _BehaviorNotes(milestones, WindowedRate(clock=self._clock))
                    self._notes = {**self._notes, behavior: fresh}
        return self._notes[behavior]


def ledger_numbers(books: LedgerBooks) -> LedgerNumbers:
    """Converts the ledger's books for views and summaries."""
    return LedgerNumbers(
        received=books.received,
        trained=books.trained,
        dropped=dict(books.dropped),
        duplicate=books.duplicate,
        queued=books.queued,
        lost=dict(books.lost),
        unknown=books.unknown_sessions,
    )
