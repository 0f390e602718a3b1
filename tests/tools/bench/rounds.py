"""Measures in rounds, so that a slow minute does not affect one contestant.

Every second round goes backwards (A B, B A, A B): a machine that becomes slower or faster all the while does so for both.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.tools.bench.measurement import OTHERS_CORES, Contestant, Figures, MeasurementFailed, Series, Unavailable

_STAT = Path("/proc/stat")
_IDLE_FIELDS = (3, 4)
"""Of the line "cpu": idle, and waiting for a disk."""


def measure(
    contestants: Sequence[Contestant],
    rounds: int,
    results: dict[str, Series],
    tell: Callable[[str], None],
    *,
    idle_seconds: float = 0.5,
) -> None:
    """Measures all contestants in alternating rounds.

    Args:
        contestants: In the order of the first round.
        rounds: How many.
        results: Filled as figures come, by name, so that an interrupted run has what it got.
        tell: Takes one line of progress.
        idle_seconds: How long is looked, before each measurement, whether others use the machine.
    """
    ready = [contestant for contestant in contestants if _prepare(contestant, results, tell)]
    for index in range(rounds):
        for contestant in ready if index % 2 == 0 else reversed(ready):
            tell(f"round {index + 1} of {rounds}: {contestant.title}")
            series = results[contestant.name]
            try:
                busy = busy_cores(idle_seconds)
                figures = contestant.measure(index)
                series.rounds.append(Figures({**figures.values, OTHERS_CORES: busy}, figures.note, index))
            except MeasurementFailed as failure:
                tell(str(failure))
                series.failures.append(f"round {index + 1}: {str(failure).splitlines()[0]}")


def _prepare(contestant: Contestant, results: dict[str, Series], tell: Callable[[str], None]) -> bool:
    reason = None
    try:
        contestant.prepare()
    except Unavailable as unavailable:
        tell(str(unavailable))
        reason = str(unavailable)
    results[contestant.name] = Series(contestant.name, contestant.title, unavailable=reason)
    return reason is None


def busy_cores(seconds: float) -> float:
    """Returns how many cores are at work while this process sleeps."""
    before = _ticks()
    time.sleep(seconds)
    busy, total, cores = (later - sooner for later, sooner in zip(_ticks(), (*before[:2], 0), strict=True))
    return busy / total * cores if total else 0.0


def _ticks() -> tuple[int, int, int]:
    """Returns busy and all ticks since the start of the machine, over all cores, and the number of cores."""
    lines = [line.split() for line in _STAT.read_text(encoding="ascii").splitlines() if line.startswith("cpu")]
    ticks = [int(field) for field in lines[0][1:9]]
    return sum(ticks) - sum(ticks[field] for field in _IDLE_FIELDS), sum(ticks), len(lines) - 1
