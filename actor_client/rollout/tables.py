"""What a chunk is built of, whoever recorded it: closed segments, the rows they refer to, finished episodes."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


class Rows(NamedTuple):
    """The N rows of some segments, segment after segment.

    Attributes:
        columns: STEP columns by name, [N, ...] each, but for `version_offset`.
        versions: That chose the actions, uint64 [N].
        oldest_seconds: When the first of them was taken, in monotonic seconds.
        memory: The MEMORY column, float32 [M, m]: what was remembered before the first row of each segment, and before
            every one that follows a stride later; None without memory.
    """

    columns: dict[str, NDArray[Any]]
    versions: NDArray[np.uint64]
    oldest_seconds: float
    memory: NDArray[np.float32] | None = None


def remembered_rows(lengths: Index, stride: int) -> Index:
    """Returns which rows of segments carry a memory, int64 [M], in order.

    Args:
        lengths: Rows of each segment, int64 [S]; they lie one after another.
        stride: Rows between two memories of a segment.
    """
    counts = -(-lengths // stride)
    begins = np.repeat(np.cumsum(lengths) - lengths, counts)
    within = np.arange(len(begins)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows: Index = begins + stride * within
    return rows


class SegmentTable(Protocol):
    """S closed segments, in the order in which they shall be sent."""

    @property
    def lengths(self) -> Index:
        """Rows of each, int64 [S], at least 1."""
        ...

    @property
    def bundles(self) -> Sequence[int] | None:
        """Sizes of consecutive runs of segments that should share a chunk, adding up to S; None = all are free."""
        ...

    @property
    def finals(self) -> list[NDArray[Any]]:
        """What was observed after the last row of each, [S, *shape], one array an observation."""
        ...

    @property
    def final_masks(self) -> NDArray[np.uint8] | None:
        """Allowed choices then, uint8 [S, sum of branches]; None = all."""
        ...

    def __len__(self) -> int: ...

    def part(self, rows: slice) -> Self:
        """Returns some of the segments."""
        ...

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the SEGMENT columns as trajectory.proto has them."""
        ...


Table = TypeVar("Table", bound=SegmentTable)
Table_contra = TypeVar("Table_contra", bound=SegmentTable, contravariant=True)


class RowSource(Protocol[Table_contra]):
    """Where the rows of one kind of segments are."""

    def rows(self, segments: Table_contra) -> Rows:
        """Returns the rows of the segments, at least one."""
        ...


class EpisodeTable(Protocol):
    """Records of finished episodes."""

    @property
    def info_names(self) -> list[str]:
        """Names of `info/` columns."""
        ...

    @property
    def column_bytes(self) -> int:
        """Of all other EPISODE columns, one row."""
        ...

    def __len__(self) -> int: ...

    def part(self, rows: slice) -> Self:
        """Returns some of the records."""
        ...

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the EPISODE columns as trajectory.proto has them."""
        ...
