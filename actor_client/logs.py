"""Log lines on standard error: snake_case events with fields, as text or one JSON object per line."""

import logging
from typing import Literal, TextIO, cast

import structlog
from rollcast.streams import ErrorStream
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
                colors=ErrorStream().isatty(),
                pad_event_to=EVENT_COLUMN_CHARS,
                sort_keys=False,
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    )
    structlog.configure(
        processors=[structlog.processors.add_log_level, stamp, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", ErrorStream())),
        cache_logger_on_first_use=False,
    )


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
