"""Declares the behaviors of this process to the learner when they appear, and again after each opening."""

from dataclasses import dataclass
from typing import Final

import grpc
from rollcast.errors import (
    BadRequest,
    BadSpec,
    NotAllowed,
    RingTooSmall,
    SpecMismatch,
    StepTooLarge,
    UnknownBehavior,
    Untrainable,
    WireError,
)
from rollcast.specs import BehaviorSpec
from rollcast.v1 import session_pb2

from actor_client.connection.behavior import Behavior, BehaviorPort
from actor_client.connection.endpoint import DECLARE_SECONDS, Endpoint, call
from actor_client.connection.errors import one_line
from actor_client.connection.session import Opening, RunInfo
from actor_client.connection.state import ConnectionState
from actor_client.exits import ActorError, ExitCode

_REFUSALS: Final = (
    BadRequest,
    BadSpec,
    NotAllowed,
    RingTooSmall,
    SpecMismatch,
    StepTooLarge,
    UnknownBehavior,
    Untrainable,
)
"""Answers to a declaration that concern only its behavior."""


@dataclass(slots=True, eq=False)
class Declaration:
    """One declared behavior id.

    Attributes:
        spec: Its observations and actions.
        team: Its team.
        agents: Number of agents that act.
        follows_quota: The agents take their steps together, and the stepping thread follows `BehaviorPort.has_used_quota`.
        port: The link for the stepping thread, once the learner has answered.
        replaced: The accepted declaration of the same behavior id whose place this one takes, with fewer agents.
        refusal: Why the learner does not take it, in one line; empty if it does, or has not answered.
    """

    spec: BehaviorSpec
    team: int
    agents: int
    follows_quota: bool = False
    port: BehaviorPort | None = None
    replaced: "Declaration | None" = None
    refusal: str = ""


class Declarations:
    """All declarations of this process, in order, and the behaviors that the learner has accepted.

    Args:
        state: The state of the connection.
        survives_refusals: A declaration that was never accepted is dropped if it is refused, in favor of an older one of its
            behavior id; otherwise the refusal ends the actor.

    Attributes:
        behaviors: Behaviors by name, in the order of their declaration.
    """

    def __init__(self, state: ConnectionState, *, survives_refusals: bool = False) -> None:
        self._state = state
        self._survives_refusals = survives_refusals
        self.behaviors: dict[str, Behavior] = {}
        self._known: list[Declaration] = []

    def add(self, declaration: Declaration) -> None:
        """Adds a declaration, or replaces an older one of the same behavior id."""
        same = (declaration.spec.name, declaration.team)
        declaration.replaced = next(
            (old for old in self._known if (old.spec.name, old.team) == same and old.port is not None), None
        )
        self._known = [old for old in self._known if (old.spec.name, old.team) != same]
        self._known.append(declaration)
        self._state.declared.set()

    def by_index(self, index: int) -> Behavior | None:
        """Returns the behavior with a number of the present session."""
        return next((behavior for behavior in self.behaviors.values() if behavior.index == index), None)

    def numbered(self) -> list[Behavior]:
        """Returns the behaviors with a number in the present session."""
        return [behavior for behavior in self.behaviors.values() if behavior.index >= 0]

    def reports(self) -> list[session_pb2.ActorBooks]:
        """Returns the books of all behaviors with a number, as messages."""
        return [behavior.report() for behavior in self.numbered()]

    def opened(self, opening: Opening, run: RunInfo) -> int:
        """Applies an opening; chunks that the learner can no longer use are dropped and counted.

        Returns:
            The number of dropped rows.
        """
        state = self._state
        with state.window.lock:
            replayed = {id(behavior) for behavior in self.behaviors.values() if behavior.is_replayed}
            dropped = state.opened(opening, run, lambda outgoing: id(outgoing.owner) in replayed)
            if opening is not Opening.RESUMED:
                for behavior in self.behaviors.values():
                    behavior.restart(run.generation, is_lost=opening is Opening.LOST)
        state.changed.set()
        return dropped

    async def repeat(self, endpoint: Endpoint) -> None:
        """Declares all behaviors after an opening.

        Raises:
            WireError: The learner refused, or did not answer.
            ActorError: The actor's settings do not fit the trainer.
        """
        self._state.declared.clear()
        for declaration in list(self._known):
            await self._declare(endpoint, declaration)

    async def serve(self, endpoint: Endpoint) -> None:
        """Declares added behaviors until cancelled.

        Raises:
            WireError: The learner refused, or did not answer.
            ActorError: The actor's settings do not fit the trainer.
        """
        while True:
            await self._state.declared.wait()
            self._state.declared.clear()
            for declaration in list(self._known):
                if declaration.port is None:
                    await self._declare(endpoint, declaration)

    async def _declare(self, endpoint: Endpoint, declaration: Declaration) -> None:
        state = self._state
        request = session_pb2.DeclareBehaviorRequest(
            session_id=state.session.session_id,
            epoch=state.session.epoch,
            spec=declaration.spec.to_message(),
            team=declaration.team,
            agents=declaration.agents,
            follows_quota=declaration.follows_quota,
        )
        try:
            response = await call(
                endpoint.sessions.DeclareBehavior, request, DECLARE_SECONDS, metadata=endpoint.metadata
            )
        except WireError as error:
            if not (self._survives_refusals and isinstance(error, _REFUSALS) and declaration.port is None):
                raise
            place = self._known.index(declaration)
            self._known[place : place + 1] = [] if declaration.replaced is None else [declaration.replaced]
            declaration.refusal = one_line(error.message)
            state.changed.set()
            return
        gate = state.gate(response.behavior_index)
        if gate is None or response.time_horizon == 0:
            raise WireError(
                f"the learner's answer has behavior number {response.behavior_index} and time horizon "
                f"{response.time_horizon}",
                code=grpc.StatusCode.INTERNAL,
            )
        name = declaration.spec.name
        if state.outage_bytes and not response.replay:
            raise ActorError(
                ExitCode.REFUSED,
                f"--outage-bytes {state.outage_bytes} cannot be used with behavior {name}: its trainer has no replay memory "
                "(as sac has), and steps that an actor takes on its own would be too old; leave out --outage-bytes",
            )
        behavior = self.behaviors.get(name)
        if behavior is None:
            behavior = self.behaviors[name] = Behavior(state, declaration.spec)
        with state.window.lock:
            behavior.index = response.behavior_index
            behavior.gate = gate
            behavior.settings = response
        declaration.port, declaration.replaced = behavior.port(declaration.team, declaration.agents), None
        state.loadable.set()
        state.changed.set()
