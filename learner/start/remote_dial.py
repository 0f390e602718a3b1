"""Lets a rank find the service, which listens at a `learner.start.rank_handshake.RankHandshake`."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from rollcast.addresses import split_address
from rollcast.tls import ClientSecurity, IdentityError, read_token

from learner.link.meeting import Meeting, NotPrivateError, check_private
from learner.link.mesh import Mesh
from learner.link.stream import StreamConnection
from learner.shared.exits import ExitCode
from learner.shared.introduction import APART, INTRODUCTION_BYTES, READY, Introduction, RefusedError, not_seen
from learner.shared.observe.address import read_awaited
from learner.start.rank_handshake import HANDSHAKE_SECONDS

_REACH_SECONDS: Final = 1.0
_ADDRESS_BYTES: Final = 80
"""Most bytes of the address of a rank, as JSON."""
Meet: TypeAlias = Callable[[float], Mesh]
"""Waits so many seconds for the other ranks, and returns the connections to them."""


def dial_front(
    address: str,
    security: ClientSecurity,
    introduction: Introduction,
    seconds: float,
    say: Callable[[str], object],
    *,
    listen: str | None = None,
) -> tuple[StreamConnection, Meet]:
    """Connects a rank to the service, and waits until all ranks have.

    Args:
        address: Where the service listens for trainers.
        security: How to connect; its token replaces that of the introduction.
        introduction: What the service is told.
        seconds: How long the service may be unreachable.
        say: Called with a line when the wait begins, and when its reason changes.
        listen: IP address of this machine at which it listens for the other ranks; None for that from which it reaches the service.

    Returns:
        The connection, and what meets the other ranks.

    Raises:
        RefusedError: The service does not take this rank, its certificate is not accepted, or it was not reached; this is rank 0
            and does not see the run folder; or the address for the other ranks cannot be used.
    """
    deadline, told = time.monotonic() + seconds, ""
    if other := security.other_service(
        *split_address(address), "trainers"
    ):  # it may wait for ever for the rest of a request
        raise RefusedError(
            f"no learner takes trainers at {address}: {other}; give its --trainer-address", ExitCode.UNREACHABLE
        )
    while True:
        try:
            return _dial(address, security, introduction, listen)
        except (IdentityError, NotPrivateError) as error:
            raise RefusedError(str(error), ExitCode.USAGE) from None
        except ssl.SSLCertVerificationError as error:
            text = f"the learner's certificate is refused: {error.verify_message}"
            raise RefusedError(text, ExitCode.UNREACHABLE) from None
        except (OSError, EOFError) as error:
            reason = str(error) or "it closed the connection"
            if time.monotonic() > deadline:
                text = f"the learner at {address} was not reached for {seconds:.0f} s: {reason}"
                raise RefusedError(text, ExitCode.UNREACHABLE) from None
            if reason != told:
                told = reason
                say(f"waits for the learner at {address}: {reason}")
            time.sleep(_REACH_SECONDS)


def _dial(
    address: str, security: ClientSecurity, introduction: Introduction, listen: str | None
) -> tuple[StreamConnection, Meet]:
    host, port = split_address(address)
    token = None if security.token_file is None else read_token(security.token_file)
    handle, meeting = socket.create_connection((host, port), HANDSHAKE_SECONDS), None
    here = listen or str(handle.getsockname()[0])
    try:
        if introduction.ranks > 1:
            check_private(here)
        context = None if security.ca is None else security.context()
        connection = StreamConnection(handle, context, None if context is None else security.server_name or host)
        connection.handshake()
        connection.send_bytes(replace(introduction, token=token).encode())
        connection.settimeout(None)  # until the last rank has come
        answer = _answer(connection.recv_bytes(INTRODUCTION_BYTES))
        attempt = answer.get("attempt")
        if not isinstance(attempt, str):
            if "refused" not in answer:
                raise _other_form()
            raise RefusedError(str(answer["refused"]))
        folder = Path(str(answer.get("folder")))
        if not introduction.rank and not _is_shared(folder, attempt):
            connection.send_bytes(APART)
            raise RefusedError(not_seen(folder), ExitCode.NOTHING_TO_RESUME)
        if introduction.ranks > 1:
            meeting = _listening(here)
        connection.send_bytes(READY if meeting is None else b"%b %b" % (READY, meeting.address.encode()))
        begin = _answer(connection.recv_bytes(INTRODUCTION_BYTES + _ADDRESS_BYTES * introduction.ranks))
        return connection, _meet(introduction, meeting, begin)
    except BaseException:
        handle.close()
        if meeting is not None:
            meeting.close()
        raise


def _listening(host: str) -> Meeting:
    """Returns what listens for the other ranks.

    Raises:
        RefusedError: The address is none of this machine.
    """
    try:
        return Meeting(host)
    except OSError as error:
        text = f"cannot listen for the other trainers on {host}: {error.strerror or error}"
        raise RefusedError(text, ExitCode.PORT_IN_USE) from None


def _meet(introduction: Introduction, meeting: Meeting | None, begin: Mapping[str, Any]) -> Meet:
    """Returns what meets the other ranks, as the service tells.

    Raises:
        RefusedError: It tells it in another form.
    """
    rank, addresses, key = introduction.rank, begin.get("ranks"), begin.get("key")
    if not isinstance(addresses, list) or len(addresses) != introduction.ranks or not isinstance(key, str):
        raise _other_form()
    if meeting is None:
        return lambda _: Mesh(rank, {})
    return lambda seconds: Mesh(rank, meeting.join(rank, list(map(str, addresses)), key.encode(), seconds))


def _other_form() -> RefusedError:
    return RefusedError("the learner answers in another form", ExitCode.PROTOCOL_MISMATCH)


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
