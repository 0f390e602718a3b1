"""The live panel: the status of the run on one screen. Importing this module imports rich."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rollcast.text import printable

from learner.service.view.bottleneck import NOTHING_DECLARED
from learner.shared.observe import text
from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.view import Bottleneck, LessonView, LockstepView, RunState, RunView

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
FRAME_LINES = 9
BLOCK_LINES = 6
SHOWN_TROUBLES = 3
FULL_QUEUE = 0.95
"""From this share on the queue is shown as full: the trainer is the bottleneck."""

_STATE_STYLES = {
    RunState.WAITING: "yellow",
    RunState.TRAINING: "green",
    RunState.PAUSED: "yellow",
    RunState.DRAINING: "cyan",
    RunState.FAILED: "bold red",
}


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
            height_lines: Lines of the terminal; behaviors that do not fit get one line instead of a block.
        """
        parts: list[RenderableType] = [_head(view)]
        if not view.behaviors:
            parts += [Text(), _invitation(view)]
        if view.page:
            parts.append(_line(("page        ", "dim"), (view.page, "")))
        parts += _troubles(view)
        if view.behaviors:
            parts.append(_bottleneck(view.bottleneck))
        curricula = [lesson for lesson in view.lessons if lesson.lessons > 1]
        if curricula:
            parts.append(_lessons(curricula))
        if view.lockstep is not None:
            parts.append(_lockstep(view.lockstep))
        roomy = FRAME_LINES + len(_troubles(view)) + BLOCK_LINES * len(view.behaviors) <= height_lines
        for behavior in view.behaviors:
            parts += [Text(), _block(behavior, self._note(behavior))] if roomy else [_brief(behavior)]
        if view.last_error:
            parts += [Text(), _line(("last error  ", "red"), (printable(view.last_error), ""))]
        title = Text.assemble(
            ("rollcast ", "bold"),
            (printable(view.run_id), "bold cyan"),
            ("  "),
            (view.state.value, _STATE_STYLES[view.state]),
        )
        return Panel(Group(*parts), title=title, title_align="left", box=ROUNDED, width=MAX_PANEL_CHARS, padding=(0, 1))

    def _note(self, behavior: BehaviorState) -> History:
        history = self._returns.setdefault(behavior.name, History())
        if behavior.mean_return_100 is not None:
            history.add(behavior.mean_return_100)
        return history


def _block(behavior: BehaviorState, history: History) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True, min_width=8)
    grid.add_column(ratio=1)
    grid.add_row("steps", _steps(behavior))
    grid.add_row("return", _returns(behavior, history))
    grid.add_row("policy", _policy(behavior))
    grid.add_row("queue", _queue(behavior))
    return Group(Text(printable(behavior.name), style="bold"), grid)


def _brief(behavior: BehaviorState) -> Text:
    share = behavior.env_steps_trained / max(behavior.max_steps, 1)
    return _line(
        (printable(behavior.name), "bold"),
        (f"   {share:.0%}", ""),
        (f"   {text.speed(behavior.steps_per_second)}/s", "dim"),
        ("   return ", "dim"),
        (text.number(behavior.mean_return_100), "bold green" if _reached(behavior) else "bold"),
        (_target(behavior), "dim"),
        (f"   version {behavior.version:,}   queue {behavior.queue_fill:.0%}", "dim"),
    )


def _head(view: RunView) -> Text:
    actors = f"{view.actors} actor{'' if view.actors == 1 else 's'}"
    return _line(
        (f"{printable(view.address)}", ""),
        ("   generation ", "dim"),
        (f"{view.generation}", ""),
        ("   up ", "dim"),
        (text.duration(view.uptime_seconds), ""),
        ("   ", ""),
        (actors, "" if view.actors else "yellow"),
    )


def _bottleneck(bottleneck: Bottleneck) -> Text:
    """Returns what limits the run with the three shares, or why it is unknown."""
    if bottleneck.name == "none":
        return _line(("bottleneck  ", "dim"), (bottleneck.text, "dim"))
    shares = {"learner": bottleneck.learner_busy, "actors": bottleneck.actor_busy, "network": bottleneck.network_share}
    figures = [part for name, share in shares.items() for part in ((f"   {name} ", "dim"), (f"{share:.0%}", ""))]
    return _line(("bottleneck  ", "dim"), (bottleneck.name, "bold"), *figures)


def _troubles(view: RunView) -> list[Text]:
    """Returns a line for each of the first actors with a problem, and one for the others."""
    lines = []
    for trouble in view.troubles[:SHOWN_TROUBLES]:
        figures = []
        if trouble.failures:
            figures.append(f"{trouble.failures:,} failure{'' if trouble.failures == 1 else 's'}")
        if trouble.given_up_steps:
            figures.append(f"{trouble.given_up_steps:,} steps given up")
        told = "".join(f"  {figure}" for figure in figures)
        error = printable(trouble.error)
        lines.append(
            _line(("failing     ", "yellow"), (printable(trouble.actor, 24), "bold"), (told, ""), (f"  {error}", "dim"))
        )
    if view.troubled > SHOWN_TROUBLES:
        more = f"and {view.troubled - SHOWN_TROUBLES:,} more actors"
        lines.append(_line(("            ", ""), (more, "yellow"), ("; rollcast status shows them", "dim")))
    return lines


