"""Records the events of a run over all its starts: `events.jsonl`, one JSON object per line, append-only."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import structlog

from learner.observe.jsonfile import AppendFile, as_json
from learner.observe.rates import Throttle

JOURNAL_FILE = "events.jsonl"
MAX_JOURNAL_BYTES = 64 * 2**20
"""Hundreds of thousands of events; actors that keep joining and leaving must not fill the disk."""
_LOG_SECONDS = 60.0

log = structlog.get_logger(__name__)


class Journal:
    """Appends events; thread-safe. A full disk loses events and is logged at most once a minute.

    Args:
        run_folder: ``results/<run_id>``.
        generation: Number of this start of the learner; part of each event.
        now: Returns wall-clock time.
    """

    def __init__(
        self, run_folder: Path, generation: int, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._path = run_folder / JOURNAL_FILE
        self._generation = generation
        self._now = now
        self._lock = threading.Lock()
        self._file: AppendFile | None = None
        self._throttle = Throttle(_LOG_SECONDS)

    def note(self, event: str, **fields: object) -> None:
        """Adds an event with its time."""
        entry = {"time": self._now().isoformat(timespec="milliseconds"), "event": event}
        line = json.dumps(as_json({**entry, "generation": self._generation, **fields}), ensure_ascii=False)
        with self._lock:
            try:
                if self._file is None:
                    self._file = AppendFile(self._path)
                if self._file.size_bytes < MAX_JOURNAL_BYTES:
                    self._file.append(f"{line}\n".encode("utf-8", "replace"))
                return
            except OSError as error:
                left_out = self._throttle.admit(None)
                failure = error
        if left_out is not None:
            log.warning("event_not_kept", noted=event, file=str(self._path), error=str(failure), left_out=left_out)

    def close(self) -> None:
        """Closes the file; a later event reopens it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
