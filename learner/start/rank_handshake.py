"""Lets ranks on other machines in: the service listens at a `RankHandshake`, and each rank dials it.

A rank introduces itself with its number and a token. When all have come, each gets the name of the attempt, and confirms it, rank 0
after a look into the run folder, with the address at which the other ranks reach it; when all have confirmed, they get the addresses
and the key with which they meet (`learner.link.meeting`), and begin.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from rollcast.addresses import join_address, split_address
from rollcast.auth import Principal, Role
from rollcast.errors import WireError
from rollcast.other_services import OF_TRAINERS
from rollcast.signals import until
from rollcast.throttle import Throttle

from learner.link.entrance import Entrance, listen, shut
from learner.link.meeting import KEY_BYTES
from learner.link.stream import StreamConnection
from learner.service.identity.access import require
from learner.service.identity.audit import Requester
from learner.service.identity.setup import Identity
from learner.shared.introduction import APART, INTRODUCTION_BYTES, READY, Introduction, RefusedError, not_seen

HANDSHAKE_SECONDS: Final = 10.0
"""Seconds that a connection has for its handshake and its introduction together."""
MOST_AT_ONCE: Final = 64
"""Connections that introduce themselves at once."""
_WATCH_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1
"""Pause after a connection could not be accepted, as without free descriptors."""
_KIND_LETTERS: Final = 20
"""The messages of refusals differ in so many letters; what a stranger sent comes later, and must not make a kind of its own."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Rank:
    """A rank that was let in.

    Attributes:
        introduction: Its introduction.
        connection: Its connection.
        peer: Its address.
        principal: Who it is; None if the service identifies nobody.
    """

    introduction: Introduction
    connection: StreamConnection
    peer: str
    principal: Principal | None


