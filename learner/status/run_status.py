"""The status of a running learner, put together from its parts: for the panel, the log lines, status and summary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from learner.common.saved_values import count, flag, number
from learner.curriculum.lessons import Lessons, no_lessons
from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.ledger import ROLLBACK, Ledger, LedgerBooks
from learner.ingest.sessions import SessionTable
from learner.observe.history import History
from learner.observe.milestones import Milestones
from learner.observe.rates import WindowedRate
from learner.observe.view import ActorNumbers, BehaviorView, Bottleneck, LedgerNumbers, LockstepView, RunState, RunView
from learner.settings.service import ServiceSettings


@dataclass(frozen=True, slots=True)
class TrainerStats:
    """What a trainer was like after a turn; made in its thread, read by any.

    Attributes:
        version: completed updates.
        env_steps_trained: steps in completed updates.
        episodes: finished training episodes.
        mean_return: over the newest of them, None before the first.
        mean_lag: versions between acting and learning, over the rows of the last update.
        log_prob_error_max: largest difference between recorded and own log-probability on fresh rows, last update.
        is_full: there are as many episodes as the mean is meant to be over.
    """

    version: int = 0
    env_steps_trained: int = 0
    episodes: int = 0
    mean_return: float | None = None
    mean_lag: float = 0.0
    log_prob_error_max: float = 0.0
    is_full: bool = False

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Makes news from what a checkpoint keeps of them.

        Raises:
            TypeError, ValueError: it is not what was saved.
        """
        found = asdict(cls(**state))
        for key in ("version", "env_steps_trained", "episodes"):
            count(found, key)
        number(found, "mean_lag")
        if found["mean_return"] is not None:
            number(found, "mean_return")
        if type(found["log_prob_error_max"]) is not float:  # which may well be infinite
            number(found, "log_prob_error_max")
        flag(found, "is_full")
        return cls(**found)


@dataclass(slots=True)
class _BehaviorNotes:
    milestones: Milestones
    rate: WindowedRate
    news: TrainerStats = field(default_factory=TrainerStats)
    evaluation_return_mean: float | None = None
    best_return: float | None = None
    best_step: int = 0


