"""Runs the actor's command line with faults in its calls: `python -m tests.nightly.chaos.faulty_actor gym ...`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from rollcast.tls import ClientSecurity

from tests.nightly.chaos.injection import FaultFile, FaultyChannel, Injector

VARIABLE = "CHAOS_FAULTS"
"""Names the file of `FaultFile`."""


def main() -> int:
    """Runs a command and returns its exit code."""
    from actor_client import cli

    faults = FaultFile(Path(os.environ[VARIABLE]))
    injector = Injector(faults.note)
    threading.Thread(target=faults.follow, args=(injector,), name="faults", daemon=True).start()
    real = ClientSecurity.aio_channel

    def faulty(self: ClientSecurity, address: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        return FaultyChannel(real(self, address, options), injector)  # type: ignore[return-value]

    ClientSecurity.aio_channel = faulty  # type: ignore[method-assign]
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
