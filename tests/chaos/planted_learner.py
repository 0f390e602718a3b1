"""Runs the learner's command line with one bug, which the checker must find: ``CHAOS_BUG`` names it."""

from __future__ import annotations

import asyncio
import enum
import os
import sys

from rollcast.v1 import trajectory_pb2

VARIABLE = "CHAOS_BUG"
EARLY_SECONDS = 0.05


class Bug(enum.StrEnum):
    """What is wrong with the learner."""

    NONE = enum.auto()
    EARLY_ACK = enum.auto()
    """A chunk is acked before it is queued."""
    NO_DUPLICATE_CHECK = enum.auto()
    """A chunk that arrives again is queued again."""
    NO_EPOCH_CHECK = enum.auto()
    """A stream of an older epoch is served after the fence."""


def plant(bug: Bug) -> None:
    """Patches the product."""
    from learner.ingest.intake import ChunkIntake
    from learner.ingest.sessions import SessionTable
    from learner.service.trajectory import TrajectoryService
    from learner.service.uploads import UploadStream

    match bug:
        case Bug.EARLY_ACK:
            take = TrajectoryService._take

            async def early(self: TrajectoryService, stream: UploadStream, raw: bytes) -> None:
                session = stream.session
                if trajectory_pb2.UploadRequest.FromString(raw).chunk.sequence == session.next_sequence:
                    session.acked_through += 1
                    stream.settled(None)
                    await asyncio.sleep(EARLY_SECONDS)
                    session.acked_through -= 1
                await take(self, stream, raw)

            TrajectoryService._take = early  # type: ignore[method-assign]
        case Bug.NO_DUPLICATE_CHECK:
            ChunkIntake._is_settled = lambda *_: False  # type: ignore[method-assign]
        case Bug.NO_EPOCH_CHECK:
            SessionTable.get = lambda self, session_id, _, principal="": self.find(  # type: ignore[method-assign]
                session_id, principal
            )


def main() -> int:
    """Runs a command and returns its exit code."""
    from learner import cli

    plant(Bug(os.environ[VARIABLE]))
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
