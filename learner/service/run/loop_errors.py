"""Reports that the process can open no more files, without filling the log."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, Final

import structlog
from rollcast.throttle import Throttle

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = structlog.get_logger(__name__)


def throttle_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Logs connections that a loop cannot accept once in a while; asyncio reports each attempt, thousands a second."""
    throttle = Throttle()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
            loop.default_exception_handler(context)
            return
        left_out = throttle.admit(error.errno)
        if left_out is not None:
            _log.error("connections_not_accepted", error=error.strerror, left_out=left_out)

    loop.set_exception_handler(handle)
