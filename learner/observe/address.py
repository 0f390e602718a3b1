"""Where a learner listens, left in the run folder: with port 0 nobody else can know."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from learner.common.exits import ExitCode, UserError
from learner.common.files import read_regular
from learner.observe.jsonfile import write_json

ADDRESS_FILE = "address.json"
_MAX_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class BoundAddresses:
    """The addresses of a running learner, ``host:port`` each.

    Attributes:
        address: where actors connect.
        control: where status, pause and stop commands connect.
        http: where the status page, the metrics and the health check are; empty if they are not served.
    """

    address: str
    control: str
    http: str = ""


def write_addresses(run_folder: Path, addresses: BoundAddresses) -> Path:
    """Writes ``address.json`` into the run folder in one step and returns its path.

    Raises:
        WriteFailed: the folder cannot be written to.
    """
    path = run_folder / ADDRESS_FILE
    write_json(path, {"address": addresses.address, "control": addresses.control, "http": addresses.http})
    return path


def read_addresses(run_folder: Path) -> BoundAddresses | None:
    """Returns what :func:`write_addresses` left, or None if there is nothing, or nothing that makes sense."""
    try:
        content = json.loads(read_regular(run_folder / ADDRESS_FILE, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    address, control, http = content.get("address"), content.get("control"), content.get("http", "")
    if not isinstance(address, str) or not isinstance(control, str) or not isinstance(http, str):
        return None
    return BoundAddresses(address=address, control=control, http=http)


def find_running(run_id: str | None, results_dir: Path) -> tuple[Path, BoundAddresses]:
    """Returns the folder and the addresses of the run of a name, or of the only running one there is.

    Raises:
        UserError: it does not run, or without a name none or more than one was found.
    """
    if run_id is not None:
        folder = results_dir / run_id
    else:
        found = sorted(results_dir.glob(f"*/{ADDRESS_FILE}"))
        if len(found) != 1:
            text = f"{len(found)} running learners" if found else "no running learner"
            raise UserError(ExitCode.USAGE, f"{text} found in {results_dir}; give --run-id or --control HOST:PORT")
        folder = found[0].parent
    addresses = read_addresses(folder)
    if addresses is None:
        raise UserError(ExitCode.UNREACHABLE, f"{folder / ADDRESS_FILE} is not there: no learner runs in that folder")
    return folder, addresses


def page_url(http: str) -> str:
    """Returns where a browser on this machine finds the page of an address ``host:port``; empty for none.

    A learner that listens on all addresses listens here, too.
    """
    if not http:
        return ""
    host, _, port = http.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://{host}:{port}/"


def remove_addresses(run_folder: Path) -> None:
    """Removes the file at the end of the learner; one that is gone, or cannot be removed, is fine."""
    with contextlib.suppress(OSError):
        (run_folder / ADDRESS_FILE).unlink()
