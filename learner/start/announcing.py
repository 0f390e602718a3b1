"""Announces the addresses of a learner."""

from __future__ import annotations

import platform
from dataclasses import replace

import structlog

from learner.shared.files import WriteFailed
from learner.shared.observe.address import BoundAddresses, write_addresses
from learner.shared.runfolder.runfolder import RunFolder

log = structlog.get_logger(__name__)


def announce(
    folder: RunFolder, bound: BoundAddresses, *, page: str, generation: int, seed: int, **more: object
) -> None:
    """Writes ``address.json`` and the log line with the addresses.

    Args:
        folder: Run folder.
        bound: Addresses of the learner.
        page: Link to the status page; empty for none.
        generation: Number of this start.
        seed: Seed of the run.
        more: Additional fields of the line.
    """
    try:
        write_addresses(folder.path, replace(bound, run_id=folder.run_id, host=platform.node()))
    except WriteFailed as error:
        log.error("address_not_written", error=str(error), action=f"operators need --control {bound.http}")
    log.info(
        "learner_started",
        run=folder.run_id,
        folder=str(folder.path),
        address=bound.address,
        page=page or "off",
        security="TLS" if bound.tls else "plain text",
        generation=generation,
        resumed=folder.resuming,
        seed=seed,
        **more,
    )
