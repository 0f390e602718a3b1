"""One connection of an operator's command to a learner's HTTP port, with bounds on what the other side sends."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from types import TracebackType
from typing import Any, Final, Self

from rollcast.addresses import split_address
from rollcast.auth import AUTHORIZATION
from rollcast.text import printable
from rollcast.tls import ClientSecurity

from learner.service.web.operator_token import COMMAND_HEADER
from learner.shared.observe.document import MAX_DOCUMENT_BYTES

CALL_SECONDS: Final = 5.0
_MAX_MESSAGE_CHARS: Final = 2000


class Refused(Exception):  # noqa: N818 - it says what happened
    """Raised if a learner answers with an error.

    Args:
        status: HTTP status.
        reason: Reason for programs.
        message: Message for people; printable.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotALearnerError(Exception):
    """Raised if what answers is not a learner's HTTP port."""


class Exchange:
    """A connection; use it in a `with` block. It is not opened again once it is closed.

    Args:
        address: ``host:port``.
        security: Certificates; those of no authority are plain text.

    Raises:
        OSError: Nothing answers.
        IdentityError: A file cannot be used.
    """

    def __init__(self, address: str, security: ClientSecurity) -> None:
        host, port = split_address(address)
        self._connection = connection = http.client.HTTPConnection(host, port, timeout=CALL_SECONDS)
        connection.auto_open = 0  # a second connection would not have proved anything
        self._headers = {COMMAND_HEADER: "1"}
        connection.sock = security.connection(host, port, CALL_SECONDS)

    def __enter__(self) -> Self:
        """Returns the connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connection."""
        self._connection.close()

    def authorize(self, token: str) -> None:
        """Sends a token with each request from now on."""
        self._headers[AUTHORIZATION] = f"Bearer {token}"

    def ask(self, method: str, path: str, seconds: float = CALL_SECONDS) -> dict[str, Any]:
        """Sends a request and returns the document of its answer.

        Raises:
            Refused: The learner answers with an error.
            NotALearnerError: What answers is no learner's HTTP port.
            TimeoutError: The answer is not complete in time.
            OSError: The connection ended.
        """
        connection, is_late = self._connection, threading.Event()
        held: socket.socket = connection.sock

        def end() -> None:
            is_late.set()
            with contextlib.suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)  # not that of TLS, which another thread reads

        held.settimeout(seconds)
        timer = threading.Timer(seconds, end)  # a server that sends byte by byte would never be late
        timer.daemon = True
        timer.start()
        try:
            connection.request(method, path, headers=self._headers)
            with connection.getresponse() as response:
                content = response.read(MAX_DOCUMENT_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            if is_late.is_set():
                raise TimeoutError from None
            if isinstance(error, http.client.IncompleteRead):
                raise ConnectionError("the answer is incomplete") from None
            if isinstance(error, OSError):
                raise
            raise NotALearnerError from None
        finally:
            timer.cancel()
        if is_late.is_set():
            raise TimeoutError
        try:
            document = json.loads(content) if len(content) <= MAX_DOCUMENT_BYTES else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise NotALearnerError
        if response.status != http.HTTPStatus.OK:
            raise _refusal(response.status, document)
        return document


def _refusal(status: int, document: dict[str, Any]) -> Exception:
    error = document.get("error")
    reason, message = (error.get("reason"), error.get("message")) if isinstance(error, dict) else (None, None)
    if not isinstance(reason, str) or not isinstance(message, str):
        return NotALearnerError()
    return Refused(status, reason, printable(message, _MAX_MESSAGE_CHARS))
