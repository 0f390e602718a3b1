"""Plays a trainer that answers immediately with random actions, for tests and timings of players."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import numpy as np
from rollcast.unity.communicator_objects import agent_pb2, behavior_pb2, unity_message_pb2

Message = unity_message_pb2.UnityMessageProto
Change = Callable[[Message, Message], None]


class Answering:
    """Answers messages.

    Args:
        change: May change an answer, given the message and the answer.
        seed: Told to the player.
        side_channel: Sent with the RESET.
    """

    def __init__(self, change: Change | None = None, seed: int = 1, side_channel: bytes = b"") -> None:
        self.messages: list[Message] = []
        self._change = change
        self._seed = seed
        self._side_channel = side_channel
        self._specs: dict[str, behavior_pb2.ActionSpecProto] = {}
        self._generator = np.random.default_rng(0)

    def __call__(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """Answers a message."""
        message = Message.FromString(data)
        self.messages.append(message)
        answer = Message(header=unity_message_pb2.HeaderProto(status=200))
        output = message.unity_output
        if message.header.status != 200:
            answer.header.status = message.header.status
        elif output.HasField("rl_output"):
            self._act(output, answer.unity_input.rl_input)
        elif message.HasField("unity_output"):
            told = answer.unity_input.rl_initialization_input
            told.seed, told.num_areas, told.communication_version, told.package_version = (
                self._seed,
                1,
                "1.5.0",
                "1.1.0",
            )
            told.capabilities.baseRLCapabilities = True
        else:
            answer.unity_input.rl_input.command = unity_message_pb2.RESET
            answer.unity_input.rl_input.side_channel = self._side_channel
        if self._change:
            self._change(message, answer)
        return answer.SerializeToString()

    def _act(self, output: unity_message_pb2.UnityOutputProto, reply: unity_message_pb2.UnityRLInputProto) -> None:
        for brain in output.rl_initialization_output.brain_parameters:
            self._specs[brain.brain_name] = brain.action_spec
        for behavior_id, infos in output.rl_output.agentInfos.items():
            for info in infos.value:
                if not info.done:
                    reply.agent_actions[behavior_id].value.append(self._action(self._specs[behavior_id], info))

    def _action(self, spec: behavior_pb2.ActionSpecProto, info: agent_pb2.AgentInfoProto) -> agent_pb2.AgentActionProto:
        action = agent_pb2.AgentActionProto()
        action.continuous_actions.extend(self._generator.uniform(-1, 1, spec.num_continuous_actions))
        offset = 0
        for size in spec.discrete_branch_sizes:
            forbidden = info.action_mask[offset : offset + size]
            allowed = [choice for choice in range(size) if not (forbidden and forbidden[choice])]
            action.discrete_actions.append(int(self._generator.choice(allowed)))
            offset += size
        action.vector_actions_deprecated.extend([*action.continuous_actions, *map(float, action.discrete_actions)])
        return action


@contextmanager
def listening(answering: Answering, port: int = 0) -> Iterator[int]:
    """Listens on 127.0.0.1 for the block and yields the port."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", 256 * 1024 * 1024)])
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answering)
    service = grpc.method_handlers_generic_handler("communicator_objects.UnityToExternalProto", {"Exchange": handler})
    server.add_generic_rpc_handlers((service,))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield bound
    finally:
        server.stop(None).wait()