def _lockstep(view: LockstepView) -> Text:
    """Returns the progress of lock-step, and whether the run is still reproducible."""
    said = ("reproducible", "green") if view.is_reproducible else (printable(view.reason), "yellow")
    return _line(
        ("lock-step   ", "dim"),
        (f"round {view.round:,}   ", ""),
        (f"{view.joined} of {view.actors} actors   ", "dim"),
        said,
    )


def _lessons(lessons: Sequence[LessonView]) -> Text:
    """Returns the current lesson of each parameter with a curriculum."""
    figures = [
        part
        for lesson in lessons
        for part in (
            (f"{printable(lesson.parameter)} ", ""),
            (f"{lesson.number + 1}/{lesson.lessons} {printable(lesson.name)}   ", "dim"),
        )
    ]
    return _line(("lessons     ", "dim"), *figures)


def _invitation(view: RunView) -> Text:
    if view.actors:
        return _line((NOTHING_DECLARED, "dim"))
    if view.has_own_actors:
        return _line(("the actors of this command have not connected yet", "dim"))
    # The command has a separate line, so that it can be copied.
    made = " (DIR: made by rollcast join DIR)" if view.tls else ""
    return _line((f"no actor has connected yet; start one{made}:\n", "dim"), (printable(view.actor_command), ""))


def _steps(behavior: BehaviorState) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    done = _line(
        (f"{behavior.env_steps_trained:,}", ""),
        (f" / {behavior.max_steps:,}", "dim"),
        (f"   {text.speed(behavior.steps_per_second)}", ""),
        ("/s", "dim"),
        (_time_left(behavior), "dim"),
    )
    bar = ProgressBar(
        total=max(behavior.max_steps, 1),
        completed=min(behavior.env_steps_trained, behavior.max_steps),
        width=BAR_CHARS,
        complete_style="cyan",
        finished_style="green",  # rich's own color of an unfinished bar is that of an error
    )
    grid.add_row(bar, done)
    return grid


def _returns(behavior: BehaviorState, history: History) -> Text:
    bars = sparkline(history.points)
    return _line(
        (text.number(behavior.mean_return_100), "bold green" if _reached(behavior) else "bold"),
        (_target(behavior), "dim"),
        (f"   {bars}" if bars else "", "cyan"),
        (f"   {behavior.episodes:,}", ""),
        (" episodes", "dim"),
    )


def _reached(behavior: BehaviorState) -> bool:
    mean, target = behavior.mean_return_100, behavior.target_return
    return mean is not None and target is not None and mean >= target


def _target(behavior: BehaviorState) -> str:
    return "" if behavior.target_return is None else f" of {text.number(behavior.target_return)}"


def _policy(behavior: BehaviorState) -> Text:
    parts = [("version ", "dim"), (f"{behavior.version:,}   ", "")]
    for each in behavior.fields:
        value = behavior.value(each)
        if each.label and value is not None:
            style = "bold red" if value > each.warn_above else ""
            parts += [(f"{each.label} ", "dim"), (f"{text.figure(value)}   ", style)]
    return _line(*parts)


def _queue(behavior: BehaviorState) -> Text:
    full = behavior.queue_fill >= FULL_QUEUE
    dropped, lost = sum(behavior.books["dropped"].values()), sum(behavior.books["lost"].values())
    return _line(
        (f"{behavior.queue_fill:.0%}", "yellow" if full else ""),
        (f" {text.size(behavior.queued_bytes)}, ", "dim"),
        (f"{behavior.queued_steps:,}", ""),
        (" steps", "dim"),
        ("   dropped ", "dim"),
        (f"{dropped:,}{_reasons(behavior.books['dropped'])}", "yellow" if dropped else ""),
        ("   lost ", "dim"),
        (f"{lost:,}{_reasons(behavior.books['lost'])}", "yellow" if lost else ""),
    )


def _reasons(counts: dict[str, int]) -> str:
    """Returns the largest reason in brackets; empty if there is none."""
    if not any(counts.values()):
        return ""
    reason = max(counts, key=lambda key: counts[key])
    return f" ({printable(reason)}{', …' if len(counts) > 1 else ''})"


def _time_left(behavior: BehaviorState) -> str:
    left = behavior.max_steps - behavior.env_steps_trained
    if left <= 0 or behavior.steps_per_second <= 0:
        return ""
    return f"   {text.duration(left / behavior.steps_per_second)} left"


def _line(*parts: tuple[str, str]) -> Text:
    line = Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
    line.rstrip()
    return line
