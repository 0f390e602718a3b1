"""Writes the outcomes of a behavior's chunks to the history of the process (`rollcast.history`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rollcast.history import ChunkName, History, digest_of, oldest_versions

from learner.link.to_trainers import Experience
from learner.training.buffers.buffer import RowSource


@dataclass(slots=True)
class _Open:
    """A chunk with segments whose outcome is open."""

    name: ChunkName
    segments: int


class ExperienceHistory:
    """Records which segments of which chunks were taken, trained and dropped. Use it in the trainers' thread.

    Args:
        history: Receives the lines.
        behavior: Name of the behavior.
    """

    def __init__(self, history: History, behavior: str) -> None:
        self._history = history
        self._behavior = behavior
        self._open: dict[int, _Open] = {}

    def taken(self, items: Iterable[Experience]) -> None:
        """Records chunks that the trainer takes from its queue."""
        for item in items:
            chunk = item.chunk
            if not chunk.segments:
                continue
            name = self._history.chunk(item.session_id, chunk.sequence, chunk.generation)
            self._open[item.sequence] = _Open(name, chunk.segments)
            lengths = chunk.columns["length"].tolist()
            self._write("taken", chunk=name, digest=digest_of(chunk), lengths=lengths, versions=oldest_versions(chunk))

    def update_begins(self, version: int, sources: Sequence[RowSource]) -> None:
        """Records the start of an update.

        Args:
            version: The version before the update.
            sources: Sources of the segments.
        """
        self._write("update_begin", version=version, chunks=self._grouped(sources))

    def update_ends(self, version: int, sources: Sequence[RowSource]) -> None:
        """Records a completed update.

        Args:
            version: The version after the update.
            sources: Sources of the segments, whose steps then count as trained.
        """
        self._write("update_end", version=version, chunks=self._grouped(sources))
        self._close(sources)

    def remembered(self, sources: Sequence[RowSource]) -> None:
        """Records segments that enter the replay memory, where their steps count as trained."""
        self._write("remembered", chunks=self._grouped(sources))
        self._close(sources)

    def dropped(self, reason: str, sources: Sequence[RowSource]) -> None:
        """Records dropped segments, if any."""
        if sources:
            self._write("dropped", reason=reason, chunks=self._grouped(sources))
            self._close(sources)

    def published(self, version: int) -> None:
        """Records a version that is about to be published."""
        self._write("published", version=version)

    def _write(self, event: str, **fields: object) -> None:
        self._history.write(event, behavior=self._behavior, **fields)

    def _grouped(self, sources: Sequence[RowSource]) -> list[tuple[ChunkName, list[int]]]:
        """Returns the segments of each chunk."""
        found: dict[int, list[int]] = {}
        for number, segment in sources:
            found.setdefault(number, []).append(segment)
        return [(self._open[number].name, segments) for number, segments in found.items()]

    def _close(self, sources: Sequence[RowSource]) -> None:
        """Forgets chunks of which no segment is open."""
        for number, _ in sources:
            entry = self._open[number]
            entry.segments -= 1
            if not entry.segments:
                del self._open[number]


def whole(item: Experience) -> list[RowSource]:
    """Returns the sources of all segments of a chunk."""
    return [(item.sequence, segment) for segment in range(item.chunk.segments)]
