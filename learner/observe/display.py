"""Shows a run while it lasts: a live panel on a terminal, else one log line per behavior and interval."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import structlog

from learner.observe import text
from learner.observe.logs import LogFormat, is_terminal
from learner.observe.view import BehaviorView, RunState, RunView

log = structlog.get_logger(__name__)


class LineSurface:
    """Logs one ``progress`` event per behavior: a line for people or a JSON object, as the log lines are.

    Args:
        for_machines: every number under its full name, instead of short words for people.
    """

    def __init__(self, *, for_machines: bool) -> None:
        self._fields = fields_for_machines if for_machines else fields_for_people

    def show(self, view: RunView) -> None:
        """Logs a view."""
        if not view.behaviors and view.state is RunState.WAITING:
            log.info("waiting_for_actors", state=view.state.value, address=view.address, actors=view.actors)
        for behavior in view.behaviors:
            log.info("progress", **self._fields(view, behavior))

    def close(self) -> None:
        """Does nothing: lines leave nothing behind."""


def fields_for_machines(view: RunView, behavior: BehaviorView) -> dict[str, object]:
    """Returns the fields of a ``progress`` object; units are in the names."""
    return {
        "run_id": view.run_id,
        "generation": view.generation,
        "state": view.state.value,
        "actors": view.actors,
        "behavior": behavior.name,
        "version": behavior.version,
        "env_steps_taken": behavior.env_steps_taken,
        "env_steps_trained": behavior.env_steps_trained,
        "max_steps": behavior.max_steps,
        "env_steps_per_second": round(behavior.steps_per_second, 1),
        "episodes": behavior.episodes,
        "mean_return_100": behavior.mean_return_100,
        "target_return": behavior.target_return,
        "mean_lag": behavior.mean_lag,
        "queued_steps": behavior.queued_steps,
        "queued_bytes": behavior.queued_bytes,
        "log_prob_error_max": behavior.log_prob_error_max,
        "evaluation_return_mean": behavior.evaluation_return_mean,
        "best_return": behavior.best_return,
        "best_step": behavior.best_step,
        "bottleneck": view.bottleneck.name,
        "learner_busy": round(view.bottleneck.learner_busy, 3),
        "actor_busy": round(view.bottleneck.actor_busy, 3),
        "network_share": round(view.bottleneck.network_share, 3),
        "ledger": behavior.books,
    }


def fields_for_people(view: RunView, behavior: BehaviorView) -> dict[str, object]:
    """Returns the fields of a ``progress`` line that fits a wide terminal; what is zero or as usual is left out."""
    target = "" if behavior.target_return is None else f"/{behavior.target_return:g}"
    fields: dict[str, object] = {
        "behavior": behavior.name,
        "steps": f"{behavior.env_steps_trained}/{behavior.max_steps}",
        "rate": f"{text.speed(behavior.steps_per_second)}/s",
        "return": f"{text.number(behavior.mean_return_100)}{target}",
        "episodes": behavior.episodes,
        "version": behavior.version,
        "lag": round(behavior.mean_lag, 2),
        "queue": f"{behavior.queue_fill:.0%}",
        "actors": view.actors,
    }
    dropped = sum(behavior.books["dropped"].values())
    if dropped:
        fields["dropped"] = dropped
    if view.bottleneck.name != "none":
        fields["bottleneck"] = view.bottleneck.name
    if view.state is not RunState.TRAINING:
        fields["state"] = view.state.value
    return fields


PANEL_SECONDS = 1.0
"""Time between two pictures of the panel; drawing one takes a few milliseconds of the trainer's interpreter."""


class Surface(Protocol):
    """Something that views are shown on."""

    def show(self, view: RunView) -> None:
        """Shows a view.

        Raises:
            OSError: the terminal has gone away.
        """

    def close(self) -> None:
        """Leaves the terminal as it was."""


class Display:
    """Shows views at a steady pace. Leave it through ``with`` or :meth:`close`, which restores the terminal.

    Args:
        surface: what to show them on; None shows nothing.
        interval_seconds: least time between two of them.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self, surface: Surface | None, interval_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._surface = surface
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._next = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def due(self) -> bool:
        """Whether it is time for another view; ask before making one."""
        return self._surface is not None and self._clock() >= self._next

    def update(self, view: RunView, *, now: bool = False) -> None:
        """Shows a view if it is time, or at once; a terminal that has gone away is given up, not an error."""
        if self._surface is None or not (now or self.due):
            return
        self._next = self._clock() + self._interval_seconds
        try:
            self._surface.show(view)
        except OSError:
            self.close()

    def close(self) -> None:
        """Restores the terminal; closing twice is harmless."""
        surface, self._surface = self._surface, None
        if surface is not None:
            try:
                surface.close()
            except OSError:
                return  # the terminal has gone away: there is nothing to restore


def open_display(log_format: LogFormat, summary_seconds: float) -> Display:
    """Returns the display that fits: the panel only for ``auto`` on a terminal, never beside JSON.

    With ``mlagents`` it shows nothing: :class:`learner.observe.console.ConsoleWriter` prints the summaries.

    Args:
        log_format: as for :func:`learner.observe.logs.configure`, which has been called.
        summary_seconds: time between two lines.
    """
    if log_format == "mlagents":
        return Display(None, summary_seconds)
    if log_format == "auto" and panel_fits(os.environ.get("TERM", "")):
        from learner.observe.panel import PanelSurface  # noqa: PLC0415  (imports rich, which only a panel needs)

        return Display(PanelSurface(), PANEL_SECONDS)
    return Display(LineSurface(for_machines=log_format == "json"), summary_seconds)


def panel_fits(term: str) -> bool:
    """Says whether a panel can be drawn on standard error, given ``TERM``.

    Standard output must be a terminal, too: it goes through the panel, and what is sent to a file or a pipe must not.
    """
    return is_terminal() and sys.stdout.isatty() and term not in {"", "dumb", "unknown"}
