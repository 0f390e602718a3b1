"""Carries the joint operations of several ranks, as sums of gradients, over one socket for each pair of them.

A rank listens nowhere for it: on one machine the service gives it connected sockets, and `learner.link.meeting` makes those
between machines.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Bytes: TypeAlias = "bytes | bytearray | memoryview"
_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE


class Mesh:
    """The sockets of a rank to all others.

    Args:
        rank: Number of this rank, from 0.
        peers: A connected socket to each other rank, by its number. This object closes them.

    Attributes:
        rank: Number of this rank.
        ranks: Number of ranks.
        seconds: An operation fails after so many seconds without a byte.
    """

    def __init__(self, rank: int, peers: Mapping[int, socket.socket]) -> None:
        self.rank = rank
        self.ranks = len(peers) + 1
        self.seconds = 60.0
        self._peers = dict(peers)
        self._selector = selectors.DefaultSelector()
        for handle in self._peers.values():
            handle.setblocking(False)
            if handle.family in {socket.AF_INET, socket.AF_INET6}:
                handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_local(self) -> bool:
        """Returns whether all ranks are on this machine, connected by sockets that take descriptors."""
        return sys.platform != "win32" and all(each.family == socket.AF_UNIX for each in self._peers.values())

    def exchange(self, outgoing: Sequence[Bytes], incoming: Sequence[bytearray | memoryview]) -> None:
        """Sends some bytes to each rank and receives some from each; all ranks call it with sizes that fit each other.

        Args:
            outgoing: What each rank gets, by its number; this rank's own entry is ignored.
            incoming: Where what each rank sends is written, of its exact size; this rank's own entry stays.

        Raises:
            OSError: A rank has ended or does not answer.
        """
        leaving = {rank: memoryview(outgoing[rank]) for rank in self._peers if len(outgoing[rank])}
        arriving = {rank: memoryview(incoming[rank]) for rank in self._peers if len(incoming[rank])}
        try:
            for rank in leaving | arriving:
                self._selector.register(self._peers[rank], _wanted(rank, leaving, arriving), rank)
            while self._selector.get_map():
                ready = self._selector.select(self.seconds)
                if not ready:
                    raise TimeoutError(f"Timed out waiting {self.seconds:g} s for {_named({*leaving, *arriving})}")
                for key, events in ready:
                    self._move(key.data, events, leaving, arriving)
        finally:
            for key in list(self._selector.get_map().values()):
                self._selector.unregister(key.fileobj)

    def share_memory(self) -> int:
        """Returns a descriptor of memory that all ranks of this machine share; all call it.

        Raises:
            OSError: A rank has ended or does not answer.
        """
        if sys.platform != "linux":
            raise OSError("no shared memory without a name")
        if not self.rank:
            memory = os.memfd_create("rollcast-ranks")
        for rank, handle in self._peers.items():
            if 0 in {rank, self.rank}:
                handle.settimeout(self.seconds)
                if self.rank:
                    _, (memory,), _, _ = socket.recv_fds(handle, 1, 1)
                else:
                    socket.send_fds(handle, [b"\0"], [memory])
                handle.setblocking(False)
        return memory

    def close(self) -> None:
        """Closes the sockets, at which operations of the other ranks fail."""
        for handle in self._peers.values():
            handle.close()

    def _move(self, rank: int, events: int, leaving: dict[int, memoryview], arriving: dict[int, memoryview]) -> None:
        """Moves what a socket takes and has, and asks it for the rest."""
        handle, before = self._peers[rank], _wanted(rank, leaving, arriving)
        try:
            if events & _WRITE:
                _advance(leaving, rank, handle.send(leaving[rank]))
            if events & _READ:
                count = handle.recv_into(arriving[rank])
                if not count:
                    raise ConnectionResetError(f"{_named({rank})} has closed the connection")
                _advance(arriving, rank, count)
        except BlockingIOError:
            return
        wanted = _wanted(rank, leaving, arriving)
        if not wanted:
            self._selector.unregister(handle)
        elif wanted != before:
            self._selector.modify(handle, wanted, rank)


def _wanted(rank: int, leaving: Mapping[int, memoryview], arriving: Mapping[int, memoryview]) -> int:
    return (_WRITE if rank in leaving else 0) | (_READ if rank in arriving else 0)


def _advance(views: dict[int, memoryview], rank: int, count: int) -> None:
    views[rank] = views[rank][count:]
    if not views[rank]:
        del views[rank]


def _named(ranks: set[int]) -> str:
    return f"rank {', '.join(map(str, sorted(ranks)))}"
