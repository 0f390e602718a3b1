"""Writes log lines: snake_case events with fields, on standard error and, as JSON, in the run folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import shutil
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TextIO, cast

import structlog
from rollcast.streams import ErrorStream
from rollcast.text import in_one_line, printable
from rollcast.throttle import Throttle
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from learner.shared.observe.jsonfile import AppendFile, as_json

LOG_FILE = "logs/learner.jsonl"
MAX_FILE_BYTES = 16 * 2**20
MAX_OLD_FILES = 3
"""Most older files that are kept; ``learner.1.jsonl`` is the newest of them."""
MAX_WAITING_LINES = 1000
LIBRARY_SECONDS = 10.0
"""Shortest time between two equal lines of a library."""


class LogFile:
    """Stores log events, in memory until the run folder is known. Thread-safe.

    On a full disk lines are lost without a warning; the console still shows them.

    Args:
        max_bytes: Size of one file in bytes; there are at most four.
    """

    def __init__(self, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING_LINES)
        self._path: Path | None = None
        self._file: AppendFile | None = None

    @contextlib.contextmanager
    def opened(self, run_folder: Path) -> Iterator[None]:
        """Writes the stored events, and later ones during the block, into the run folder."""
        with self._lock:
            self._path = run_folder / LOG_FILE
            waiting, self._waiting = list(self._waiting), deque(maxlen=MAX_WAITING_LINES)
            for line in waiting:
                self._append(line)
        try:
            yield
        except BaseException as error:
            self.write({"event": "ended_by_error", "level": "error", "error": in_one_line(error)})
            raise
        finally:
            with self._lock:
                self._path = None
                if self._file is not None:
                    self._file.close()
                    self._file = None

    def write(self, event: Mapping[str, object]) -> None:
        """Stores an event; callable from any thread."""
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
        """Renames the full file with a number, removes the oldest, and starts a new one."""
        file.close()
        self._file = None
        names = [file.path, *(file.path.with_suffix(f".{number}.jsonl") for number in range(1, MAX_OLD_FILES + 1))]
        for newer, older in reversed(list(itertools.pairwise(names))):
            if newer.exists():
                newer.replace(older)
        self._file = AppendFile(file.path)


LogFormat = Literal["auto", "console", "json", "mlagents"]
LogLevel = Literal["debug", "info", "warning", "error"]

MAX_LOG_VALUE_CHARS = 2000
EVENT_COLUMN_CHARS = 18
FOLD_INDENT = "    "


def configure(
    log_format: LogFormat = "auto",
    level: LogLevel = "info",
    stream: TextIO | None = None,
    file: LogFile | None = None,
) -> None:
    """Configures the log lines of this process and its libraries, and sends them to standard error.

    Args:
        log_format: ``json`` writes one object per line; the others write lines for people, in colour on a terminal.
            :mod:`learner.service.view.display` and, for ``mlagents``, :mod:`learner.shared.observe.console` decide what else is
            shown.
        level: Lowest level shown; for libraries, at least warnings. The file has lines of ``info`` in any case.
        stream: Output stream; None for standard error.
        file: Stores the same lines as JSON, whatever the format.
    """
    sink = ErrorStream(stream)
    for_machines = log_format == "json"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper("iso" if for_machines else "%H:%M:%S", utc=for_machines),
    ]
    rendering = _for_machines() if for_machines else _for_people(colors=sink.isatty())
    if not for_machines and sink.isatty():
        rendering = [*rendering, _folded_to_terminal]
    _set_up(sink, level, shared, rendering, file)


def _set_up(
    sink: ErrorStream, level: LogLevel, shared: list[Processor], rendering: list[Processor], file: LogFile | None = None
) -> None:
    passed, shown = level, rendering
    if file is not None:
        rendering = [_kept_in(file), *rendering]
        shown = [rendering[0], _shown_from(level), *shown]
        passed = "debug" if level == "debug" else "info"
    structlog.configure(
        processors=[*shared, *shown],
        wrapper_class=structlog.make_filtering_bound_logger(_number(passed)),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", sink)),
        cache_logger_on_first_use=False,
    )
    _route_libraries(sink, max(_number(level), logging.WARNING), shared, rendering)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def forward(send: Callable[[str, str, Mapping[str, object]], object], level: LogLevel = "info") -> None:
    """Passes the log lines of this process and its libraries on instead of writing them.

    Args:
        send: Receives level, event and fields of each line, plain values; a traceback is text in ``exception``.
        level: Lowest level passed on; for libraries, at least warnings.
    """

    def hand_over(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
        fields = {str(key): as_json(value) for key, value in event.items() if key not in {"level", "event", "_record"}}
        send(str(event.get("level", "info")), str(event.get("event", "")), fields)
        return ""

    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open as long as the process
    shared: list[Processor] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level]
    _set_up(ErrorStream(nowhere), level, shared, [structlog.processors.format_exc_info, hand_over])


def is_terminal(stream: TextIO | None = None) -> bool:
    """Returns whether a stream (standard error by default) is a terminal."""
    return ErrorStream(stream).isatty()


def _route_libraries(sink: ErrorStream, level: int, shared: list[Processor], rendering: list[Processor]) -> None:
    """Renders the log lines and warnings of libraries in the same way."""
    handler = logging.StreamHandler(cast("TextIO", sink))
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _name_the_library],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    handler.setFormatter(formatter)
    handler.setLevel(level)  # a logger with a level of its own asks no other
    handler.addFilter(_OncePerInterval())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)


class _OncePerInterval(logging.Filter):
    """Passes equal lines of a library once per interval: asyncio repeats an error for each connection it cannot accept."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = Throttle(LIBRARY_SECONDS)
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the line is due; adds the number of lines left out before it."""
        message = record.getMessage()
        with self._lock:
            left_out = self._throttle.admit((record.name, record.levelno, message.partition("\n")[0]))
        if left_out is None:
            return False
        if left_out:
            record.msg, record.args = f"{message} ({left_out} more were left out)", ()
        return True


def _for_people(*, colors: bool) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors, pad_event_to=EVENT_COLUMN_CHARS, sort_keys=False, exception_formatter=_write_traceback
    )
    return [_indented_traceback, _printable_values, renderer]


def _folded_to_terminal(_logger: WrappedLogger, _method: str, line: object) -> str:
    return folded(str(line), shutil.get_terminal_size().columns)


_PARTS = re.compile(r"(?:\x1b\[[0-9;]*m)*(?:[^ \x1b]|\x1b\[[0-9;]*m)+| +")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def folded(line: str, columns: int) -> str:
    """Returns a log line that is broken between words, with later lines indented. A traceback below it is unchanged.

    Args:
        line: The line, which may be coloured.
        columns: Width of the terminal.
    """
    first, newline, rest = line.partition("\n")
    room = columns - 1  # some terminals break a full line
    if room <= 2 * len(FOLD_INDENT) or len(_COLOR.sub("", first)) <= room:
        return line
    out, used, gap = "", 0, ""
    for part in _PARTS.findall(first):
        if part.isspace():
            gap = part
            continue
        width = len(_COLOR.sub("", part))
        if used and width and used + len(gap) + width > room:
            out, used = f"{out}\n{FOLD_INDENT}", len(FOLD_INDENT)
        else:
            out, used = out + gap, used + len(gap)
        out, used, gap = out + part, used + width, ""
    return f"{out}{newline}{rest}"


def _for_machines() -> list[Processor]:
    return [structlog.processors.format_exc_info, _json_values, structlog.processors.JSONRenderer()]


def _kept_in(file: LogFile) -> Processor:
    def keep(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        fields = structlog.processors.format_exc_info(logger, method, dict(event))
        first = {"level": fields.get("level"), "event": fields.get("event")}
        file.write(first | {key: value for key, value in fields.items() if key not in {*first, "timestamp", "_record"}})
        return event

    return keep


def _shown_from(level: LogLevel) -> Processor:
    least = _number(level)

    def leave_out(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if _number(str(event["level"])) < least:
            raise structlog.DropEvent
        return event

    return leave_out


def _write_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    """Writes a traceback without the values of variables (which may be secrets) and without control characters.

    The traceback is indented, so that no line of an error's text can pass for a log line.
    """
    out.write("\n" + _indented("".join(traceback.format_exception(*exc_info))))


def _indented(text: str) -> str:
    return "\n".join("  " + printable(line, MAX_LOG_VALUE_CHARS) for line in text.splitlines())


def _indented_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Indents the traceback of a forwarded line, as `_write_traceback` does."""
    if isinstance(text := event.get("exception"), str):
        event["exception"] = _indented(text)
    return event


def _printable_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, str) and key != "exception":
            event[key] = printable(value, MAX_LOG_VALUE_CHARS)
        elif isinstance(value, float):
            event[key] = f"{value:.6g}"
    return event


def _json_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {str(key): as_json(value) for key, value in event.items()}


def _name_the_library(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["logger"] = record.name
        event["event"] = str(event.get("event", "")).strip()
    return event
