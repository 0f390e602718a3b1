"""Shows a run in progress: by a live panel on a terminal, otherwise by one log line per behavior and interval."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

import structlog

from learner.service.view.bottleneck import NOTHING_DECLARED
from learner.shared.observe import text
from learner.shared.observe.behavior_state import BehaviorState, Shown
from learner.shared.observe.logs import LogFormat, is_terminal
from learner.shared.observe.rates import GrowingInterval
from learner.shared.observe.view import RunState, RunView

log = structlog.get_logger(__name__)


_WAIT_SECONDS: Final = 5.0
_LONGEST_WAIT_SECONDS: Final = 600.0
"""Longest time between two identical lines, in seconds."""


def how_to_start(address: str, *, tls: bool, games: bool = False) -> str:
    """Returns the commands that start an actor for an address ``host:port``.

    With TLS they take the folder of a join code, which has the learner's address, too.

    Args:
        address: The learner's address.
        tls: Whether it uses TLS.
        games: Whether all behaviors have self-play, which the single agent of `rollcast act gym` cannot take part in.
    """
    command = "rollcast act boards --game NAME" if games else "rollcast act gym --env ID"
    others = f"{'rollcast act pettingzoo --env ID ..., ' if games else ''}rollcast act unity --env BUILD ..."
    if tls:
        return f"{command} --certs DIR   (DIR: made by rollcast join DIR; or: {others})"
    return f"{command} --learner {address}   (or: {others})"


class LineSurface:
    """Logs one ``progress`` event per behavior: a line for people or a JSON object, like the log lines.

    Args:
        for_machines: Log every number under its full name, instead of short labels for people.
        clock: Returns monotonic seconds.
    """

    def __init__(self, *, for_machines: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._fields = fields_for_machines if for_machines else fields_for_people
        self._waiting = GrowingInterval(_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, clock)
        self._preparing = GrowingInterval(_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, clock)

    def show(self, view: RunView) -> None:
        """Logs a view; logs at growing intervals that the run waits for actors."""
        if view.behaviors or view.state is not RunState.WAITING:
            self._waiting.restart()
            self._preparing.restart()
        else:
            self._tell_waiting(view)
        for behavior in view.behaviors:
            log.info("progress", **self._fields(view, behavior))

    def _tell_waiting(self, view: RunView) -> None:
        state = {"state": view.state.value, "address": view.address, "actors": view.actors}
        if view.actors:
            self._waiting.restart()
            if self._preparing.passed():
                log.info("waiting_for_declaration", **state, reason=NOTHING_DECLARED)
            return
        self._preparing.restart()
        is_first = self._waiting.is_first
        if self._waiting.passed():
            invites = is_first and not view.has_own_actors
            how = {"start": how_to_start(view.address, tls=view.tls, games=view.games)} if invites else {}
            log.info("waiting_for_actors", **state, **how)

    def close(self) -> None:
        """Does nothing, because lines need no cleanup."""


def fields_for_machines(view: RunView, behavior: BehaviorState) -> dict[str, object]:
    """Returns the fields of a ``progress`` object; units are in the names."""
    numbers = {
        each.log or each.name: _rounded(behavior.shown(each), each.digits)
        for each in behavior.fields
        if each.log is not None
    }
    return {
        "run_id": view.run_id,
        "generation": view.generation,
        "state": view.state.value,
        "actors": view.actors,
        "behavior": behavior.name,
        **numbers,
        "bottleneck": view.bottleneck.name,
        "learner_busy": round(view.bottleneck.learner_busy, 3),
        "actor_busy": round(view.bottleneck.actor_busy, 3),
        "network_share": round(view.bottleneck.network_share, 3),
        "ledger": behavior.books,
    }


def _rounded(value: Shown, digits: int | None) -> Shown:
    return round(value, digits) if isinstance(value, float) and digits is not None else value


def fields_for_people(view: RunView, behavior: BehaviorState) -> dict[str, object]:
    """Returns the fields of a ``progress`` line that fits a wide terminal, without zero, usual and unknown values."""
    target = "" if behavior.target_return is None else f"/{behavior.target_return:g}"
    fields: dict[str, object] = {
        "behavior": behavior.name,
        "steps": f"{behavior.env_steps_trained}/{behavior.max_steps}",
        "rate": f"{text.speed(behavior.steps_per_second)}/s",
        "return": f"{text.number(behavior.mean_return_100)}{target}",
        **{
            each.line: _rounded(shown, 2)
            for each in behavior.fields
            if each.line and (shown := behavior.shown(each)) is not None
        },
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
"""Seconds between two pictures of the panel; drawing one takes a few milliseconds of the trainer's interpreter."""


class Surface(Protocol):
    """Shows views."""

    def show(self, view: RunView) -> None:
        """Shows a view.

        Raises:
            OSError: The terminal is closed.
        """

    def close(self) -> None:
        """Restores the terminal."""


class Display:
    """Shows views at a steady pace. Leave it through ``with`` or :meth:`close`, which restores the terminal.

    Args:
        surface: Surface that shows the views; None shows nothing.
        interval_seconds: Shortest time between two views, in seconds.
        clock: Returns monotonic seconds.
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
        """True if another view is due; check it before creating one."""
        return self._surface is not None and self._clock() >= self._next

    def update(self, view: RunView, *, now: bool = False) -> None:
        """Shows a view if it is due, or at once if `now` is True; gives up a closed terminal without an error."""
        if self._surface is None or not (now or self.due):
            return
        self._next = self._clock() + self._interval_seconds
        try:
            self._surface.show(view)
        except OSError:
            self.close()

    def close(self) -> None:
        """Restores the terminal; safe to repeat."""
        surface, self._surface = self._surface, None
        if surface is not None:
            try:
                surface.close()
            except OSError:
                return  # the terminal is closed: nothing to restore


def open_display(log_format: LogFormat, summary_seconds: float) -> Display:
    """Returns the display for a log format: the panel only for ``auto`` on a terminal, never with JSON.

    With ``mlagents`` it shows nothing: :class:`learner.shared.observe.console.ConsoleWriter` prints the summaries.

    Args:
        log_format: Format that was passed to :func:`learner.shared.observe.logs.configure`.
        summary_seconds: Time between two lines, in seconds.
    """
    if log_format == "mlagents":
        return Display(None, summary_seconds)
    if log_format == "auto" and panel_fits(os.environ.get("TERM", "")):
        from learner.service.view.panel import PanelSurface  # noqa: PLC0415  (imports rich, which only a panel needs)

        return Display(PanelSurface(), PANEL_SECONDS)
    return Display(LineSurface(for_machines=log_format == "json"), summary_seconds)


def panel_fits(term: str) -> bool:
    """Returns whether a panel can be drawn on standard error, given ``TERM``.

    Standard output must be a terminal too: the panel prints it, and must not alter what goes to a file or pipe.
    """
    return is_terminal() and sys.stdout.isatty() and term not in {"", "dumb", "unknown"}