class RankHandshake:
    """Listens for ranks on other machines, and ends the connections of those whose token is revoked.

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
        self._listener = listen(host, port, MOST_AT_ONCE)
        self.address = join_address(host, self._listener.getsockname()[1])
        self._entrance = Entrance(MOST_AT_ONCE, HANDSHAKE_SECONDS)
        self._throttle = Throttle()
        self._closed = threading.Event()
        self._changed = threading.Condition()
        self._waiting: dict[int, _Rank] = {}
        self._present: list[_Rank] = []
        for work in (self._listen, self._watch):
            threading.Thread(target=work, name="rank-handshake", daemon=True).start()

    def gather(self, attempt: str, folder: Path) -> list[StreamConnection] | None:
        """Waits until all ranks have come, and returns their connections; None after `close`.

        Args:
            attempt: Name of this attempt; no other may have it.
            folder: The run folder, in which rank 0 finds that name.
        """
        while True:
            with self._changed:
                until(partial(self._changed.wait_for, self._is_complete))
                if self._closed.is_set():
                    return None
                self._present = [self._waiting.pop(rank) for rank in range(self._ranks)]
                present = self._present
            if self._are_ready(present, attempt, folder):
                return [each.connection for each in present]
            for each in present:  # those that live come again
                each.connection.close()

    def _is_complete(self) -> bool:
        return self._closed.is_set() or len(self._waiting) == self._ranks

    def close(self) -> None:
        """Stops listening, and ends a wait in `gather`."""
        with self._changed:
            self._closed.set()
            for each in self._waiting.values():
                each.connection.close()
            self._changed.notify_all()
        shut(self._listener)
        self._listener.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                handle, peer = self._listener.accept()
            except OSError as error:
                left_out = None if self._closed.is_set() else self._throttle.admit(error.errno)
                if left_out is not None:
                    _log.error("trainers_not_accepted", error=error.strerror, left_out=left_out)
                self._closed.wait(_PAUSE_SECONDS)
                continue
            host, port = str(peer[0]), peer[1]
            self._entrance.enter(handle, host)
            where = join_address(host, port)
            threading.Thread(target=self._welcome, args=(handle, where), daemon=True).start()

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_SECONDS):
            self._entrance.end_late()
            if self._identity.security is not None:
                self._identity.security.poll()
            self._identity.access.poll()
            with self._changed:
                for number, each in list(self._waiting.items()):
                    if not self._may_stay(each) or each.connection.has_news():  # it says nothing, unless it has ended
                        self._waiting.pop(number).connection.close()
                self._present = [
                    each for each in self._present if each.connection.fileno() >= 0 and self._may_stay(each)
                ]

    def _may_stay(self, rank: _Rank) -> bool:
        """Returns whether a rank would still be let in; otherwise ends its connection."""
        try:
            self._identify(rank.introduction, rank.connection)
        except WireError as error:
            _log.warning("trainer_revoked", rank=rank.introduction.rank, peer=rank.peer, reason=str(error))
            source = Requester("token_file", rank.peer, rank.principal)
            self._identity.audit.note("revoke", source, rank=rank.introduction.rank)
            self._identity.audit.close()  # the service, too, writes into the file
            rank.connection.shut()
            return False
        return True

    def _welcome(self, handle: socket.socket, peer: str) -> None:
        """Lets a rank in, or sends a stranger away."""
        try:
            handle.settimeout(HANDSHAKE_SECONDS)
            connection = StreamConnection(handle, self._context)
            connection.handshake()
            try:
                introduction = Introduction.decode(_received(connection))
                principal = self._check(introduction, connection)
            except RefusedError as error:
                self._tell_refusal(peer, str(error))
                connection.send_bytes(json.dumps({"refused": str(error)}).encode())
                connection.close()
            else:
                self._let_in(_Rank(introduction, connection, peer, principal))
        except (OSError, EOFError) as error:
            # At most a debug line: anyone who reaches the address could fill the log.
            _log.debug("trainer_refused", peer=peer, reason=str(error) or type(error).__name__)
            handle.close()
        finally:
            self._entrance.leave(handle)

    def _let_in(self, rank: _Rank) -> None:
        """Lets a rank wait for the others, in place of an earlier one of its number that was started again."""
        number = rank.introduction.rank
        with self._changed:
            if self._closed.is_set():
                rank.connection.close()
                return
            earlier = self._waiting.get(number)
            self._waiting[number] = rank
            if earlier is not None:
                earlier.connection.close()
            else:
                _log.info("trainer_joined", rank=number, present=len(self._waiting), ranks=self._ranks)
            self._changed.notify_all()

    def _identify(self, introduction: Introduction, connection: StreamConnection) -> Principal | None:
        """Returns the principal of a rank, or None if the run has no tokens or certificates.

        Raises:
            WireError: It may not train here.
        """
        access = self._identity.access
        if not access.identifies_actors:
            return None
        principal = access.agree(access.by_token(introduction.token), connection.certificate_names)
        require(principal, Role.TRAINER)
        return principal

    def _check(self, introduction: Introduction, connection: StreamConnection) -> Principal | None:
        """Checks a rank, and returns who it is.

        Raises:
            RefusedError: It may not train here, or does not fit.
        """
        try:
            principal = self._identify(introduction, connection)
        except WireError as error:
            raise RefusedError(str(error)) from None
        if introduction.release != self._release:
            raise RefusedError(
                f"the learner is rollcast {self._release}, and this rank {introduction.release}: install one release"
            )
        if introduction.ranks != self._ranks or not 0 <= introduction.rank < self._ranks:
            raise RefusedError(
                f"the learner waits for {self._ranks} trainers (--trainers), and this is rank {introduction.rank} of "
                f"{introduction.ranks}: give `rollcast trainer` the same --trainers"
            )
        return principal

    def _are_ready(self, present: Sequence[_Rank], attempt: str, folder: Path) -> bool:
        """Tells the ranks that all have come, and returns whether each confirms; one may have died while it waited."""
        told = json.dumps({"attempt": attempt, "folder": str(folder)}).encode()
        try:
            for each in present:
                each.connection.send_bytes(told)
            addresses = []
            for each in present:
                answer, _, address = each.connection.recv_bytes(INTRODUCTION_BYTES).partition(b" ")
                if answer == APART:
                    self._tell_refusal(each.peer, not_seen(folder))
                if answer != READY:
                    return False
                addresses.append(address.decode())
            begin = json.dumps({"ranks": addresses, "key": secrets.token_hex(KEY_BYTES)}).encode()
            for each in present:
                each.connection.send_bytes(begin)
                each.connection.settimeout(None)
        except (OSError, EOFError, UnicodeDecodeError):
            return False
        return True

    def _tell_refusal(self, peer: str, reason: str) -> None:
        left_out = self._throttle.admit(reason[:_KIND_LETTERS])
        if left_out is not None:
            _log.warning("trainer_refused", peer=peer, reason=reason, left_out=left_out)


def _received(connection: StreamConnection) -> bytes:
    """Returns the introduction of a rank; tells whoever sends something else where it is.

    Raises:
        EOFError, OSError: It sends none.
    """
    try:
        return connection.recv_bytes(INTRODUCTION_BYTES)
    except OSError:
        with contextlib.suppress(OSError):
            connection.send_bytes(json.dumps({"refused": OF_TRAINERS}).encode())
        raise
