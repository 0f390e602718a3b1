"""Lets a rank of a torchrun find the service, which listens at a `learner.commands.remote_door.RemoteDoor`."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rollcast.tls import ClientSecurity, IdentityError, read_token

from learner.commands.introduction import APART, BEGIN, INTRODUCTION_BYTES, READY, Introduction, RefusedError, not_seen
from learner.commands.remote_door import HANDSHAKE_SECONDS
from learner.link.stream import StreamConnection
from learner.observe.address import read_awaited
from learner.settings.addresses import split_address

_REACH_SECONDS: Final = 1.0


def dial_front(
    address: str, security: ClientSecurity, introduction: Introduction, seconds: float, say: Callable[[str], object]
) -> tuple[StreamConnection, str]:
    """Connects a rank to the service, and waits until all ranks have.

    Args:
        address: Where the service listens for trainers.
        security: How to connect; its token replaces that of the introduction.
        introduction: What the service is told.
        seconds: How long the service may be unreachable.
        say: Called with a line when the wait begins, and when its reason changes.

    Returns:
        The connection, and the name of the attempt.

    Raises:
        RefusedError: The service does not take this rank, its certificate is not accepted, or it was not reached; or this is rank 0
            and does not see the run folder.
    """
    deadline, told = time.monotonic() + seconds, ""
    while True:
        try:
            return _dial(address, security, introduction)
        except IdentityError as error:
            raise RefusedError(str(error)) from None
        except ssl.SSLCertVerificationError as error:
            raise RefusedError(f"the learner's certificate is refused: {error.verify_message}") from None
        except (OSError, EOFError) as error:
            reason = str(error) or "it closed the connection"
            if time.monotonic() > deadline:
                raise RefusedError(f"the learner at {address} was not reached for {seconds:.0f} s: {reason}") from None
            if reason != told:
                told = reason
                say(f"waits for the learner at {address}: {reason}")
            time.sleep(_REACH_SECONDS)


def _dial(address: str, security: ClientSecurity, introduction: Introduction) -> tuple[StreamConnection, str]:
    host, port = split_address(address)
    token = None if security.token_file is None else read_token(security.token_file)
    handle = socket.create_connection((host, port), HANDSHAKE_SECONDS)
    try:
        context = None if security.ca is None else security.context()
        connection = StreamConnection(handle, context, None if context is None else security.server_name or host)
        connection.handshake()
        connection.send_bytes(replace(introduction, token=token).encode())
        connection.settimeout(None)  # until the last rank has come
        answer = _answer(connection.recv_bytes(INTRODUCTION_BYTES))
        attempt = answer.get("attempt")
        if not isinstance(attempt, str):
            raise RefusedError(str(answer.get("refused", "the learner answers in another form")))
        folder = Path(str(answer.get("folder")))
        if not introduction.rank and not _is_shared(folder, attempt):
            connection.send_bytes(APART)
            raise RefusedError(not_seen(folder))
        connection.send_bytes(READY)
        connection.recv_bytes(len(BEGIN))
    except BaseException:
        handle.close()
        raise
    return connection, attempt


def _is_shared(folder: Path, attempt: str) -> bool:
    """Returns whether a folder is that of the service that named the attempt."""
    awaited = read_awaited(folder)
    return awaited is not None and awaited.attempt == attempt


def _answer(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
