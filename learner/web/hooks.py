"""What the HTTP port shows and does, as the rest of the learner provides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from learner.observe.history import HistoryView
from learner.observe.view import ActorView, RunView


@dataclass(frozen=True, slots=True)
class StatusView:
    """Everything the page shows of one moment.

    Attributes:
        run: the run and its behaviors.
        actors: by their place.
        version: of Rollcast.
    """

    run: RunView
    actors: tuple[ActorView, ...]
    version: str


class WebHooks(Protocol):
    """The learner behind the port. Every method may block; they are called outside the event loop."""

    def status(self) -> StatusView:
        """Returns the status at this moment."""

    def history(self, behavior: str, since: float) -> HistoryView | None:
        """Returns the curves of a behavior later than a time; None if there is no such behavior."""

    def metrics(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""

    def is_serving(self) -> bool:
        """Says what the gRPC health service says."""

    def pause(self) -> None:
        """Stops training; again is harmless.

        Raises:
            TimeoutError: the present update does not end.
        """

    def resume(self) -> None:
        """Ends a pause."""

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint at the end of the present update and returns its path.

        Raises:
            NothingToSave: no behavior was declared.
            CheckpointFailed: it could not be written.
            TimeoutError: it took too long.
        """
