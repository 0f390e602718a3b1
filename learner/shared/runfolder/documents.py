"""Checkpoint files: their content, and safe reading of damaged, foreign or hostile ones.

A file is a zip archive as torch writes it, with a dictionary of plain values and tensors. It contains no code: reading
uses torch's restricted loader. torch does not compare the archive's checksums on loading, so that a flipped bit in a
weight would go unnoticed; they are compared here.
"""

from __future__ import annotations

import contextlib
import enum
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from learner.shared.files import WriteFailed, open_regular

FORMAT = 1

_PLAIN_TYPES = frozenset({type(None), bool, int, float, str, bytes})


class CheckpointFailed(Exception):  # noqa: N818 - the protocol's name for it
    """A checkpoint could not be written; the one before it is intact, and training can continue."""


class BadCheckpoint(Exception):  # noqa: N818 - after its exit code
    """The file is not a usable checkpoint.

    Args:
        path: The file.
        reason: Text that follows the file name in the message.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason


def plain(value: Any, where: str = "state") -> Any:
    """Returns a copy that can be written and read: plain values, and tensors on the CPU without their graph.

    A tensor that is a view of a larger one is copied, because torch would write the larger one. Numpy's numbers and
    enums, which the restricted loader refuses, become plain numbers.

    Raises:
        TypeError: The value contains anything else (an array, a set, an object); the message says where.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, where)
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        return tensor if whole else tensor.clone(memory_format=torch.contiguous_format)
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in (str, int):
                raise TypeError(
                    f"{where} has the key {key!r} of type {type(key).__name__}; only str and int can be saved"
                )
        return {key: plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    raise TypeError(f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved")


def encode_document(kind: str, content: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a checkpoint file.

    Args:
        kind: Kind of the checkpoint; checked on reading.
        content: Plain values and tensors; see `plain`.

    Raises:
        TypeError: The content holds anything else.
    """
    buffer = io.BytesIO()
    # In memory first: torch reports a full disk with an error that does not name it.
    torch.save({"format": FORMAT, "kind": kind, **plain(content)}, buffer)
    return buffer.getvalue()


@contextlib.contextmanager
def saving(path: Path) -> Iterator[None]:
    """Converts every file system error inside the block to `CheckpointFailed`.

    Args:
        path: The file to save, for the message.
    """
    try:
        yield
    except WriteFailed as error:
        raise CheckpointFailed(str(error)) from error
    except OSError as error:
        raise CheckpointFailed(str(WriteFailed(path, error))) from error


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """Reads a checkpoint file.

    Raises:
        BadCheckpoint: The file is missing, damaged, of another program or version, or of another kind.
    """
    _check_archive(path)
    try:
        document = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # anything that a foreign file can provoke in the loader
        raise BadCheckpoint(path, f"is not a checkpoint of Rollcast ({type(error).__name__} while reading)") from error
    if isinstance(document, dict) and "Policy" in document and "format" not in document:
        raise BadCheckpoint(path, "is a checkpoint of ML-Agents, whose weights Rollcast cannot load")
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise BadCheckpoint(path, "is not a checkpoint of Rollcast (it has no format number)")
    if document["format"] != FORMAT:
        raise BadCheckpoint(
            path, f"has format {document['format']}, but this version of Rollcast reads format {FORMAT}"
        )
    if document.get("kind") != kind:
        raise BadCheckpoint(path, f"is a checkpoint of kind {document.get('kind')!r}, not {kind!r}")
    return document


def _check_archive(path: Path) -> None:
    if path.is_dir():
        raise BadCheckpoint(path, "is a folder, not a checkpoint")
    if path.suffix == ".onnx" and path.exists():
        raise BadCheckpoint(path, "is a model that acts and cannot be trained further; its checkpoint is the .pt file")
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            # torch stores without compression; damaged compressed data would raise errors of each method.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise BadCheckpoint(path, "is not a checkpoint of Rollcast (it is compressed)")
            unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
            if unpacked_bytes > path.stat().st_size:
                raise BadCheckpoint(path, f"is not a checkpoint of Rollcast (it unpacks to {unpacked_bytes} bytes)")
            damaged = archive.testzip()
    except FileNotFoundError as error:
        raise BadCheckpoint(path, "does not exist") from error
    except OSError as error:
        raise BadCheckpoint(path, f"cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise BadCheckpoint(path, "is damaged, or not a checkpoint of Rollcast (no readable archive)") from error
    if damaged is not None:
        raise BadCheckpoint(path, f"is damaged (the checksum of {damaged} is wrong)")
