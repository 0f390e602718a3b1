"""Log lines on standard error: snake_case events with fields, as text or one JSON object per line."""

import logging
import sys
import time
from collections.abc import Callable
from typing import Literal, TextIO, cast

import structlog
from rollcast.text import printable
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["auto", "console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

EVENT_COLUMN_CHARS = 24
MAX_VALUE_CHARS = 2000


def configure(log_format: LogFormat, level: LogLevel) -> None:
    """Sends the log lines of this process to standard error.

    Args:
        log_format: `json` writes one object per line; `console` and `auto` write text, in colour on a terminal.
        level: The lowest level shown.
    """
    as_json = log_format == "json"
    stamp = (
        structlog.processors.TimeStamper("iso") if as_json else structlog.processors.TimeStamper("%H:%M:%S", utc=False)
    )
    rendering: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [
            _fit_for_terminals,
            structlog.dev.ConsoleRenderer(
                colors=_Sink().isatty(),
                pad_event_to=EVENT_COLUMN_CHARS,
                sort_keys=False,
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    )
    structlog.configure(
        processors=[structlog.processors.add_log_level, stamp, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Sink())),
        cache_logger_on_first_use=False,
    )


class _Sink:
    """Writes to the present standard error; a closed terminal does not end the actor."""

    def write(self, text: str) -> int:
        try:
            return sys.stderr.write(text)
        except (OSError, ValueError):  # ValueError: the stream was closed
            return 0

    def flush(self) -> None:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def isatty(self) -> bool:
        try:
            return sys.stderr.isatty()
        except (OSError, ValueError):
            return False


def _fit_for_terminals(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Rounds numbers, and removes control sequences from texts, some of which come from other machines."""
    for key, value in event.items():
        if isinstance(value, float):
            event[key] = f"{value:.6g}"
        elif isinstance(value, str) and key != "exception" and not value.isprintable():
            event[key] = printable(value, MAX_VALUE_CHARS)
    return event


def indented(text: str) -> str:
    """Returns indented lines, so that no line of a traceback looks like a log line."""
    return "\n".join(f"  {line}" for line in text.splitlines())


INTERVAL_SECONDS = 10.0


class Notices:
    """Limits how often each kind of line is logged.

    Example:
        if (left_out := notices.due("rejected")) is not None:
            log.warning("chunk_rejected", left_out=left_out)
    """

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._said: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def due(self, kind: str) -> int | None:
        """Returns how many lines of this kind were left out since the last one; None if this one is left out too."""
        now = self._clock()
        said = self._said.get(kind)
        if said is not None and now - said < self._interval_seconds:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        self._said[kind] = now
        return self._left_out.pop(kind, 0)

    def reset(self, kind: str) -> None:
        """Allows the next line of this kind immediately."""
        self._said.pop(kind, None)
        self._left_out.pop(kind, None)
