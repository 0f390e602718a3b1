"""One connection to a dm_env_rpc server: requests, and their answers in the same order."""

import queue
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import grpc
from dm_env_rpc.v1.dm_env_rpc_pb2 import (
    CreateWorldRequest,
    DestroyWorldRequest,
    EnvironmentRequest,
    JoinWorldRequest,
    LeaveWorldRequest,
)
from dm_env_rpc.v1.dm_env_rpc_pb2_grpc import EnvironmentStub
from google.rpc import code_pb2
from rollcast.text import printable


class WorldFault(Exception):  # noqa: N818 - says whose fault it is
    """Raised if a server refuses a request, or answers with something that it has not declared; one line."""


class World:
    """A stream of requests and answers, for one agent in one world.

    Args:
        channel: The connection to the server.
        metadata: Of the stream.

    Attributes:
        actions: UIDs of the actions that are sent, in the order of the declared specs.
        observations: UIDs of the requested observations, likewise.
        is_running: Whether a sequence runs: the next step acts. Otherwise it begins a sequence, and its action is ignored.
        has_run: Whether a sequence has begun since the agent joined.
    """

    def __init__(self, channel: grpc.Channel, metadata: Iterable[tuple[str, str]]) -> None:
        self.actions: tuple[int, ...] = ()
        self.observations: tuple[int, ...] = ()
        self.is_running = False
        self.has_run = False
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers = EnvironmentStub(channel).Process(iter(self._requests.get, None), metadata=tuple(metadata))
        self._asked = ""
        self._created: str | None = None
        self._has_joined = False

    def send(self, kind: str, request: Any) -> None:
        """Sends a request, whose answer must be received before the next one is sent.

        Args:
            kind: The name of its field in EnvironmentRequest.
            request: The message.
        """
        self._asked = kind
        self._requests.put(EnvironmentRequest(**{kind: request}))

    def receive(self) -> Any:
        """Waits for the answer to the last request, and returns the message in it.

        Raises:
            WorldFault: The server refused the request, answered another one, or is gone.
        """
        kind = self._asked
        try:
            answer = next(self._answers)
        except StopIteration:
            raise WorldFault(f"the server ended the stream in place of an answer to {kind}") from None
        except grpc.RpcError as error:
            details = printable(error.details() or "without a reason")
            raise WorldFault(f"the server gave no answer to {kind}: {error.code().name}: {details}") from None
        found = answer.WhichOneof("payload")
        if found == "error":
            raise WorldFault(f"the server refused {kind}: {_words(answer.error)}")
        if found != kind:
            raise WorldFault(f"the server answered {kind} with {found}")
        return getattr(answer, kind)

    def create(self, settings: Any) -> None:
        """Sends the request for a new world."""
        self.send("create_world", CreateWorldRequest(settings=settings))

    def created(self, answer: Any) -> None:
        """Notes the name of the new world."""
        self._created = answer.world_name

    def join(self, name: str | None, settings: Any) -> None:
        """Sends the request to join a world; None for the one that was created."""
        name = self._created if name is None else name
        self.send("join_world", JoinWorldRequest(world_name=name, settings=settings))
        self._has_joined = True

    def leave(self) -> None:
        """Leaves the world, destroys it if it was created here, and ends the stream without waiting."""
        if self._has_joined:
            self.send("leave_world", LeaveWorldRequest())
        if self._created is not None:
            self.send("destroy_world", DestroyWorldRequest(world_name=self._created))
        self._requests.put(None)

    def drain(self) -> None:
        """Waits for the end of the stream."""
        with suppress(grpc.RpcError):
            for _ in self._answers:
                continue

    def cut(self) -> None:
        """Ends the stream at once; called in any thread."""
        self._answers.cancel()


def _words(status: Any) -> str:
    """Returns a status of the server in one line."""
    known = code_pb2.Code.keys()
    named = dict(zip(code_pb2.Code.values(), known, strict=True))
    code = named.get(status.code, str(status.code))
    return f"{code}: {printable(' '.join(status.message.split()) or 'without a reason')}"
