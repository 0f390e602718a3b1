"""The log of a run in its folder, beside what the console shows: every event as JSON, in files of bounded size."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from learner.observe.appendfile import AppendFile
from learner.observe.jsonfile import as_json

LOG_FILE = "logs/learner.jsonl"
MAX_FILE_BYTES = 16 * 2**20
MAX_OLD_FILES = 3
"""``learner.1.jsonl`` is the newest of them."""
MAX_WAITING_LINES = 1000


class LogFile:
    """Keeps log events; before the run folder is known, in memory. Thread-safe.

    A disk that is full costs lines, in silence: whoever could be told reads the console.

    Args:
        max_bytes: of one file; there are four at most.
    """

    def __init__(self, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING_LINES)
        self._path: Path | None = None
        self._file: AppendFile | None = None

    @contextlib.contextmanager
    def opened(self, run_folder: Path) -> Iterator[None]:
        """Writes what came so far, and what comes during the block, into the run folder."""
        with self._lock:
            self._path = run_folder / LOG_FILE
            waiting, self._waiting = list(self._waiting), deque(maxlen=MAX_WAITING_LINES)
            for line in waiting:
                self._append(line)
        try:
            yield
        except BaseException as error:
            self.write({"event": "ended_by_error", "level": "error", "error": f"{type(error).__name__}: {error}"})
            raise
        finally:
            with self._lock:
                self._path = None
                if self._file is not None:
                    self._file.close()
                    self._file = None

    def write(self, event: Mapping[str, object]) -> None:
        """Keeps an event; from any thread."""
        fields = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}
        line = (json.dumps(as_json(fields), ensure_ascii=False) + "\n").encode("utf-8", "replace")
        with self._lock:
            if self._path is None:
                self._waiting.append(line)
            else:
                self._append(line)

    def _append(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._file is None and self._path is not None:
                self._file = AppendFile(self._path)
            if self._file is not None and self._file.size_bytes + len(line) > self._max_bytes:
                self._turn_over(self._file)
            if self._file is not None:
                self._file.append(line)

    def _turn_over(self, file: AppendFile) -> None:
        """Gives the full file a number, drops the oldest, and begins a new one."""
        file.close()
        self._file = None
        names = [file.path, *(file.path.with_suffix(f".{number}.jsonl") for number in range(1, MAX_OLD_FILES + 1))]
        for newer, older in reversed(list(itertools.pairwise(names))):
            if newer.exists():
                newer.replace(older)
        self._file = AppendFile(file.path)
