"""Measures updates with one rank and with two, each pinned to a core."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from tests.tools.bench.cpu_table import compare
from tests.tools.bench.limit_runs import Limit
from tests.tools.bench.measurement import Series, Unavailable
from tests.tools.bench.table import aligned, cell, remarks
from tests.tools.bench.workplace import Workplace

ROWS_PER_SECOND: Final = "rows_per_second"
WAIT_SHARE: Final = "wait_share"
KINDS: Final = {"nature_cnn": "nature_cnn, 84x84x4 pixels", "mlp": "2x64, CartPole"}
SECONDS: Final = 20.0
_LEGEND: Final = (
    "rows of minibatches that all ranks train in a second, 256 a rank; waits: share of an update in which a rank waits for the other. "
    "Two over one: median and range of the rounds"
)


class RankUpdates(Limit):
    """The updates of ranks in processes of their own.

    Args:
        workplace: Where logs go.
        kind: The network.
        ranks: Number of ranks.
        seconds: How long is measured.
    """

    def __init__(self, workplace: Workplace, kind: str, ranks: int, seconds: float = SECONDS) -> None:
        title = f"{KINDS[kind]}, {'one rank' if ranks == 1 else f'{ranks} ranks'}"
        super().__init__(workplace, "ranks", title, (kind, str(ranks), str(seconds)), f"{kind}-{ranks}")
        self._ranks = ranks

    def prepare(self) -> None:
        """Checks that each rank can have a core.

        Raises:
            Unavailable: There are fewer.
        """
        if len(os.sched_getaffinity(0)) < self._ranks:
            raise Unavailable("each rank needs a core")


def render(results: Mapping[str, Series]) -> str:
    """Returns the table, what its figures mean, and remarks."""
    rows: list[tuple[str, ...]] = [("rows/s", "one rank", "two ranks", "waits", "two over one")]
    for kind, title in KINDS.items():
        one, two = results.get(f"{kind}-1"), results.get(f"{kind}-2")
        if one is None or two is None:
            continue
        compared = compare(one, two, ROWS_PER_SECOND)
        rows.append(
            (
                title,
                *(cell(side.spread(ROWS_PER_SECOND), ",.0f") for side in (one, two)),
                cell(two.spread(WAIT_SHARE), ".2f"),
                cell(None if compared is None else compared.of_pairs, ".2f"),
            )
        )
    return "\n\n".join(part for part in (aligned(rows), _LEGEND, remarks(results)) if part)


def contestants(workplace: Workplace) -> list[RankUpdates]:
    """Returns the measurements in pairs: with one rank and with two."""
    return [RankUpdates(workplace, kind, ranks) for kind in KINDS for ranks in (1, 2)]
