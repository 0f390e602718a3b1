"""A trainer's end of the link: waiting experience, and the outcome of each step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from learner.link.to_front import NOT_TRAINING, Pace, Settled, ToFront
from learner.link.to_trainers import Experience, QueueFull
from learner.training.trainers.experience_history import ExperienceHistory, whole


class OutcomeReport:
    """Collects the outcomes of the steps of one behavior until they are sent. Use it in the trainers' thread.

    Args:
        behavior_index: Index of the behavior.
        send: Sends a message to the service.
        history: Records what happens to each chunk; None without a history.

    Attributes:
        history: Records what happens to each chunk; None without a history.
    """

    def __init__(
        self, behavior_index: int, send: Callable[[ToFront], object], history: ExperienceHistory | None = None
    ) -> None:
        self.history = history
        self._behavior_index = behavior_index
        self._send = send
        self._through = 0
        self._trained = 0
        self._dropped: Counter[str] = Counter()
        self._said: tuple[int, Pace] | None = None

    def take(self, through: int) -> None:
        """Records that experience up to a sequence number was taken, so that the service may free its bytes."""
        self._through = max(self._through, through)

    def trained(self, steps: int) -> None:
        """Records steps whose update completed, or that entered replay memory."""
        self._trained += steps

    def drop(self, reason: str, steps: int) -> None:
        """Records steps that are not trained."""
        if steps:
            self._dropped[reason] += steps

    def flush(self, pace: Pace) -> None:
        """Sends the service everything that it does not know yet, if anything.

        Args:
            pace: Current pace of the trainer.
        """
        said = self._through, pace
        if not self._trained and not self._dropped and said == self._said:
            return
        self._send(Settled(self._behavior_index, self._through, self._trained, dict(self._dropped), pace))
        self._trained = 0
        self._dropped.clear()
        self._said = said


class ExperienceQueue:
    """Keeps the experience of one behavior in order until its trainer takes it. Use it in the trainers' thread.

    Args:
        outcomes: Records what was taken.

    Attributes:
        is_closed: Whether training has ended; see `close`.
        full: The service's message about a chunk without room; None if every chunk had room.
    """

    def __init__(self, outcomes: OutcomeReport) -> None:
        self.outcomes = outcomes
        self.is_closed = False
        self.full: QueueFull | None = None
        self._items: deque[Experience] = deque()

    def __len__(self) -> int:
        """Returns the number of waiting chunks."""
        return len(self._items)

    def put(self, item: Experience) -> None:
        """Appends a chunk; once the queue is closed, its steps are dropped."""
        self._items.append(item)
        if self.is_closed:
            self.close()

    def get(self) -> list[Experience]:
        """Takes all waiting chunks, oldest first."""
        taken = list(self._items)
        self._items.clear()
        if taken:
            if self.outcomes.history is not None:
                self.outcomes.history.taken(taken)
            self.outcomes.take(taken[-1].sequence)
        return taken

    def note_full(self, message: QueueFull) -> None:
        """Records that a chunk of a round has no room."""
        self.full = message

    def close(self) -> None:
        """Ends training; waiting and later chunks are dropped with the reason ``not_training``."""
        self.is_closed = True
        items = self._drain()
        if self.outcomes.history is not None:
            for item in items:
                self.outcomes.history.dropped(NOT_TRAINING, whole(item))
        self.outcomes.drop(NOT_TRAINING, sum(item.chunk.rows for item in items))

    def _drain(self) -> list[Experience]:
        """Takes all chunks, including any that `get` would not return."""
        return self.get()
