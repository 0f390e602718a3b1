"""Joins a run: reads a join code and writes the folder that `--certs` names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rollcast.auth import JoinCode

from actor_client.exits import ActorError, ExitCode

AUTHORITY: Final = "ca.pem"
CLIENT_CERT: Final = "client.pem"
CLIENT_KEY: Final = "client.key"
TOKEN: Final = "token"  # noqa: S105 - the name of the file
ADDRESS: Final = "learner"
"""Names of the files in a folder of `rollcast join`."""
_OF_LEARNER: Final = ("tokens", "server.key", "authority")
"""Names that only a folder of `rollcast certs init` has."""


def joined_address(folder: Path) -> str:
    """Returns the address of the learner in a folder.

    Raises:
        ValueError: The folder was not made by `join`.
    """
    try:
        return (folder / ADDRESS).read_text(encoding="utf-8").strip()
    except OSError:
        raise ValueError(
            f"{folder / ADDRESS} cannot be read; make the folder with rollcast join {folder}, or give --learner"
        ) from None


def join(folder: Path, code: str) -> str:
    """Writes the folder of `--certs` from a join code, and returns the address of the learner.

    Args:
        folder: The folder; the files of an earlier code of the same learner are replaced.
        code: The join code.

    Raises:
        ActorError: The code is not whole, the folder is of another learner or another kind, or it cannot be written.
    """
    try:
        found = JoinCode.decode(code)
    except ValueError as error:
        raise ActorError(ExitCode.USAGE, str(error)) from None
    _require_own(folder, found)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder / AUTHORITY, found.authority)
        _write(folder / TOKEN, found.token + "\n")
        _write(folder / ADDRESS, found.address + "\n")
    except OSError as error:
        raise ActorError(
            ExitCode.NOT_WRITTEN, f"{folder} cannot be written: {error.strerror}; choose another folder"
        ) from None
    return found.address


def _require_own(folder: Path, code: JoinCode) -> None:
    """Refuses to replace what a code of the same learner has not made.

    Raises:
        ActorError: The folder is a learner's own, or that of another learner.
    """
    if any((folder / name).exists() for name in _OF_LEARNER):
        raise ActorError(
            ExitCode.USAGE,
            f"{folder} is the folder of rollcast certs init, which the learner needs: choose another folder for its actors",
        )
    try:
        address = (folder / ADDRESS).read_text(encoding="utf-8").strip()
        authority = (folder / AUTHORITY).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return
    if address != code.address and authority != code.authority:
        raise ActorError(
            ExitCode.USAGE,
            f"{folder} is for the learner at {address}, and the code for that at {code.address}: choose another folder, or "
            "remove this one",
        )


def _write(path: Path, text: str) -> None:
    """Replaces a file as a whole, with one that only its owner can read."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    temporary.replace(path)
