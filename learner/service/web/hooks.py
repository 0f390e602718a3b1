"""The interface through which the HTTP port reads and controls the learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from learner.link.control import SettingChange
from learner.service.view.history import HistoryView
from learner.shared.observe.view import StatusView


class OperatorActions(Protocol):
    """Actions available to operators. Methods may block; they are called outside the event loop."""

    def pause(self) -> None:
        """Stops training; safe to repeat.

        Raises:
            Draining: The run is ending.
            TimeoutError: The current update did not end in time.
        """

    def resume(self) -> None:
        """Ends a pause.

        Raises:
            Draining: The run is ending.
            TimeoutError: The current update did not end in time.
        """

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint at the end of the current update and returns its path.

        Raises:
            NothingToSave: No behavior is declared.
            CheckpointFailed: The checkpoint could not be written.
            TimeoutError: The checkpoint took too long.
        """

    def change(self, values: Mapping[str, str], principal: str) -> tuple[SettingChange, ...]:
        """Changes settings while the run trains, all or none, and returns what has changed.

        Args:
            values: New values as text, by name; empty to undo the last change.
            principal: Who requests it.

        Raises:
            Draining: The run is ending.
            SettingRefused: A name or a value is refused, or there is nothing to undo.
            TimeoutError: The current update did not end in time; the change follows it.
        """

    def drain(self, *, final: bool) -> None:
        """Asks the run to end, and returns at once.

        Args:
            final: Whether the actors exit; otherwise they wait to come back.
        """


class WebHooks(Protocol):
    """Gives the port access to the learner. Every method may block; they are called outside the event loop."""

    @property
    def control(self) -> OperatorActions:
        """What operators may do."""

    def status(self) -> StatusView:
        """Returns the current status."""

    def history(self, behavior: str, since: float) -> HistoryView | None:
        """Returns the curves of a behavior after a time; None if there is no such behavior."""

    def about(self) -> dict[str, Any]:
        """Returns the settings and events of the run, and the runs beside it."""

    def metrics(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""

    def count_error(self, reason: str) -> None:
        """Counts an error by its reason of the protocol; called in the event loop."""

    def is_serving(self) -> bool:
        """Returns the state reported by the gRPC health service."""

    def release(self, actor_name: str, principal: str | None) -> int:
        """Lets an actor that is shut out in again.

        Raises:
            NotQuarantined: There is no such actor.
        """
