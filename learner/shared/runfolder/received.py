"""Keeps what the learner has received in a memory-mapped file, which survives a killed process.

A run state is written every minute at most, and the learner acks chunks all the time. This file is written before each
ack, so that the next start can name every step that was acked after the last run state, and can tell a returning actor
which of its chunks it received. The system keeps the pages of a killed process. After a power failure the file may be
older than the last ack, which the id of the system's start reveals; a file of a backup is, which its inode reveals.

::

    header    magic, id of the system's start, CRC-32, flag "complete"; device and inode of the file
    behavior  length and UTF-8 of the name, CRC-32; twice: total, place of a session, its key, its steps, its sequence, CRC-32
    session   key, place and index of the behavior, CRC-32; twice: received steps, received sequence, the behavior's total then,
              steps taken, whether the actor has said goodbye, CRC-32

The two copies of a number are written in turn, so that an interrupted write leaves one. Numbers never fall: the larger
valid copy is the newer one. A chunk is first written to its behavior and then to its session; a kill between the two
leaves the session one chunk behind, which the copy in the behavior repairs. The size is fixed: sessions that have ended
give their places to new ones, the oldest first. Until then they stay in the file; the total tells whether a run state of
the same time or later has their steps.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
from rollcast.files import read_regular

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, open_regular, write_file
from learner.shared.platform import boot_id

RECEIVED: Final = "received_steps"
"""Name of the file in a run folder."""
MAX_BEHAVIORS: Final = 256
"""Most behaviors of a run; see `learner.service.ingest.behaviors`."""

_MAGIC: Final = b"rollcast rcvd 03"
_HEADER: Final = struct.Struct("<16s40s")
_HEADER_BYTES: Final = 96
_PLACE: Final = struct.Struct("<QQ")
_PLACE_AT: Final = 64
_COMPLETE_AT: Final = 60
_CRC: Final = struct.Struct("<I")
_MAX_NAME_BYTES: Final = 512
_NAME: Final = struct.Struct("<H512s")
_NAME_CRC_AT: Final = 516
_TOTALS: Final = struct.Struct("<QI8sQQ")
_TOTALS_AT: Final = (520, 568)
_BEHAVIOR_BYTES: Final = 616
_OWNER: Final = struct.Struct("<32sHH")
_OWNER_CRC_AT: Final = 36
_COUNTS: Final = struct.Struct("<QQQQ?")
_COUNTS_AT: Final = (40, 80)
_SESSION_BYTES: Final = 120
_SESSIONS_AT: Final = _HEADER_BYTES + MAX_BEHAVIORS * _BEHAVIOR_BYTES
_MAX_COUNT: Final = 2**62
_MAX_FILE_BYTES: Final = 2**26
_NOWHERE: Final = 2**32 - 1
"""Place of a session without a slot."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReceivedCount:
    """Counts what was received in one session of one behavior.

    Attributes:
        behavior: Name of the behavior.
        steps: Received steps.
        through: Every chunk of the session up to this sequence was received.
        total: Received steps of the behavior in the run when the session's last chunk was received.
        taken: Steps that its actor has taken, as far as it reported them.
        has_left: Whether its actor ended the session.
    """

    behavior: str
    steps: int
    through: int
    total: int = 0
    taken: int = 0
    has_left: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """Holds what earlier starts of the learner received.

    Attributes:
        totals: Received steps of the whole run by behavior, in the order of the behaviors' indices.
        sessions: Counts by key of the session (see `session_key_of`) and by the behavior's index in that session.
        is_complete: Whether every acked step is in `totals`. False after the system was started again, when the file may
            be older than the last ack, for a file of a backup, and for a damaged one.
    """

    totals: Mapping[str, int]
    sessions: Mapping[bytes, Mapping[int, ReceivedCount]] = field(default_factory=dict)
    is_complete: bool = True


