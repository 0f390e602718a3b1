"""Provides an actor without an environment: a link to the scripted learner, and chunks made by the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec

from actor_client.connection.behavior import BehaviorPort
from actor_client.connection.link import LearnerLink
from actor_client.policy.actions import NO_MEMORY, Actions, MemoryForm
from actor_client.policy.noise import Noise
from tests.actor_client.scripted import ScriptedLearner, wait_until
from tests.protos.builders import CARTPOLE, small_chunk


@dataclass(frozen=True)
class BarePolicy:
    """A policy that consists of a number."""

    generation: int
    version: int
    payload: bytes = b""
    memory: MemoryForm = NO_MEMORY

    def greedy(self) -> BarePolicy:
        """Returns itself, because its actions do not depend on chance."""
        return self

    def uniform(self) -> BarePolicy:
        """Returns itself, because its actions do not depend on chance."""
        return self

    def act(
        self, observations: Sequence[NDArray[Any]], masks: NDArray[Any] | None, noise: Noise, memory: Any = None
    ) -> Actions:
        """Raises, because this policy cannot act."""
        raise NotImplementedError("this policy is only a number")


def load(description: PolicyDescription, payload: bytes, spec: BehaviorSpec) -> BarePolicy:
    """Takes every payload but one that says otherwise."""
    if payload == b"unusable":
        raise ValueError("the graph has 3 inputs; 2 are known")
    return BarePolicy(description.generation, description.version, payload)


@dataclass
class Actor:
    """An actor whose steps are taken one at a time by the test."""

    link: LearnerLink
    port: BehaviorPort
    spec: BehaviorSpec

    def take_policy(self) -> BarePolicy:
        """Waits for a new policy and takes it."""
        found: list[Any] = []

        def taken() -> bool:
            policy = self.port.take_policy()
            if policy is not None:
                found.append(policy)
            return bool(found)

        wait_until(taken)
        policy: BarePolicy = found[0]
        return policy

    def send(self, rows: int = 5, *, generation: int | None = None) -> None:
        """Records rows and sends them as one chunk, as the recorder does."""
        chunk = small_chunk(self.spec, (rows,))
        chunk.generation, chunk.base_version = self.port.acting
        if generation is not None:
            chunk.generation = generation
        self.port.books.produced(rows)
        self.port.books.seal(rows)
        self.port.send(chunk)

    def wait_acked(self) -> None:
        """Waits until nothing is unacked."""
        wait_until(lambda: self.port.books.view().unacked == 0)


class Addressed(Protocol):
    """The address of a learner."""

    @property
    def address(self) -> str:
        """Returns where it listens."""
        ...


@contextmanager
def linked(learner: Addressed, **settings: Any) -> Iterator[LearnerLink]:
    """Starts a link."""
    link = LearnerLink(
        settings.pop("address", learner.address),
        actor_name=settings.pop("actor_name", "actor"),
        load=settings.pop("load", load),
        client_version="test",
        **settings,
    )
    link.start()
    try:
        yield link
    finally:
        link.close()


@contextmanager
def acting(learner: ScriptedLearner, spec: BehaviorSpec = CARTPOLE, **settings: Any) -> Iterator[Actor]:
    """Starts an actor that has declared its behavior and acts with version 0; checks its books at the end."""
    with linked(learner, **settings) as link:
        port = link.declare(spec, team=0, agents=1, timeout_seconds=20.0)
        learner.publish(spec.name, 0)
        actor = Actor(link, port, spec)
        actor.take_policy()
        yield actor
        view = port.books.view()
        assert view.balanced, view
