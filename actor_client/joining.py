"""Joins a run: reads a join code and writes the folder that `--certs` names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rollcast.auth import MAX_FILE_BYTES, JoinCode
from rollcast.files import read_regular, replaceable
from rollcast.text import printable

from actor_client.exits import ActorError, ExitCode

AUTHORITY: Final = "ca.pem"
CLIENT_CERT: Final = "client.pem"
CLIENT_KEY: Final = "client.key"
TOKEN: Final = "token"  # noqa: S105 - the name of the file
ADDRESS: Final = "learner"
PRINCIPAL: Final = "principal"
"""Names of the files in a folder of `rollcast join`."""
_MAX_ADDRESS_BYTES: Final = 4096
_OF_LEARNER: Final = ("tokens", "server.key", "authority")
"""Names that only a folder of `rollcast certs init` has."""


def joined_address(folder: Path) -> str:
    """Returns the address of the learner in a folder.

    Raises:
        ValueError: The folder was not made by `join`.
    """
    try:
        return read_regular(folder / ADDRESS, _MAX_ADDRESS_BYTES).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(
            f"{folder / ADDRESS} cannot be read; make the folder with rollcast join {folder}, or give --learner"
        ) from None


def join(folder: Path, code: str) -> str:
    """Writes the folder of `--certs` from a join code, and returns the address of the learner.

    Args:
        folder: The folder; the files of an earlier code of the same principal are replaced.
        code: The join code.

    Raises:
        ActorError: The code is not whole, the folder holds something else, or it cannot be written.
    """
    try:
        found = JoinCode.decode(code)
    except ValueError as error:
        raise ActorError(ExitCode.USAGE, str(error)) from None
    _require_own(folder, found)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder / PRINCIPAL, found.name + "\n")  # the first one: with it, this command can be repeated
        _write(folder / AUTHORITY, found.authority)
        _write(folder / TOKEN, found.token + "\n")
        _write(folder / ADDRESS, found.address + "\n")
    except OSError as error:
        raise ActorError(
            ExitCode.NOT_WRITTEN, f"{folder} cannot be written: {error.strerror}; choose another folder"
        ) from None
    return found.address


def _require_own(folder: Path, code: JoinCode) -> None:
    """Refuses to replace what a code of the same learner and principal has not made.

    Raises:
        ActorError: The folder is a learner's own, that of another learner or principal, or cannot be read.
    """
    if any((folder / name).exists() for name in _OF_LEARNER):
        raise ActorError(
            ExitCode.USAGE,
            f"{folder} is the folder of rollcast certs init, which the learner needs: choose another folder for its actors",
        )
    held: dict[str, str] = {}
    for name in (PRINCIPAL, AUTHORITY, TOKEN, ADDRESS):
        try:
            content = read_regular(replaceable(folder / name), MAX_FILE_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ActorError(
                ExitCode.USAGE,
                f"{folder / name} cannot be replaced ({error.strerror}): choose another folder, or remove it",
            ) from None
        held[name] = content.decode("utf-8", "replace").strip()
    owner, written = held.get(PRINCIPAL, ""), {TOKEN: code.token, ADDRESS: code.address}
    if held.get(AUTHORITY, code.authority.strip()) != code.authority.strip():
        holds = f"{folder / AUTHORITY} is of another authority than the code's"
        if held.get(ADDRESS, code.address) != code.address:
            other = printable(held[ADDRESS], 300)
            holds = f"{folder} is for the learner at {other}, and the code for that at {code.address}"
    elif owner and owner != code.name:
        holds = (
            f"{folder} is of the actor {printable(owner, 64)}, and the code of {code.name or 'an actor without a name'}"
        )
    elif not owner and (strange := [name for name, text in written.items() if held.get(name, text) != text]):
        holds = f"{folder / strange[0]} was not written by a join code of this actor"
    else:
        return
    raise ActorError(ExitCode.USAGE, f"{holds}: choose another folder, or remove this one")


def _write(path: Path, text: str) -> None:
    """Replaces a file as a whole, with one that only its owner can read."""
    path = replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    temporary.replace(path)