def session_key_of(session_id: str) -> bytes:
    """Returns the name of a session in the record, from which its id cannot be computed."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class _Slot:
    """A slot of the file: its place, the offset of the next and of the last copy, and the CRC and first bytes of its owner."""

    place: int
    following: int
    last: int
    crc: int
    tag: bytes = b""


class ReceivedSteps:
    """The file of one run folder; `note` takes about two microseconds.

    Example::

        received = ReceivedSteps(folder, max_sessions=1024)
        found = received.read()  # of the start before this one
        received.begin(["Walker"], {"Walker": 512}, {})
        received.note(session_id, 0, "Walker", total=1024, steps=512, through=3)

    Args:
        folder: The run folder.
        max_sessions: Most sessions at once. There are places for four times as many, so that those of ended sessions
            stay for a while.
    """

    def __init__(self, folder: Path, max_sessions: int) -> None:
        self._path = folder / RECEIVED
        self._capacity = 4 * max_sessions + 64
        self._map: mmap.mmap | None = None
        self._behaviors: dict[int, _Slot] = {}
        self._sessions: dict[tuple[str, int], _Slot] = {}
        self._free: deque[int] = deque()  # places of sessions that have ended, the oldest first
        self._names: list[str] = []
        self._used = 0
        self._is_full = False

    def read(self) -> Received | None:
        """Returns what an earlier start received; None without a readable file."""
        try:
            data, place = read_regular(self._path, _MAX_FILE_BYTES), _place_of(self._path.stat())
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("received_steps_unreadable", path=str(self._path), error=error.strerror or str(error))
            return None
        if len(data) < _SESSIONS_AT or not data.startswith(_MAGIC) or _header_crc(data) != _stored_header_crc(data):
            log.warning("received_steps_unreadable", path=str(self._path), error="it is damaged, or of another version")
            return None
        is_here = data[_PLACE_AT : _PLACE_AT + _PLACE.size] == place
        is_complete = is_here and data[_COMPLETE_AT] == 1 and boot_id() == _boot_of(data) != ""
        names, totals, newest, is_whole = _read_behaviors(data)
        sessions = _read_sessions(data, names, newest)
        return Received(totals, sessions, is_complete and is_whole)

    def begin(
        self,
        behaviors: Sequence[str],
        totals: Mapping[str, int],
        sessions: Mapping[bytes, Mapping[int, ReceivedCount]],
    ) -> None:
        """Replaces the file by one with these numbers, and keeps it open for `note`.

        The old file is replaced and not written to: a second learner that runs here without a lock keeps its own.

        Args:
            behaviors: Names of the declared behaviors, in the order of their indices.
            totals: Received steps of the run by behavior; those of behaviors that are not declared yet follow.
            sessions: What was received in sessions that may return.

        Raises:
            UserError: ``RUN_FILE``: the file cannot be written.
        """
        names = [*behaviors, *(name for name in totals if name not in behaviors)][:MAX_BEHAVIORS]
        header = _HEADER.pack(_MAGIC, boot_id().encode("ascii", "replace")[:40])
        content = bytearray(_SESSIONS_AT + self._capacity * _SESSION_BYTES)
        content[: len(header)] = header
        _CRC.pack_into(content, len(header), zlib.crc32(header))
        content[_COMPLETE_AT] = 1
        for index, name in enumerate(names):
            _fill_behavior(content, index, name, totals.get(name, 0))
        place = 0
        for key, counts in sessions.items():
            for index, count in counts.items():
                if place < self._capacity and count.behavior in names:
                    owner = _OWNER.pack(key, names.index(count.behavior), index)
                    # Its total is that of now: an older run state, from which the next start may continue, lacks it.
                    numbers = (count.steps, count.through, totals.get(count.behavior, 0), count.taken, count.has_left)
                    _fill_session(content, place, owner, numbers)
                    place += 1
        try:
            write_file(self._path, bytes(content), private=True)
            with open_regular(self._path, os.O_RDWR, 0) as stream:
                self._map = mmap.mmap(stream.fileno(), len(content), access=mmap.ACCESS_WRITE)
                self._map[_PLACE_AT : _PLACE_AT + _PLACE.size] = _place_of(os.fstat(stream.fileno()))
        except (OSError, WriteFailed) as error:
            failed = error if isinstance(error, WriteFailed) else WriteFailed(self._path, error)
            raise UserError(ExitCode.NOT_SAVED, f"{failed}: {failed.advice}") from error
        self._used = place
        self._free.extend(range(place))  # a session that returns gets a place of its own
        self._names = names

    def note(
        self, session_id: str, index: int, behavior: str, *, total: int, steps: int, through: int, taken: int = 0
    ) -> None:
        """Stores what was received, before the chunk is acked. No number ever falls.

        Args:
            session_id: Session of the chunk.
            index: Index of the behavior.
            behavior: Its name.
            total: Received steps of the behavior in the run.
            steps: Received steps of the behavior in the session.
            through: Sequence of the chunk.
            taken: Steps of the behavior that the session's actor has taken, as far as it reported them.
        """
        mapped = self._map
        if mapped is None:
            return
        own = self._behaviors.get(index) or self._add_behavior(mapped, index, behavior, total)
        session = self._sessions.get((session_id, index)) or self._add_session(mapped, session_id, index)
        if own is not None:
            place, tag = (_NOWHERE, b"") if session is None else (session.place, session.tag)
            _write(mapped, own, _TOTALS.pack(total, place, tag, steps, through))
        if session is not None:
            _write(mapped, session, _COUNTS.pack(steps, through, total, taken, False))

    def end(self, session_id: str, taken: Mapping[int, int], *, has_left: bool) -> None:
        """Lets new sessions take the places of one that has ended, after those that ended before it.

        Args:
            session_id: The session.
            taken: Steps that its actor took, by index of the behavior.
            has_left: Whether its actor ended it.
        """
        for index, steps in taken.items():
            slot = self._sessions.pop((session_id, index), None)
            if slot is None:
                continue
            self._free.append(slot.place)
            if has_left and self._map is not None:
                received, through, total, _, _ = _COUNTS.unpack_from(self._map, slot.last)
                _write(self._map, slot, _COUNTS.pack(received, through, total, steps, True))

    def close(self) -> None:
        """Closes the file. Later notes are ignored."""
        if self._map is not None:
            self._map.close()
        self._map = None

    def _add_behavior(self, mapped: mmap.mmap, index: int, behavior: str, total: int) -> _Slot | None:
        """Returns the slot of a behavior; a name of another run's order moves to another place of its own."""
        names = self._names
        place = names.index(behavior) if behavior in names else len(names)
        if place >= MAX_BEHAVIORS:
            mapped[_COMPLETE_AT] = 0
            return None
        if place == len(names):
            names.append(behavior)
            _fill_behavior(mapped, place, behavior, total)
        start = _HEADER_BYTES + place * _BEHAVIOR_BYTES
        crc = _CRC.unpack_from(mapped, start + _NAME_CRC_AT)[0]
        slot = _Slot(place, start + _TOTALS_AT[0], start + _TOTALS_AT[1], crc)
        self._behaviors[index] = slot
        return slot

    def _add_session(self, mapped: mmap.mmap, session_id: str, index: int) -> _Slot | None:
        """Returns a new slot of a session; None if those of sessions that have not ended take all places."""
        place = self._free_place()
        if place is None:
            if not self._is_full:
                self._is_full = True
                log.warning("received_steps_full", places=self._capacity)
            return None
        behavior = self._behaviors.get(index)
        if behavior is None:
            return None
        owner = _OWNER.pack(session_key_of(session_id), behavior.place, index)
        slot = _fill_session(mapped, place, owner, (0, 0, 0, 0, False))
        self._sessions[session_id, index] = slot
        return slot

    def _free_place(self) -> int | None:
        if self._used < self._capacity:
            self._used += 1
            return self._used - 1
        return self._free.popleft() if self._free else None


