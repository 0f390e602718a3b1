"""A gateway on real ports, a scripted learner, and players that send what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import grpc
from rollcast.unity.communicator_objects.agent_pb2 import AgentInfoProto
from rollcast.unity.communicator_objects.behavior_pb2 import ActionSpecProto, BrainParametersProto
from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto, UnityRLInputProto
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.connection.link import LearnerLink
from actor_client.demos.players import PlayerDemos
from actor_client.policy.actions import PolicyUnusable
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.unity.channels.side_channels import SideChannels
from actor_client.unity.conversation import Conversation
from actor_client.unity.gateway import Gateway
from actor_client.unity.mailbox import Mailbox
from actor_client.unity.server import PlayerServer
from tests.actor_client.acting import Acting, started_link
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner
from tests.actor_client.unity.agents import agent, floats

MAX_MESSAGE_BYTES = 64 << 20
METHOD = "/communicator_objects.UnityToExternalProto/Exchange"


class Caller:
    """A player that is controlled call by call."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(METHOD)
        self._threads = ThreadPoolExecutor(2)
        self._announced: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._threads.shutdown(wait=True)

    def raw(self, request: bytes) -> UnityMessageProto:
        """Sends bytes and waits for the answer."""
        return UnityMessageProto.FromString(self._call(request, timeout=DEAD_SECONDS))

    def send(self, message: UnityMessageProto) -> UnityMessageProto:
        """Sends a message and waits for the answer."""
        return self.raw(message.SerializeToString())

    def soon(self, message: UnityMessageProto) -> Future[UnityMessageProto]:
        """Sends a message; the answer comes when it comes."""
        return self._threads.submit(self.send, message)

    def greet(self, version: str = "1.5.0", package: str = "3.0.0") -> UnityMessageProto:
        """Makes the first exchange."""
        return self.send(hello(version, package))

    def begin(self) -> UnityRLInputProto:
        """Makes the first two exchanges and returns the answer to the second."""
        assert self.greet().header.status == 200
        return self.send(ready()).unity_input.rl_input

    def step(self, **agents: Sequence[AgentInfoProto]) -> UnityRLInputProto:
        """Reports agents by behavior; a new behavior is declared first."""
        return self.send(self.report(agents)).unity_input.rl_input

    def report(self, agents: Mapping[str, Sequence[AgentInfoProto]], side_channel: bytes = b"") -> UnityMessageProto:
        """Returns the message that reports agents; `Name` is `Name?team=0`, and `Name_1` is `Name?team=1`."""
        message = ready()
        message.unity_output.rl_output.side_channel = side_channel
        for name, infos in agents.items():
            behavior_id = id_of(name)
            message.unity_output.rl_output.agentInfos[behavior_id].value.extend(infos)
            if behavior_id not in self._announced:
                self._announced.add(behavior_id)
                message.unity_output.rl_initialization_output.brain_parameters.append(brain(behavior_id))
        return message


def id_of(name: str) -> str:
    """Returns the behavior id: `Ball_1` is team 1 of `Ball`."""
    behavior, _, team = name.partition("_")
    return f"{behavior}?team={team or 0}"


def hello(version: str = "1.5.0", package: str = "3.0.0") -> UnityMessageProto:
    """Returns a player's first message."""
    message = ready()
    told = message.unity_output.rl_initialization_output
    told.name, told.communication_version, told.package_version = "AcademySingleton", version, package
    told.capabilities.baseRLCapabilities = True
    return message


def ready() -> UnityMessageProto:
    """Returns a player's second message."""
    message = UnityMessageProto()
    message.header.status = 200
    return message


def brain(behavior_id: str) -> BrainParametersProto:
    """Returns a behavior with one branch of two choices."""
    actions = ActionSpecProto(num_discrete_actions=1, discrete_branch_sizes=[2])
    return BrainParametersProto(brain_name=behavior_id, is_training=True, action_spec=actions)


def ball(identity: int = 0, *, reward: float = 0.0, value: float = 0.0, **fields: Any) -> AgentInfoProto:
    """Returns an agent that sees one number."""
    return agent(floats([value]), id=identity, reward=reward, **fields)


class Served(Acting):
    """A running gateway.

    Attributes:
        gateway: The gateway.
        conversations: With its players.
        ports: Where they call.
    """

    def __init__(
        self,
        learner: ScriptedLearner,
        link: LearnerLink,
        gateway: Gateway,
        conversations: Sequence[Conversation],
        ports: Sequence[int],
    ) -> None:
        super().__init__(learner, link, ends_with=PolicyUnusable)
        self.gateway = gateway
        self.conversations = conversations
        self.ports = ports

    def player(self, worker: int = 0) -> Caller:
        """Returns a player that has not called yet."""
        return Caller(self.ports[worker])

    def reset(self) -> None:
        """Asks the players to reset, and returns once the gateway has the request."""
        current = self.link.assignment
        number = 1 if current is None else current.id + 1
        self.learner.assign(policy_pb2.Assignment(id=number, reset=policy_pb2.RESET_MODE_NOW))
        self.follow(number)

    def follow(self, number: int) -> None:
        """Waits until the gateway does what an assignment asks for: the link has it a little sooner."""
        self.learner.wait_until(lambda: self.gateway._loop.assignment.id == number)

    def rows(self, behavior: str = "Ball") -> int:
        """Returns the number of steps that the learner has taken."""
        index = self.learner.indices[behavior]
        return sum(chunk.rows for chunk in self.learner.chunks if chunk.behavior_index == index)

    def books(self, behavior: str = "Ball") -> Any:
        """Returns what became of the steps."""
        view = self.link.books()[behavior]
        assert view.balanced, view
        return view


@contextmanager
def serving(
    learner: ScriptedLearner,
    players: int = 1,
    *,
    num_areas: int = 1,
    channels: Callable[[int], SideChannels] | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    demos: PlayerDemos | None = None,
    script: ScriptedOpponent | None = None,
) -> Iterator[Served]:
    """Starts a gateway on free ports; checks at the end that its books balance and no call waits."""
    mailbox = Mailbox()
    conversations = [Conversation(worker, mailbox) for worker in range(players)]
    servers = [PlayerServer(each.worker, ["127.0.0.1"], 0, each, max_message_bytes) for each in conversations]
    for server in servers:
        server.start()
    link = started_link(learner)
    areas = session_pb2.EnvironmentSettings(num_areas=num_areas)
    run_info = replace(link.open(DEAD_SECONDS), environment_settings=areas)
    gateway = Gateway(
        link,
        run_info,
        mailbox,
        conversations,
        channels=channels or (lambda worker: SideChannels(worker, first_of_run=worker == 0)),
        demos=demos,
        script=script,
    )
    served = Served(learner, link, gateway, conversations, [server.port for server in servers])
    try:
        with served.running(gateway.run):
            yield served
    finally:
        for server in servers:
            server.stop(1.0)
