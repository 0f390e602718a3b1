"""Simulators that act in a thread for a scripted learner, and what it received from them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from rollcast.tensors import decode
from rollcast.v1 import trajectory_pb2

from actor_client.connection.link import LearnerLink
from actor_client.exits import ActorError
from actor_client.policy.runner import Policy
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner
from tests.actor_client.unity.policies import described, flat_policy


class Acting:
    """Simulators in a thread.

    Args:
        learner: Whom they act for.
        link: The connection.
        behavior: The behavior that is meant where none is named.
        ends_with: An error with which they may end.

    Attributes:
        learner: Whom they act for.
        link: The connection.
        failure: The error with which they ended.
    """

    def __init__(
        self,
        learner: ScriptedLearner,
        link: LearnerLink,
        behavior: str = "Ball",
        ends_with: type[Exception] = ActorError,
    ) -> None:
        self.learner = learner
        self.link = link
        self._behavior = behavior
        self._ends_with = ends_with
        self.failure: Exception | None = None

    @contextmanager
    def running(self, run: Callable[[], None]) -> Iterator[None]:
        """Runs a loop during a block; checks at the end that the books balance."""

        def end() -> None:
            try:
                run()
            except self._ends_with as error:
                self.failure = error

        thread = threading.Thread(target=end, name="acting")
        thread.start()
        try:
            yield
        finally:
            self.link.request_stop("the test is over")
            thread.join(DEAD_SECONDS)
            self.link.close()
        assert not thread.is_alive()
        for view in self.link.books().values():
            assert view.balanced, view

    def publish(self, behavior: str = "", version: int = 0, **outputs: Any) -> None:
        """Broadcasts a policy once the behavior is declared."""
        spec = self.declared(behavior)
        self.learner.publish(spec.name, version, payload=flat_policy(spec, **outputs), described=described(spec))

    def keep(self, version: int = 3, behavior: str = "", **outputs: Any) -> PolicyDescription:
        """Keeps a policy that can be asked for."""
        spec = self.declared(behavior)
        return self.learner.keep(spec.name, version, flat_policy(spec, **outputs), described(spec))

    def steps(self) -> int:
        """Returns the number of received rows."""
        return sum(chunk.rows for chunk in self.learner.chunks)

    def declared(self, behavior: str = "") -> BehaviorSpec:
        """Returns what the behavior was declared as."""
        behavior = behavior or self._behavior
        self.learner.wait_until(lambda: behavior in self.link.books())
        requests = [each for each in self.learner.declared if each.spec.name == behavior]
        return BehaviorSpec.from_message(requests[-1].spec)


def started_link(learner: ScriptedLearner, **settings: Any) -> LearnerLink:
    """Returns a link that is about to open."""
    link = LearnerLink(learner.address, actor_name="acting", load=Policy.load, client_version="test", **settings)
    link.start()
    return link


def columns(chunk: trajectory_pb2.Chunk) -> dict[str, Any]:
    """Returns the columns of a chunk."""
    return {column.name: decode(column.tensor, max_bytes=1 << 20) for column in chunk.columns}


def column(learner: ScriptedLearner, name: str) -> list[float]:
    """Returns a column of all chunks that have it."""
    return [value for chunk in list(learner.chunks) for value in columns(chunk).get(name, np.zeros(0)).tolist()]