def _write(target: mmap.mmap, slot: _Slot, numbers: bytes) -> None:
    """Writes the older copy of a slot, which becomes the newer one."""
    start = slot.following
    target[start : start + len(numbers) + 4] = numbers + _CRC.pack(zlib.crc32(numbers, slot.crc))
    slot.following, slot.last = slot.last, start


def _fill_behavior(target: mmap.mmap | bytearray, place: int, behavior: str, total: int) -> None:
    """Fills the slot of a behavior. Numbers come first, so that a name has valid numbers."""
    start = _HEADER_BYTES + place * _BEHAVIOR_BYTES
    encoded = behavior.encode("utf-8", "replace")[:_MAX_NAME_BYTES]
    name = _NAME.pack(len(encoded), encoded)
    crc = zlib.crc32(name)
    numbers = _TOTALS.pack(total, _NOWHERE, b"", 0, 0)
    for offset in _TOTALS_AT:
        content = numbers + _CRC.pack(zlib.crc32(numbers, crc))
        target[start + offset : start + offset + len(content)] = content
    _CRC.pack_into(target, start + _NAME_CRC_AT, crc)
    target[start : start + len(name)] = name


def _fill_session(
    target: mmap.mmap | bytearray, place: int, owner: bytes, counts: tuple[int, int, int, int, bool]
) -> _Slot:
    """Fills the slot of a session, and returns it. Its former owner is removed first."""
    start = _SESSIONS_AT + place * _SESSION_BYTES
    target[start : start + _OWNER_CRC_AT + 4] = bytes(_OWNER_CRC_AT + 4)
    crc = zlib.crc32(owner)
    numbers = _COUNTS.pack(*counts)
    for offset in _COUNTS_AT:
        content = numbers + _CRC.pack(zlib.crc32(numbers, crc))
        target[start + offset : start + offset + len(content)] = content
    _CRC.pack_into(target, start + _OWNER_CRC_AT, crc)
    target[start : start + len(owner)] = owner
    return _Slot(place, start + _COUNTS_AT[0], start + _COUNTS_AT[1], crc, owner[:8])


