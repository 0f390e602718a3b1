"""Formats measurements: trainings, limits, and ratios of medians."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.tools.bench.limit_runs import BATCH_SIZES, CARTPOLE_STEP_BYTES, EPOCHS
from tests.tools.bench.measurement import (
    OTHERS_CORES,
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    TARGET_RETURN,
    Series,
    Spread,
)

NOTHING = "-"
IDLE_CORES = 0.2
"""Cores that are busy on any machine."""
PEERS = ("sb3", "sf", "mlagents")
_GAP = "  "


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit as a rate of environment steps.

    Attributes:
        name: For the JSON file.
        title: For the table.
        series: Which measurement it comes from.
        figure: Which figure of it.
        factor: Environment steps per unit of the figure.
        unit: Of the figure, where it is no rate of environment steps; empty else.
        unit_factor: What makes the figure a number of those units.
    """

    name: str
    title: str
    series: str
    figure: str
    factor: float = 1.0
    unit: str = ""
    unit_factor: float = 1.0


def limit_rows() -> list[LimitRow]:
    """Returns the limits in the order of the table."""
    minibatches = [
        LimitRow(
            f"minibatches_{size}",
            f"minibatches of {size:,}, {EPOCHS} epochs",
            "minibatches",
            f"samples_{size}",
            factor=1 / EPOCHS,
            unit="samples/s",
        )
        for size in BATCH_SIZES
    ]
    return [
        LimitRow("environments_alone", "environments alone", "stepping", "environments_alone"),
        LimitRow("actor_loop", "the actor's loop, no network", "stepping", "actor_loop"),
        *minibatches,
        LimitRow(
            "upload",
            "256 KiB messages over gRPC",
            "upload",
            "bytes_per_second",
            factor=1 / CARTPOLE_STEP_BYTES,
            unit="MB/s",
            unit_factor=1e-6,
        ),
    ]


def limit_rates(results: Mapping[str, Series]) -> dict[str, float]:
    """Returns the median of each measured limit, in environment steps per second."""
    rates = {}
    for row in limit_rows():
        series = results.get(row.series)
        median = None if series is None else series.median(row.figure)
        if median is not None:
            rates[row.name] = median * row.factor
    return rates


def ratios(results: Mapping[str, Series]) -> dict[str, dict[str, float]]:
    """Returns how Rollcast's medians compare with each peer's and each limit's.

    Returns:
        By name of the peer or limit: `speed` (steps per second, ours over theirs) and, if both reached the target,
        `time_to_target` (theirs over ours): more is better for Rollcast in both.
    """
    ours = results.get("rollcast")
    speed = None if ours is None else ours.median(STEPS_PER_SECOND)
    if ours is None or speed is None:
        return {}
    compared: dict[str, dict[str, float]] = {}
    our_time = ours.median(SECONDS_TO_TARGET)
    for name in PEERS:
        peer = results.get(name)
        peer_speed = None if peer is None else peer.median(STEPS_PER_SECOND)
        if peer is None or not peer_speed:
            continue
        compared[name] = {"speed": speed / peer_speed}
        peer_time = peer.median(SECONDS_TO_TARGET)
        if our_time and peer_time:
            compared[name]["time_to_target"] = peer_time / our_time
    compared |= {name: {"speed": speed / rate} for name, rate in limit_rates(results).items() if rate}
    return compared


def render(results: Mapping[str, Series]) -> str:
    """Returns everything as text."""
    parts = [_trainings(results), _limits(results), _ratios(results), remarks(results)]
    return "\n\n".join(part for part in parts if part)


def _trainings(results: Mapping[str, Series]) -> str:
    rows = [("CartPole-v1", "env steps/s", f"seconds to {TARGET_RETURN:.0f}", f"steps to {TARGET_RETURN:.0f}")]
    for name in ("rollcast", *PEERS):
        series = results.get(name)
        if series is None:
            continue
        rows.append(
            (
                series.title,
                cell(series.spread(STEPS_PER_SECOND), ",.0f"),
                cell(series.spread(SECONDS_TO_TARGET), ".1f"),
                cell(series.spread(STEPS_TO_TARGET), ",.0f"),
            )
        )
    return aligned(rows) if len(rows) > 1 else ""


def _limits(results: Mapping[str, Series]) -> str:
    rows = [("limits, one core each", "env steps/s", "")]
    for row in limit_rows():
        series = results.get(row.series)
        spread = None if series is None else series.spread(row.figure)
        if spread is None:
            continue
        aside = f"{spread.median * row.unit_factor:,.0f} {row.unit}" if row.unit else ""
        rows.append((row.title, cell(spread, ",.0f", row.factor), aside))
    return aligned(rows) if len(rows) > 1 else ""


def _ratios(results: Mapping[str, Series]) -> str:
    titles = {name: results[name].title for name in PEERS if name in results}
    titles |= {row.name: row.title for row in limit_rows()}
    rows = [("Rollcast against", "speed", f"time to {TARGET_RETURN:.0f}")]
    for name, ratio in ratios(results).items():
        sooner = f"{ratio['time_to_target']:.2f} x sooner" if "time_to_target" in ratio else ""
        rows.append((titles[name], f"{ratio['speed']:.3f} x", sooner))
    return aligned(rows) if len(rows) > 1 else ""


def remarks(results: Mapping[str, Series]) -> str:
    """Returns what could not be measured, notes, and whether others used the machine; empty if there is nothing."""
    lines = []
    for series in results.values():
        if series.unavailable is not None:
            lines.append(f"{series.title}: not measured: {series.unavailable}")
        lines += [f"{series.title}: {failure}" for failure in series.failures]
        notes = [figures.note for figures in series.rounds if figures.note]
        lines += [f"{series.title}: {note}" for note in dict.fromkeys(notes)]
    busy = [spread.highest for series in results.values() if (spread := series.spread(OTHERS_CORES)) is not None]
    if busy and max(busy) > IDLE_CORES:
        lines.append(f"others used up to {max(busy):.1f} cores meanwhile: the figures are lower than they could be")
    return "\n".join(lines)


def cell(spread: Spread | None, form: str, factor: float = 1.0) -> str:
    """Returns the median and, of values that are not written alike, the range."""
    if spread is None:
        return NOTHING
    text = f"{spread.median * factor:{form}}"
    lowest, highest = (f"{value * factor:{form}}" for value in (spread.lowest, spread.highest))
    return text if lowest == highest else f"{text} ({lowest}-{highest})"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns lines with columns of equal width, the first one to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)
