"""The learner's own service in a background thread, with a trainer that takes everything at once."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Self, TypeVar

from learner.ingest.sessions import snapshot
from learner.link.policies import StoredPolicy
from tests.actor_client.scripted import DEAD_SECONDS
from tests.learner.service.harness import Learner
from tests.learner.service.samples import make_options

T = TypeVar("T")


class RealLearner:
    """Starts, restarts and stops the service at one port.

    Attributes:
        ahead_limit_steps: how far actors may run ahead.
    """

    def __init__(self, behavior: str = "CartPole", **service: Any) -> None:
        self._behavior = behavior
        self._service = service
        self.ahead_limit_steps = 1000
        self.generation = 0
        with socket.create_server(("127.0.0.1", 0)) as placeholder:
            self.port = placeholder.getsockname()[1]

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="real-learner", daemon=True)
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the learner's thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEAD_SECONDS)

    def start(self, state: Mapping[str, Any] | None = None) -> None:
        """Starts another generation, from a checkpoint or from nothing."""
        self.generation += 1
        self.run(self._start(state))

    async def _start(self, state: Mapping[str, Any] | None) -> None:
        options = make_options(**self._service)
        self.learner = Learner(options, generation=self.generation, address=self.address, state=state, has_policy=False)
        await self.learner.server.start()
        self._trainer = asyncio.ensure_future(self._train())

    async def _train(self) -> None:
        """Takes what is queued as trained, and keeps the credit open."""
        learner = self.learner
        while True:
            for behavior in filter(None, [learner.behaviors.by_index(index) for index in range(4)]):
                for item in behavior.queue.get():
                    learner.ledger.trained(behavior.name, item.chunk.rows)
                learner.pace(ahead_limit_steps=self.ahead_limit_steps)  # nothing that was taken is held
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
        """Broadcasts a policy."""
        self.learner.store.publish(policy)
        self.learner.store.wakeup.set()

    def drain(self, *, final: bool) -> None:
        """Ends the service in good order."""
        self.run(self.learner.server.drain(final=final, seconds=5.0))