_Newest = dict[tuple[int, bytes], tuple[int, int, int, int, bool]]
"""Counts of each behavior's newest chunk, by place and first bytes of the key of its session."""


def _read_behaviors(data: bytes) -> tuple[list[str], dict[str, int], _Newest, bool]:
    """Returns the names by place, the totals, the newest chunk of each behavior, and whether all are undamaged."""
    names: list[str] = []
    totals: dict[str, int] = {}
    newest: _Newest = {}
    is_whole = True
    for place in range(MAX_BEHAVIORS):
        slot = data[_HEADER_BYTES + place * _BEHAVIOR_BYTES :][:_BEHAVIOR_BYTES]
        length, encoded = _NAME.unpack_from(slot)
        crc = zlib.crc32(slot[: _NAME.size])
        copies = _valid(slot, _TOTALS, _TOTALS_AT, crc)
        named = length <= _MAX_NAME_BYTES and crc == _CRC.unpack_from(slot, _NAME_CRC_AT)[0]
        if not named or not copies:
            names.append("")
            is_whole = is_whole and not any(slot)
            continue
        total, where, key, steps, through = max(copies)
        name = encoded[:length].decode("utf-8", "replace")
        names.append(name)
        totals[name] = total
        if where != _NOWHERE:
            newest[where, key] = (steps, through, total, 0, False)
    return names, totals, newest, is_whole


def _read_sessions(data: bytes, names: Sequence[str], newest: _Newest) -> dict[bytes, dict[int, ReceivedCount]]:
    """Returns what each session received."""
    found: dict[bytes, dict[int, ReceivedCount]] = {}
    for place in range((len(data) - _SESSIONS_AT) // _SESSION_BYTES):
        start = _SESSIONS_AT + place * _SESSION_BYTES
        slot = data[start : start + _SESSION_BYTES]
        key, behavior, index = _OWNER.unpack_from(slot)
        crc = zlib.crc32(slot[: _OWNER.size])
        copies = _valid(slot, _COUNTS, _COUNTS_AT, crc)
        if crc != _CRC.unpack_from(slot, _OWNER_CRC_AT)[0] or not copies or behavior >= MAX_BEHAVIORS:
            continue
        steps, through, total, taken, has_left = max(*copies, newest.get((place, key[:8]), (0, 0, 0, 0, False)))
        counts = found.setdefault(key, {})
        before = counts.get(index)  # of an earlier start of the learner
        if names[behavior] and (
            before is None or (before.steps, before.through, before.total) < (steps, through, total)
        ):
            taken = max(taken, *(copy[3] for copy in copies))
            counts[index] = ReceivedCount(names[behavior], steps, through, total, taken, has_left)
    return found


def _valid(slot: bytes, numbers: struct.Struct, offsets: Iterable[int], crc: int) -> list[tuple[Any, ...]]:
    """Returns the undamaged copies of the numbers of a slot."""
    valid = []
    for offset in offsets:
        content = slot[offset : offset + numbers.size]
        if zlib.crc32(content, crc) == _CRC.unpack_from(slot, offset + numbers.size)[0]:
            copy = numbers.unpack(content)
            if copy[0] <= _MAX_COUNT:
                valid.append(copy)
    return valid


def _place_of(found: os.stat_result) -> bytes:
    """Returns device and inode of a file, as in the header."""
    return _PLACE.pack(found.st_dev % 2**64, found.st_ino % 2**64)


def _header_crc(data: bytes) -> int:
    return zlib.crc32(data[: _HEADER.size])


def _stored_header_crc(data: bytes) -> int:
    return int(_CRC.unpack_from(data, _HEADER.size)[0])


def _boot_of(data: bytes) -> str:
    _, boot = _HEADER.unpack_from(data)
    return str(boot.rstrip(b"\0").decode("ascii", "replace"))
