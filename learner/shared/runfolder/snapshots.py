"""Files of policies that were published and are kept for matches: ONNX, with the header next to each."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog
from google.protobuf.message import DecodeError
from rollcast.errors import PolicyCorrupt
from rollcast.files import read_regular
from rollcast.limits import MAX_POLICY_BYTES, SHA256_BYTES
from rollcast.policies import PolicyDescription, describe_payload
from rollcast.v1 import policy_pb2

from learner.shared.files import WriteFailed, write_file
from learner.shared.policies import PolicyKey, StoredPolicy
from learner.shared.runfolder.names import safe_name

log = structlog.get_logger(__name__)

SNAPSHOTS: Final = "snapshots"
"""Folder in the folder of a behavior."""
_MODEL, _HEADER = ".onnx", ".header"
_NAME: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-([0-9a-f]{64})\.onnx")
_MAX_HEADER_BYTES: Final = 1 << 20


class SnapshotFiles:
    """The snapshots of one run, ``<run>/<Behavior>/snapshots/<generation>-<version>-<sha256>.onnx``.

    The trainers write and delete them, the service reads them. Both know the folder; a key determines the file.

    Args:
        folder: Folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved: dict[str, frozenset[PolicyKey]] = {}

    def write(self, stored: StoredPolicy) -> PolicyKey:
        """Writes a snapshot, unless it exists, and returns its key.

        Raises:
            WriteFailed: A file cannot be written.
        """
        key = stored.key
        path = self._path(stored.description.behavior, key)
        if not path.exists():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WriteFailed(path, error) from error
            write_file(path.with_suffix(_HEADER), stored.description.to_message().SerializeToString())
            write_file(path, stored.payload)  # last: a model has its header
        return key

    def read(self, behavior: str, key: PolicyKey) -> StoredPolicy | None:
        """Returns a snapshot; None if it does not exist, or is damaged, which is logged."""
        path = self._path(behavior, key)
        try:
            header = read_regular(path.with_suffix(_HEADER), _MAX_HEADER_BYTES)
            payload = read_regular(path, MAX_POLICY_BYTES)
            description = PolicyDescription.from_message(policy_pb2.PolicyHeader.FromString(header))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, DecodeError, PolicyCorrupt) as error:
            log.warning("snapshot_unreadable", path=str(path), error=str(error))
            return None
        found = StoredPolicy(describe_payload(description, payload), payload)
        if found.key != key or description.behavior != behavior:
            log.warning("snapshot_unreadable", path=str(path), error="the content does not match the file name")
            return None
        return found

    def keys(self, behavior: str) -> frozenset[PolicyKey]:
        """Returns the keys of all snapshots of a behavior.

        Raises:
            OSError: The folder cannot be read.
        """
        found = (_NAME.fullmatch(path.name) for path in self._of(behavior).glob(f"*{_MODEL}"))
        return frozenset(
            PolicyKey(int(match[1]), int(match[2]), bytes.fromhex(match[3])) for match in found if match is not None
        )

    def reserve(self, behavior: str, keys: Collection[PolicyKey]) -> None:
        """Keeps these snapshots of a behavior, in place of those reserved before, whatever `keep` names."""
        self._reserved[behavior] = frozenset(keys)

    def keep(self, behavior: str, keys: Collection[PolicyKey]) -> None:
        """Deletes all snapshots of a behavior but these and the reserved ones. What cannot be deleted is logged, and stays."""
        try:
            found = self.keys(behavior)
        except OSError as error:
            log.warning("snapshots_not_deleted", path=str(self._of(behavior)), error=str(error))
            return
        for key in found - frozenset(keys) - self._reserved.get(behavior, frozenset()):
            path = self._path(behavior, key)
            try:
                path.unlink(missing_ok=True)
                path.with_suffix(_HEADER).unlink(missing_ok=True)
            except OSError as error:
                log.warning("snapshot_not_deleted", path=str(path), error=str(error))

    def _of(self, behavior: str) -> Path:
        return self._folder / safe_name(behavior) / SNAPSHOTS

    def _path(self, behavior: str, key: PolicyKey) -> Path:
        """Returns the path of a snapshot.

        Raises:
            ValueError: The digest does not have the length of a SHA-256.
        """
        if len(key.sha256) != SHA256_BYTES:
            raise ValueError(f"a digest of {len(key.sha256)} bytes; SHA-256 has {SHA256_BYTES}")
        return self._of(behavior) / f"{key.generation}-{key.version}-{key.sha256.hex()}{_MODEL}"