class RunStatus:
    """Collects what the parts say and answers with views.

    Args:
        behaviors: the behaviors of the run.
        sessions: the actors.
        ledger: the books.
        service: targets and limits.
        run_id: the run.
        generation: of this start of the learner.
        clock: monotonic seconds.
        lessons: what the environments are set to.

    Attributes:
        last_error: the newest error in one line, empty if none.
        history: the curves of the run.
        bottleneck: what bounds the run.
        lockstep: returns how far a run in lock-step is.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        service: ServiceSettings,
        *,
        run_id: str,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
        lessons: Lessons | None = None,
    ) -> None:
        self._lessons = lessons or no_lessons()
        self.last_error = ""
        self.history = History()
        self.bottleneck = Bottleneck()
        self.lockstep: Callable[[], LockstepView | None] = lambda: None
        self._behaviors = behaviors
        self._sessions = sessions
        self._ledger = ledger
        self._service = service
        self._run_id = run_id
        self._generation = generation
        self._clock = clock
        self._started = clock()
        # Replaced whole, never changed: other threads may be in the middle of a loop over it.
        self._notes: Mapping[str, _BehaviorNotes] = {}
        self._adding = threading.Lock()

    def milestones(self, behavior: str) -> Milestones:
        """Returns the clock of a behavior."""
        return self._note(behavior).milestones

    def milestone_states(self) -> dict[str, dict[str, float | int | None]]:
        """Returns what a checkpoint keeps of all clocks."""
        return {name: notes.milestones.state_dict() for name, notes in self._notes.items()}

    def load_milestones(self, states: Mapping[str, Mapping[str, object]]) -> None:
        """Goes on from `milestone_states`.

        Raises:
            ValueError: a value is not what was saved.
        """
        for name, state in states.items():
            self._note(name).milestones.load_state_dict(state)

    def news_states(self) -> dict[str, dict[str, float | int | None]]:
        """Returns what a checkpoint keeps of what the trainers said last."""
        return {name: asdict(notes.news) for name, notes in self._notes.items()}

    def load_news(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Goes on from `news_states`: until the trainers are there again, the counters are those of the checkpoint.

        Raises:
            TypeError, ValueError: it is not what was saved.
        """
        for name, state in states.items():
            self._note(name).news = TrainerStats.from_state(state)

    def note_steps(self, *, is_paused: bool = False) -> None:
        """Reads how many steps the actors have taken; call it often and from one thread, for it drives the clocks."""
        acting = {index for session in self._sessions.live() if session.is_connected for index in session.accounts}
        for behavior in self._behaviors.all():
            notes = self._note(behavior.name)
            taken = self._sessions.steps_taken(behavior.index)
            notes.milestones.note_steps(taken)
            notes.milestones.note_activity(is_idle=is_paused or behavior.index not in acting)
            # An actor that comes back after a rollback tells of all its steps at once; those were not taken lately.
            notes.rate.update(taken - self._ledger.books(behavior.name).lost.get(ROLLBACK, 0))

    def note_evaluation(self, behavior: str, mean_return: float) -> None:
        """Takes in what an evaluation came to."""
        self._note(behavior).evaluation_return_mean = mean_return

    def note_best(self, behavior: str, reward: float, step: int) -> None:
        """Takes in which checkpoint is the best."""
        notes = self._note(behavior)
        notes.best_return, notes.best_step = reward, step

    def note_trainer(self, behavior: Behavior, news: TrainerStats) -> bool:
        """Takes in what a trainer says after a turn; from its thread.

        Returns:
            Whether the mean return is at the target now.
        """
        notes = self._note(behavior.name)
        notes.news = news
        target = self._service.target_return
        if target is None or not news.is_full or news.mean_return is None or news.mean_return < target:
            return False
        notes.milestones.note_steps(self._sessions.steps_taken(behavior.index))
        notes.milestones.note_target()
        return True

    @property
    def uptime_seconds(self) -> float:
        """Time since this start of the learner."""
        return self._clock() - self._started

    def run_view(self, state: RunState, address: str) -> RunView:
        """Returns the status at this moment."""
        return RunView(
            run_id=self._run_id,
            state=state,
            generation=self._generation,
            uptime_seconds=self.uptime_seconds,
            address=address,
            actors=len(self._sessions.live()),
            last_error=self.last_error,
            behaviors=tuple(self.behavior_view(behavior) for behavior in self._behaviors.all()),
            bottleneck=self.bottleneck,
            lessons=self._lessons.view(),
            lockstep=self.lockstep(),
        )

    def behavior_view(self, behavior: Behavior) -> BehaviorView:
        """Returns the view of one behavior."""
        notes = self._note(behavior.name)
        news = notes.news
        return BehaviorView(
            name=behavior.name,
            version=news.version,
            env_steps_taken=self._sessions.steps_taken(behavior.index),
            env_steps_trained=news.env_steps_trained,
            max_steps=behavior.settings.max_steps,
            steps_per_second=notes.rate.per_second,
            episodes=news.episodes,
            mean_return_100=news.mean_return,
            mean_lag=news.mean_lag,
            queued_steps=behavior.queue.queued_steps,
            queued_bytes=behavior.queue.queued_bytes,
            queue_capacity_bytes=behavior.queue.capacity_bytes,
            log_prob_error_max=news.log_prob_error_max,
            evaluation_return_mean=notes.evaluation_return_mean,
            best_return=notes.best_return,
            best_step=notes.best_step,
            target_return=self._service.target_return,
            books=ledger_numbers(self._ledger.books(behavior.name)),
        )

    def actor_numbers(self, behavior: Behavior) -> ActorNumbers:
        """Returns what became of the steps of one behavior that were taken and not received, as far as actors said."""
        with self._sessions.lock:  # shared with the ledger: one moment
            given_up = self._sessions.given_up(behavior.index)
            taken = self._sessions.steps_taken(behavior.index)
            received = self._ledger.books(behavior.name).received
        told = received + given_up.discarded.total() + given_up.dropped.total()
        return ActorNumbers(
            discarded=dict(+given_up.discarded), dropped=dict(+given_up.dropped), outstanding=max(0, taken - told)
        )

    def _note(self, behavior: str) -> _BehaviorNotes:
        if behavior not in self._notes:
            with self._adding:
                if behavior not in self._notes:
                    fresh = _BehaviorNotes(Milestones(self._clock), WindowedRate(clock=self._clock))
                    self._notes = {**self._notes, behavior: fresh}
        return self._notes[behavior]


def ledger_numbers(books: LedgerBooks) -> LedgerNumbers:
    """Returns the books in the form that views and summaries show."""
    return LedgerNumbers(
        received=books.received,
        trained=books.trained,
        dropped=dict(books.dropped),
        duplicate=books.duplicate,
        queued=books.queued,
        lost=dict(books.lost),
        unknown=books.unknown_sessions,
    )
