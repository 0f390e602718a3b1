"""The live panel: the status of the run on one screen. Importing this module imports rich."""

from __future__ import annotations

import math

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text
from rollcast.text import printable

from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.terminal import Line, behavior_lines, brief_line, error_lines, head_lines
from learner.shared.observe.view import RunView

BARS = "▁▂▃▄▅▆▇█"


class History:
    """Keeps at most ``capacity`` means, each of equally many consecutive values, over all added values.

    When it is full, neighbours merge and every later point covers twice as many values, so a run of any length fits
    with equal detail from its first value to its last.

    Args:
        capacity: Most points; even.
    """

    def __init__(self, capacity: int = 40) -> None:
        if capacity < 2 or capacity % 2:
            raise ValueError(f"capacity must be even and at least 2, got {capacity}")
        self._capacity = capacity
        self._points: list[float] = []
        self._stride = 1
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        """Adds a value; ignores one that is not finite."""
        if not math.isfinite(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._stride:
            return
        self._points.append(_mean(self._pending))
        self._pending.clear()
        if len(self._points) == self._capacity:
            self._points = [_mean(self._points[i : i + 2]) for i in range(0, self._capacity, 2)]
            self._stride *= 2

    @property
    def points(self) -> tuple[float, ...]:
        """The current points, oldest first; the last one may cover fewer values."""
        return (*self._points, _mean(self._pending)) if self._pending else tuple(self._points)


def sparkline(points: tuple[float, ...]) -> str:
    """Returns a bar per point; the lowest point gets the lowest bar, the highest point the highest."""
    if not points:
        return ""
    lowest, highest = min(points), max(points)
    spread = highest - lowest
    if spread <= 0 or not math.isfinite(spread):
        return BARS[0] * len(points)
    return "".join(BARS[round((point - lowest) / spread * (len(BARS) - 1))] for point in points)


def _mean(values: list[float]) -> float:
    return math.fsum(value / len(values) for value in values)


MAX_PANEL_CHARS = 110
BAR_CHARS = 24
FRAME_LINES = 3
"""Lines of the frame, and one of the log above it."""


class PanelSurface:
    """The live panel at the bottom of the terminal; log lines scroll above it.

    While it is open, standard output and standard error of the process are printed through it.

    Args:
        console: Console to draw on; None for standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._picture = PanelPicture()
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="ellipsis")

    def show(self, view: RunView) -> None:
        """Draws a view in place of the previous one."""
        if not self._live.is_started:
            self._live.start()
        self._live.update(self._picture.draw(view, self._console.height), refresh=True)

    def close(self) -> None:
        """Leaves the last picture on the screen and shows the cursor again."""
        self._live.stop()


class PanelPicture:
    """Draws views, and remembers the returns of each behavior for the sparklines."""

    def __init__(self) -> None:
        self._returns: dict[str, History] = {}

    def draw(self, view: RunView, height_lines: int = 50) -> RenderableType:
        """Returns the panel of a view, at most :data:`MAX_PANEL_CHARS` wide.

        Args:
            view: View to draw.
            height_lines: Lines of the terminal; if the blocks of the behaviors do not fit, each gets one line.
        """
        head, error = head_lines(view), error_lines(view)
        if not view.actors and not view.behaviors:
            head += _invitation(view)
        blocks = [line for each in view.behaviors for line in ((), *self._block(each))]
        if len(head) + len(blocks) + len(error) + FRAME_LINES > height_lines:
            blocks = [brief_line(each) for each in view.behaviors]
        lines = [Text.assemble(*line, no_wrap=True, overflow="ellipsis") for line in (*head, *blocks, *error)]
        return Panel(
            Group(*lines), title="rollcast", title_align="left", box=ROUNDED, width=MAX_PANEL_CHARS, padding=(0, 1)
        )

    def _block(self, behavior: BehaviorState) -> list[Line]:
        history = self._returns.setdefault(behavior.name, History())
        if behavior.mean_return_100 is not None:
            history.add(behavior.mean_return_100)
        return behavior_lines(behavior, _bar(behavior), sparkline(history.points))


def _bar(behavior: BehaviorState) -> Line:
    """Returns the progress as a bar."""
    share = min(1.0, behavior.env_steps_trained / max(behavior.max_steps, 1))
    done = round(share * BAR_CHARS)
    return ("━" * done, "green" if share == 1.0 else "cyan"), ("╌" * (BAR_CHARS - done) + "  ", "dim")


def _invitation(view: RunView) -> list[Line]:
    """Returns how to start an actor; the command has a line of its own, so that it can be copied."""
    if view.has_own_actors:
        return [(("the actors of this command have not connected yet", "dim"),)]
    made = " (DIR: made by rollcast join DIR)" if view.tls else ""
    return [((f"no actor has connected yet; start one{made}:", "dim"),), ((printable(view.actor_command), ""),)]
