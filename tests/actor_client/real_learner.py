"""Runs the learner's service in a background thread, with a trainer that accepts everything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from learner.link.to_front import Pace
from learner.link.to_trainers import Experience
from learner.service.ingest.snapshots import snapshot
from learner.shared.policies import StoredPolicy
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.options import RunOptions
from tests.actor_client.scripted import InThread
from tests.learner.service.calls.harness import Learner
from tests.learner.service.calls.samples import make_options
from tests.ports import reserve_ports


class RealLearner(InThread):
    """Starts, restarts and stops the service at one port.

    Attributes:
        ahead_limit_steps: How far actors may run ahead.
        taken: What the trainer has taken, of all starts.
    """

    def __init__(
        self,
        behavior: str = "CartPole",
        *,
        options: RunOptions | None = None,
        snapshots: SnapshotFiles | None = None,
        **service: Any,
    ) -> None:
        self._behavior = behavior
        self._options = options
        self._snapshots = snapshots
        self.taken: list[Experience] = []
        self._service = service
        self.ahead_limit_steps = 1000
        self.generation = 0
        self.port = reserve_ports()

    def __enter__(self) -> Self:
        self.begin()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.end()

    def start(self, state: Mapping[str, Any] | None = None) -> None:
        """Starts another generation, from a checkpoint or from nothing."""
        self.generation += 1
        self.run(self._start(state))

    async def _start(self, state: Mapping[str, Any] | None) -> None:
        self.learner = Learner(
            self._options or make_options(**self._service),
            generation=self.generation,
            address=self.address,
            state=state,
            has_policy=False,
            snapshots=self._snapshots,
        )
        await self.learner.server.start()
        self._trainer = asyncio.ensure_future(self._train())

    async def _train(self) -> None:
        """Takes what is queued as trained, and keeps the credit open."""
        learner = self.learner
        while True:
            for behavior in filter(None, [learner.behaviors.by_index(index) for index in range(4)]):
                taken = learner.trainers.take(behavior.index)
                self.taken += taken
                steps = sum(item.chunk.rows for item in taken)
                pace = Pace(ahead_limit_steps=self.ahead_limit_steps)
                learner.trainers.settle(behavior.index, trained=steps, pace=pace)
            await asyncio.sleep(0.005)

    def stop(self) -> dict[str, Any]:
        """Stops, and returns what its checkpoint would hold."""
        return self.run(self._stop())

    async def _stop(self) -> dict[str, Any]:
        self._trainer.cancel()
        await asyncio.gather(self._trainer, return_exceptions=True)
        await self.learner.server.stop()
        return snapshot(self.learner.behaviors, self.learner.sessions, self.learner.ledger)

    def publish(self, policy: StoredPolicy) -> None:
        """Publishes a policy."""
        self.learner.publish(policy)

    def drain(self, *, final: bool) -> None:
        """Ends the service cleanly."""
        self.run(self.learner.server.drain(final=final, seconds=5.0))
