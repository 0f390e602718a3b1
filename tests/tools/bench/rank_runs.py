"""Measures updates with one rank and with two, each pinned to a core."""

from __future__ import annotations

import os
from typing import Final

from tests.tools.bench.limits.runs import Limit
from tests.tools.bench.measurement import Unavailable
from tests.tools.bench.processes import Workplace
from tests.tools.bench.table import Column, Layout, Pair

ROWS_PER_SECOND: Final = "rows_per_second"
KINDS: Final = {"nature_cnn": "nature_cnn, 84x84x4 pixels", "mlp": "2x64, CartPole"}
SECONDS: Final = 20.0
_COLUMNS: Final = (Column("rows/s", ROWS_PER_SECOND, ",.0f"), Column("waits", "wait_share", ".2f"))
LAYOUT: Final = Layout(
    "first: one rank, second: two. rows of minibatches that all ranks train in a second, 256 a rank; waits: share of an update in "
    "which a rank waits for the other",
    pairs=tuple(Pair(title, f"{kind}-1", f"{kind}-2", _COLUMNS) for kind, title in KINDS.items()),
)


class RankUpdates(Limit):
    """The updates of ranks in processes of their own.

    Args:
        workplace: Where logs go.
        kind: The network.
        ranks: Number of ranks.
    """

    def __init__(self, workplace: Workplace, kind: str, ranks: int) -> None:
        title = f"{KINDS[kind]}, {'one rank' if ranks == 1 else f'{ranks} ranks'}"
        super().__init__(workplace, "ranks", title, (kind, str(ranks), str(SECONDS)), f"{kind}-{ranks}")
        self._ranks = ranks

    def prepare(self) -> None:
        """Checks that each rank can have a core.

        Raises:
            Unavailable: There are fewer.
        """
        if len(os.sched_getaffinity(0)) < self._ranks:
            raise Unavailable("each rank needs a core")


def contestants(workplace: Workplace) -> list[RankUpdates]:
    """Returns the measurements in pairs: with one rank and with two."""
    return [RankUpdates(workplace, kind, ranks) for kind in KINDS for ranks in (1, 2)]
