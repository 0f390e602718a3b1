"""The interface through which the HTTP port reads and controls the learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from learner.service.view.history import HistoryView
from learner.shared.observe.view import ActorView, RunView


@dataclass(frozen=True, slots=True)
class StatusView:
    """All data of the page at one moment.

    Attributes:
        run: The run and its behaviors.
        actors: Actors by place.
        version: Version of Rollcast.
    """

    run: RunView
    actors: tuple[ActorView, ...]
    version: str


class WebHooks(Protocol):
    """Gives the port access to the learner. Every method may block; they are called outside the event loop."""

    def status(self) -> StatusView:
        """Returns the current status."""

    def history(self, behavior: str, since: float) -> HistoryView | None:
        """Returns the curves of a behavior after a time; None if there is no such behavior."""

    def about(self) -> dict[str, Any]:
        """Returns the settings and events of the run, and the runs beside it."""

    def metrics(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""

    def is_serving(self) -> bool:
        """Returns the state reported by the gRPC health service."""

    def pause(self) -> None:
        """Stops training; safe to repeat.

        Raises:
            Draining: The run is ending.
            TimeoutError: The current update did not end in time.
        """

    def resume(self) -> None:
        """Ends a pause."""

    def release(self, actor_name: str, principal: str | None) -> int:
        """Lets an actor that is shut out in again.

        Raises:
            NotQuarantined: There is no such actor.
        """

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint at the end of the current update and returns its path.

        Raises:
            NothingToSave: No behavior is declared.
            CheckpointFailed: The checkpoint could not be written.
            TimeoutError: The checkpoint took too long.
        """
