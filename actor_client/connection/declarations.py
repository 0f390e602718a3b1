"""Telling the learner of behaviors: once when the actor asks, and again with each opening of the session."""

from dataclasses import dataclass

import grpc
from rollcast.errors import WireError
from rollcast.specs import BehaviorSpec
from rollcast.v1 import session_pb2

from actor_client.connection.behavior import Behavior
from actor_client.connection.endpoint import Endpoint, call
from actor_client.connection.hub import Hub
from actor_client.connection.port import BehaviorPort


@dataclass(slots=True, eq=False)
class Declaration:
    """One behavior id that the actor has.

    Attributes:
        spec: What it sees and does.
        team: Its team.
        agents: How many agents act.
        port: What the stepping thread gets once the learner has answered.
    """

    spec: BehaviorSpec
    team: int
    agents: int
    port: BehaviorPort | None = None


class Declarations:
    """All declarations of this process, in order."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._known: list[Declaration] = []

    def add(self, declaration: Declaration) -> None:
        """Takes a new declaration, or one that replaces an older of the same behavior id."""
        name, team = declaration.spec.name, declaration.team
        self._known = [old for old in self._known if (old.spec.name, old.team) != (name, team)]
        self._known.append(declaration)
        self._hub.declared.set()

    async def repeat(self, endpoint: Endpoint) -> None:
        """Declares everything, after an opening.

        Raises:
            WireError: The learner refused, or did not answer.
        """
        self._hub.declared.clear()
        for declaration in list(self._known):
            await self._declare(endpoint, declaration)

    async def serve(self, endpoint: Endpoint) -> None:
        """Declares what is added from now on, until cancelled.

        Raises:
            WireError: The learner refused, or did not answer.
        """
        while True:
            await self._hub.declared.wait()
            self._hub.declared.clear()
            for declaration in list(self._known):
                if declaration.port is None:
                    await self._declare(endpoint, declaration)

    async def _declare(self, endpoint: Endpoint, declaration: Declaration) -> None:
        hub = self._hub
        request = session_pb2.DeclareBehaviorRequest(
            session_id=hub.session.session_id,
            epoch=hub.session.epoch,
            spec=declaration.spec.to_message(),
            team=declaration.team,
            agents=declaration.agents,
        )
        response = await call(endpoint.sessions.DeclareBehavior, request)
        gate = hub.gate(response.behavior_index)
        if gate is None or response.time_horizon == 0:
            raise WireError(
                f"the learner answered behavior number {response.behavior_index}, time horizon {response.time_horizon}",
                code=grpc.StatusCode.INTERNAL,
            )
        name = declaration.spec.name
        behavior = hub.behaviors.get(name)
        if behavior is None:
            behavior = hub.behaviors[name] = Behavior(hub, declaration.spec)
        with hub.window.lock:
            behavior.index = response.behavior_index
            behavior.gate = gate
            behavior.settings = response
        declaration.port = behavior.port(declaration.team, declaration.agents)
        hub.loadable.set()
        hub.changed.set()
