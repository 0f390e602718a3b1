"""Where a learner listens, left in the run folder: with port 0 nobody else can know."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from learner.observe.jsonfile import write_json

ADDRESS_FILE = "address.json"


@dataclass(frozen=True, slots=True)
class BoundAddresses:
    """The addresses of a running learner, ``host:port`` each.

    Attributes:
        address: where actors connect.
        control: where status, pause and stop commands connect.
    """

    address: str
    control: str


def write_addresses(run_folder: Path, addresses: BoundAddresses) -> Path:
    """Writes ``address.json`` into the run folder in one step and returns its path.

    Raises:
        WriteFailed: the folder cannot be written to.
    """
    path = run_folder / ADDRESS_FILE
    write_json(path, {"address": addresses.address, "control": addresses.control})
    return path


def read_addresses(run_folder: Path) -> BoundAddresses | None:
    """Returns what :func:`write_addresses` left, or None if there is nothing, or nothing that makes sense."""
    try:
        content = json.loads((run_folder / ADDRESS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    address, control = content.get("address"), content.get("control")
    if not isinstance(address, str) or not isinstance(control, str):
        return None
    return BoundAddresses(address=address, control=control)


def remove_addresses(run_folder: Path) -> None:
    """Removes the file at the end of the learner; one that is gone, or cannot be removed, is fine."""
    with contextlib.suppress(OSError):
        (run_folder / ADDRESS_FILE).unlink()
