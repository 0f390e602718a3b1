"""A client of a gateway with gRPC, as simulators in other languages have one, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Self

import grpc
import numpy as np
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.v1 import client_pb2, client_pb2_grpc

ENDED = client_pb2.AGENT_STATE_ENDED
INTERRUPTED = client_pb2.AGENT_STATE_INTERRUPTED

BALL = BehaviorSpec("Ball", (ObservationSpec("state", np.dtype(np.float32), (1,)),), ActionSpec(discrete_branches=(2,)))


def hello(*specs: BehaviorSpec, name: str = "test", token: str = "") -> client_pb2.Hello:
    """Returns the introduction of a client."""
    return client_pb2.Hello(name=name, token=token, behaviors=[spec.to_message() for spec in specs or (BALL,)])


def report(
    agents: Sequence[int] = (0,), values: Sequence[float] = (0.0,), *, behavior: str = "Ball", **fields: Any
) -> client_pb2.AgentSteps:
    """Returns the reports of agents of one behavior id."""
    return client_pb2.AgentSteps(behavior=behavior, agents=agents, values=values, **fields)


class Player:
    """One stream of a client. A context manager, which closes its side and reads to the end.

    Args:
        address: Of the gateway.
        credentials: To connect with TLS; None for plain text.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = (
            grpc.insecure_channel(address, options=options)
            if credentials is None
            else grpc.secure_channel(address, credentials, options=options)
        )
        self._requests: SimpleQueue[client_pb2.PlayRequest | None] = SimpleQueue()
        stub = client_pb2_grpc.ClientServiceStub(self._channel)
        self.stream = stub.Play(iter(self._requests.get, None))
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Closes its side, and waits for the gateway's."""
        self._requests.put(None)
        self._thread.shutdown(wait=True)
        self._channel.close()

    def vanish(self) -> None:
        """Ends without a word."""
        self.stream.cancel()
        self._requests.put(None)

    def send(self, request: client_pb2.PlayRequest) -> client_pb2.PlayResponse:
        """Sends a message, and waits for its answer."""
        self._requests.put(request)
        return next(self.stream)

    def soon(self, request: client_pb2.PlayRequest) -> Future[client_pb2.PlayResponse]:
        """Sends a message; the answer comes when it comes."""
        return self._thread.submit(self.send, request)

    def greet(self, *specs: BehaviorSpec, **fields: Any) -> client_pb2.PlayResponse:
        """Says who it is."""
        return self.send(client_pb2.PlayRequest(hello=hello(*specs, **fields)))

    def step(self, *steps: client_pb2.AgentSteps, **fields: Any) -> client_pb2.PlayResponse:
        """Reports agents."""
        return self.send(client_pb2.PlayRequest(steps=steps, **fields))
