"""Keeps how many steps the learner has received in a memory-mapped file, which survives a killed process.

A run state is written every minute at most, and the learner acks chunks all the time. This file is written before each
ack, so that the next start can name every step that was acked after the last run state. The system keeps the pages of a
killed process; after a power failure the file may be older, which the id of the system's start reveals.

::

    header   magic, id of the system's start, flag "complete", CRC-32
    slot     length and UTF-8 of the behavior's name, CRC-32; twice: received steps, CRC-32

The two copies of a number are written in turn, so that an interrupted write leaves one. Numbers never fall: the larger
valid copy is the newer one.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from learner.common.exits import ExitCode, UserError
from learner.common.files import WriteFailed, open_regular, read_regular, write_file
from learner.common.platform import boot_id

RECEIVED: Final = "received_steps"
"""Name of the file in a run folder."""

_MAGIC: Final = b"rollcast acked 1"
_HEADER: Final = struct.Struct("<16s40s")
_HEADER_BYTES: Final = 64
_COMPLETE_AT: Final = 60
_NAME: Final = struct.Struct("<H512s")
_NAME_CRC_AT: Final = 516
_COPIES_AT: Final = (520, 536)
_SLOT_BYTES: Final = 552
_CRC: Final = struct.Struct("<I")
_NUMBER: Final = struct.Struct("<Q")
_COPY: Final = struct.Struct("<QI")
_MAX_NAME_BYTES: Final = 512
_MAX_STEPS: Final = 2**62
_MAX_FILE_BYTES: Final = 2**24
_FIRST_SLOTS: Final = 16

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    """What an earlier start of the learner received.

    Attributes:
        steps: Received steps of the whole run, by behavior.
        is_complete: Whether every acked step is in these numbers. False after the system was started again, when the
            file may be older than the last ack, and for a damaged file.
    """

    steps: Mapping[str, int]
    is_complete: bool


@dataclass(slots=True)
class _Slot:
    """The place of one behavior: the offsets of its next and its last copy, and the CRC of its name."""

    following: int
    last: int
    name_crc: int


class ReceivedSteps:
    """The file of one run folder; `note` takes about a microsecond.

    Example::

        received = ReceivedSteps(folder)
        found = received.read()  # of the start before this one
        received.begin(ledger.received())
        received.note("Walker", 512)

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECEIVED
        self._slots: dict[str, _Slot] = {}
        self._left_out: set[str] = set()
        self._map: mmap.mmap | None = None
        self._capacity = 0

    def read(self) -> Received | None:
        """Returns what an earlier start received; None without a readable file."""
        try:
            data = read_regular(self._path, _MAX_FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("received_steps_unreadable", path=str(self._path), error=error.strerror or str(error))
            return None
        if len(data) < _HEADER_BYTES or not data.startswith(_MAGIC) or _header_crc(data) != _stored_header_crc(data):
            log.warning("received_steps_unreadable", path=str(self._path), error="it is damaged")
            return None
        steps: dict[str, int] = {}
        is_complete = data[_COMPLETE_AT] == 1 and boot_id() == _boot_of(data) != ""
        for start in range(_HEADER_BYTES, len(data) - _SLOT_BYTES + 1, _SLOT_BYTES):
            slot = data[start : start + _SLOT_BYTES]
            if not any(slot):
                continue
            name, number = _content(slot)
            if name is None or number is None:
                is_complete = False
            else:
                steps[name] = max(number, steps.get(name, 0))
        return Received(steps, is_complete)

    def begin(self, steps: Mapping[str, int]) -> None:
        """Replaces the file by one with these numbers of steps, and keeps it open for `note`.

        The old file is replaced and not written to: a second learner that runs here without a lock keeps its own.

        Raises:
            UserError: ``RUN_FILE``: the file cannot be written.
        """
        try:
            self._write(steps)
        except (OSError, WriteFailed) as error:
            message = f"{error}: make room, or choose another folder with --results-dir"
            raise UserError(ExitCode.RUN_FILE, message) from error

    def note(self, behavior: str, steps: int) -> None:
        """Stores how many steps of a behavior the run has received; the number never falls."""
        slot = self._slots.get(behavior)
        if slot is None or self._map is None:
            self._add(behavior, steps)
            return
        number = _NUMBER.pack(steps)
        _COPY.pack_into(self._map, slot.following, steps, zlib.crc32(number, slot.name_crc))
        slot.following, slot.last = slot.last, slot.following

    def close(self) -> None:
        """Closes the file. Later notes are ignored."""
        if self._map is not None:
            self._map.close()
        self._map = None
        self._slots.clear()

    def _add(self, behavior: str, steps: int) -> None:
        """Adds a behavior; a full disk costs the record, which is then marked as incomplete."""
        if self._map is None or behavior in self._left_out:
            return
        name = behavior.encode("utf-8", "replace")
        if len(name) <= _MAX_NAME_BYTES and len(self._slots) < self._capacity:
            self._slots[behavior] = _fill(self._map, len(self._slots), behavior, steps)
            return
        try:
            if len(name) > _MAX_NAME_BYTES:
                raise OSError("the name is too long")
            self._write(self._noted() | {behavior: steps})
        except (OSError, WriteFailed) as error:
            self._left_out.add(behavior)
            if self._map is not None:
                self._map[_COMPLETE_AT] = 0
            log.warning("received_steps_not_kept", behavior=behavior, error=str(error))

    def _write(self, steps: Mapping[str, int]) -> None:
        """Writes a file with room for more behaviors, and maps it.

        Raises:
            OSError, WriteFailed: The file cannot be written or mapped; an open one stays.
        """
        capacity = max(_FIRST_SLOTS, 2 * len(steps))
        header = _HEADER.pack(_MAGIC, boot_id().encode("ascii", "replace")[:40]).ljust(_COMPLETE_AT, b"\0")
        data = header[:56] + _CRC.pack(zlib.crc32(header[:56])) + b"\1\0\0\0"
        content = bytearray(data + bytes(capacity * _SLOT_BYTES))
        slots = {name: _fill(content, place, name, number) for place, (name, number) in enumerate(steps.items())}
        write_file(self._path, bytes(content))
        with open_regular(self._path, os.O_RDWR, 0) as stream:
            mapped = mmap.mmap(stream.fileno(), len(content), access=mmap.ACCESS_WRITE)
        if self._map is not None:
            self._map.close()
        self._map, self._slots, self._capacity = mapped, slots, capacity

    def _noted(self) -> dict[str, int]:
        if self._map is None:
            return {}
        return {name: _NUMBER.unpack_from(self._map, slot.last)[0] for name, slot in self._slots.items()}


def _fill(target: mmap.mmap | bytearray, place: int, behavior: str, steps: int) -> _Slot:
    """Fills an empty slot, and returns it. Numbers come first, so that a name has valid numbers."""
    start = _HEADER_BYTES + place * _SLOT_BYTES
    encoded = behavior.encode("utf-8", "replace")
    name = _NAME.pack(len(encoded), encoded)
    name_crc = zlib.crc32(name)
    number_crc = zlib.crc32(_NUMBER.pack(steps), name_crc)
    for offset in _COPIES_AT:
        _COPY.pack_into(target, start + offset, steps, number_crc)
    _CRC.pack_into(target, start + _NAME_CRC_AT, name_crc)
    target[start : start + len(name)] = name
    return _Slot(start + _COPIES_AT[0], start + _COPIES_AT[1], name_crc)


def _header_crc(data: bytes) -> int:
    return zlib.crc32(data[: _HEADER.size])


def _stored_header_crc(data: bytes) -> int:
    return int(_CRC.unpack_from(data, _HEADER.size)[0])


def _boot_of(data: bytes) -> str:
    _, boot = _HEADER.unpack_from(data)
    return str(boot.rstrip(b"\0").decode("ascii", "replace"))


def _content(slot: bytes) -> tuple[str | None, int | None]:
    """Returns a slot's behavior and its number of steps; None for what is damaged."""
    name_crc = zlib.crc32(slot[: _NAME.size])
    length, encoded = _NAME.unpack_from(slot)
    if length > _MAX_NAME_BYTES or name_crc != _CRC.unpack_from(slot, _NAME_CRC_AT)[0]:
        return None, None
    copies = [_COPY.unpack_from(slot, offset) for offset in _COPIES_AT]
    valid = [steps for steps, crc in copies if crc == zlib.crc32(_NUMBER.pack(steps), name_crc) and steps <= _MAX_STEPS]
    return encoded[:length].decode("utf-8", "replace"), max(valid, default=None)
