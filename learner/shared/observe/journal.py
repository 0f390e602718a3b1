"""Records the events of a run over all its starts in files of one JSON object per line, which only grow."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from rollcast.throttle import Throttle

from learner.shared.files import open_regular
from learner.shared.observe.jsonfile import AppendFile, as_json

JOURNAL_FILE = "events.jsonl"
MAX_JOURNAL_BYTES = 64 * 2**20
"""Hundreds of thousands of events; actors that keep joining and leaving must not fill the disk."""
_LOG_SECONDS = 60.0

log = structlog.get_logger(__name__)


def utc_now() -> datetime:
    """Returns the time of day."""
    return datetime.now(UTC)


class EventLines:
    """Appends events; thread-safe. A full disk loses events and is logged at most once a minute.

    Args:
        path: Path of the file.
        private: Whether only the owner may read it.
        max_bytes: Size from which on events are lost.
        now: Returns wall-clock time.
    """

    def __init__(
        self,
        path: Path,
        *,
        private: bool = False,
        max_bytes: int = MAX_JOURNAL_BYTES,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._path = path
        self._private = private
        self._max_bytes = max_bytes
        self._now = now
        self._lock = threading.Lock()
        self._file: AppendFile | None = None
        self._throttle = Throttle(_LOG_SECONDS)

    def add(self, event: Mapping[str, object]) -> None:
        """Adds an event with its time."""
        entry = {"time": self._now().isoformat(timespec="milliseconds"), **event}
        line = json.dumps(as_json(entry), ensure_ascii=False)
        with self._lock:
            try:
                if self._file is None:
                    self._file = AppendFile(self._path, private=self._private)
                if self._file.size_bytes >= self._max_bytes:
                    raise OSError(errno.EFBIG, f"it has its most {self._max_bytes} bytes: move it away")
                self._file.append(f"{line}\n".encode("utf-8", "replace"))
                return
            except OSError as error:
                left_out = self._throttle.admit(None)
                failure = error
        if left_out is not None:
            log.warning("event_not_kept", noted=line, file=str(self._path), error=str(failure), left_out=left_out)

    def close(self) -> None:
        """Closes the file; a later event reopens it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


class Journal:
    """Records what happens to a run in `events.jsonl`; thread-safe.

    Args:
        run_folder: ``results/<run_id>``.
        generation: Number of this start of the learner; part of each event.
        now: Returns wall-clock time.
    """

    def __init__(self, run_folder: Path, generation: int, now: Callable[[], datetime] = utc_now) -> None:
        self._generation = generation
        self._lines = EventLines(run_folder / JOURNAL_FILE, now=now)

    def note(self, event: str, **fields: object) -> None:
        """Adds an event with its time."""
        self._lines.add({"event": event, "generation": self._generation, **fields})

    def close(self) -> None:
        """Closes the file; a later event reopens it."""
        self._lines.close()


def newest_events(run_folder: Path, max_bytes: int) -> Iterator[dict[str, Any]]:
    """Yields the complete events at the end of a journal, the newest first; none if it is missing or unreadable.

    Args:
        run_folder: ``results/<run_id>``.
        max_bytes: Bytes to read from the end of the file.
    """
    try:
        with open_regular(run_folder / JOURNAL_FILE) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            lines = file.read(max_bytes).splitlines()
    except OSError:
        return
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event
