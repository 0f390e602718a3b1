"""Lets the ranks of a torchrun on other machines find the service: it listens at a `RemoteDoor`, and each rank calls `dial_front`.

A rank introduces itself with its number and a token. When all have come, each gets the name of the attempt, which separates it
from earlier ones in torchrun's store, and confirms it; when all have confirmed, they begin.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from rollcast.auth import Principal, Role
from rollcast.errors import WireError
from rollcast.tls import ClientSecurity, IdentityError, read_token

from learner.identity.access import require
from learner.identity.setup import Identity
from learner.link.stream import StreamConnection
from learner.settings.addresses import split_address

PROTOCOL: Final = 1
"""Version of the messages between a service and ranks on other machines, which must be of one release."""
HANDSHAKE_SECONDS: Final = 10.0
MOST_AT_ONCE: Final = 64
"""Connections that introduce themselves at once; further ones wait in the system's queue."""
_INTRODUCTION_BYTES: Final = 4096
_REACH_SECONDS: Final = 1.0
_READY: Final = b"ready"
_BEGIN: Final = b"begin"

_log = structlog.get_logger(__name__)


class RefusedError(Exception):
    """Raised if the service does not take a rank; the message says why."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The introduction of a rank to the service.

    Attributes:
        rank: Its number, from 0.
        ranks: How many torchrun has started.
        release: Version of its package.
        token: Its token; None for none.
    """

    rank: int
    ranks: int
    release: str
    token: str | None = None

    def encode(self) -> bytes:
        """Returns it as bytes."""
        return json.dumps([PROTOCOL, self.rank, self.ranks, self.release, self.token]).encode()

    @classmethod
    def decode(cls, content: bytes) -> Introduction:
        """Reads it.

        Raises:
            RefusedError: It has another form.
        """
        try:
            protocol, rank, ranks, release, token = json.loads(content)
        except (ValueError, TypeError, RecursionError):
            raise RefusedError("this is not a rank of rollcast-learner trainer") from None
        if protocol != PROTOCOL or type(rank) is not int or type(ranks) is not int or not isinstance(release, str):
            raise RefusedError("this rank is of another release: install the learner's")
        return cls(rank, ranks, release, token if isinstance(token, str) else None)


class RemoteDoor:
    """Listens for ranks on other machines.

    Args:
        address: Where it listens.
        identity: The service's certificate and the principals that it knows.
        ranks: Number of ranks that train together.
        release: Version of the service's package, which ranks must have too.

    Raises:
        OSError: The address cannot be used.

    Attributes:
        address: Where it listens, with the port.
    """

    def __init__(self, address: str, identity: Identity, ranks: int, release: str) -> None:
        host, port = split_address(address)
        self._identity = identity
        self._ranks = ranks
        self._release = release
        self._context = None if identity.security is None else identity.security.http_context(require_certificate=True)
        self._listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=MOST_AT_ONCE
        )
        bound = self._listener.getsockname()
        self.address = f"[{host}]:{bound[1]}" if ":" in host else f"{host}:{bound[1]}"
        self._arrivals: queue.SimpleQueue[tuple[Introduction, StreamConnection] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(MOST_AT_ONCE)
        self._found: dict[int, StreamConnection] = {}
        threading.Thread(target=self._listen, name="trainer-door", daemon=True).start()

    def gather(self, attempt: str) -> list[StreamConnection] | None:
        """Waits until all ranks have come, and returns their connections; None after `close`.

        Args:
            attempt: Name of this attempt; no other may have it.
        """
        while True:
            arrival = self._arrivals.get()
            if arrival is None:
                return None
            introduction, connection = arrival
            earlier = self._found.pop(introduction.rank, None)  # of a rank that torchrun has started again
            if earlier is not None:
                earlier.close()
            self._found[introduction.rank] = connection
            _log.info("trainer_joined", rank=introduction.rank, present=len(self._found), ranks=self._ranks)
            if len(self._found) == self._ranks:
                found, self._found = self._found, {}
                connections = [found[rank] for rank in range(self._ranks)]
                if _are_ready(connections, attempt):
                    return connections
                for each in connections:  # those that live come again
                    each.close()

    def close(self) -> None:
        """Stops listening, and ends a wait in `gather`."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._found.values():
            each.close()
        self._arrivals.put(None)

    def _listen(self) -> None:
        while True:
            self._room.acquire()
            try:
                handle, peer = self._listener.accept()
            except OSError:
                return
            if self._identity.security is not None:
                self._identity.security.poll()
            self._identity.access.poll()
            threading.Thread(target=self._welcome, args=(handle, str(peer[0])), daemon=True).start()

    def _welcome(self, handle: socket.socket, peer: str) -> None:
        """Lets a rank in, or sends a stranger away."""
        try:
            handle.settimeout(HANDSHAKE_SECONDS)
            connection = StreamConnection(handle, self._context)
            connection.handshake()
            try:
                introduction = Introduction.decode(connection.recv_bytes(_INTRODUCTION_BYTES))
                self._check(introduction, connection)
            except RefusedError as error:
                _log.warning("trainer_refused", peer=peer, reason=str(error))
                connection.send_bytes(json.dumps({"refused": str(error)}).encode())
                connection.close()
            else:
                self._arrivals.put((introduction, connection))
        except (OSError, EOFError) as error:
            # At most a debug line: anyone who reaches the address could fill the log.
            _log.debug("trainer_refused", peer=peer, reason=str(error) or type(error).__name__)
            handle.close()
        finally:
            self._room.release()

    def _check(self, introduction: Introduction, connection: StreamConnection) -> None:
        """Checks a rank.

        Raises:
            RefusedError: It may not train here, or does not fit.
        """
        access = self._identity.access
        if access.identifies_actors:
            try:
                principal: Principal | None = access.by_token(introduction.token)
                require(access.agree(principal, connection.certificate_names), Role.TRAINER)
            except WireError as error:
                raise RefusedError(str(error)) from None
        if introduction.release != self._release:
            raise RefusedError(
                f"the learner is rollcast {self._release}, and this rank {introduction.release}: install one release"
            )
        if introduction.ranks != self._ranks or not 0 <= introduction.rank < self._ranks:
            raise RefusedError(
                f"the learner waits for {self._ranks} trainers (--trainers), and torchrun started {introduction.ranks}: "
                "--nnodes times --nproc-per-node must be as many"
            )


def _are_ready(connections: Sequence[StreamConnection], attempt: str) -> bool:
    """Tells the ranks that all have come, and returns whether each confirms; one may have died while it waited."""
    try:
        for each in connections:
            each.send_bytes(json.dumps({"attempt": attempt}).encode())
        if any(each.recv_bytes(len(_READY)) != _READY for each in connections):
            return False
        for each in connections:
            each.send_bytes(_BEGIN)
            each.settimeout(None)
    except (OSError, EOFError):
        return False
    return True


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
        RefusedError: The service does not take this rank, its certificate is not accepted, or it was not reached.
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
        answer = _answer(connection.recv_bytes(_INTRODUCTION_BYTES))
        attempt = answer.get("attempt")
        if not isinstance(attempt, str):
            raise RefusedError(str(answer.get("refused", "the learner answers in another form")))
        connection.send_bytes(_READY)
        connection.recv_bytes(len(_BEGIN))
    except BaseException:
        handle.close()
        raise
    return connection, attempt


def _answer(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
