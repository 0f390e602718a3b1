"""Tests with dm_env_rpc's own suite that the connection carries what the protocol asks for, and that the tests' server answers as it asks."""

from __future__ import annotations

import re
from typing import Any

import grpc
from absl.testing import absltest
from dm_env_rpc.v1 import compliance
from dm_env_rpc.v1.dm_env_rpc_pb2 import CreateWorldRequest, JoinWorldRequest
from dm_env_rpc.v1.error import DmEnvRpcError
from dm_env_rpc.v1.tensor_utils import pack_tensor
from google.rpc import status_pb2

from actor_client.dm_env_rpc.world import World, WorldFault
from tests.actor_client.dm_env_rpc.worlds import Worlds, serving


class Connection:
    """Gives a world's stream the interface of dm_env_rpc's connection.

    Args:
        channel: To the server.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        self._world = World(channel, ())

    def send(self, request: Any) -> Any:
        """Sends a request and returns its answer."""
        kind = re.sub(r"(?<!^)([A-Z])", r"_\1", type(request).__name__.removesuffix("Request")).lower()
        self._world.send(kind, request)
        try:
            return self._world.receive()
        except WorldFault as fault:
            raise DmEnvRpcError(status_pb2.Status(message=str(fault))) from None

    def close(self) -> None:
        """Ends the stream."""
        self._world.leave()
        self._world.drain()


class Connected(absltest.TestCase):
    """Has a server with a world, and a connection."""

    connection: Any = None  # an abstract property of every suite
    specs: Any = None
    world_name: Any = None

    def setUp(self) -> None:
        """Starts the server."""
        super().setUp()
        address = self.enter_context(serving(Worlds()))
        self.connection = Connection(self.enter_context(grpc.insecure_channel(address)))
        self.addCleanup(self.connection.close)
        self.world_name = self.connection.send(CreateWorldRequest()).world_name

    def join_world(self, **request: Any) -> Any:
        """Joins the world, and returns the specs."""
        return self.connection.send(JoinWorldRequest(**{"world_name": self.world_name, **request})).specs


class TestStep(Connected, compliance.Step):  # type: ignore[misc]
    """Steps."""

    def setUp(self) -> None:
        """Joins."""
        super().setUp()
        self.specs = self.join_world()


class TestReset(Connected, compliance.Reset):  # type: ignore[misc]
    """Resets."""


class TestResetWorld(Connected, compliance.ResetWorld):  # type: ignore[misc]
    """Resets of whole worlds."""


class TestJoinLeaveWorld(Connected, compliance.JoinLeaveWorld):  # type: ignore[misc]
    """Joins and leaves."""

    invalid_join_settings = {"colour": pack_tensor("red")}


class TestCreateDestroyWorld(Connected, compliance.CreateDestroyWorld):  # type: ignore[misc]
    """Creates and destroys."""

    has_multiple_world_support = True
    required_world_settings: dict[str, Any] = {}
    invalid_world_settings = {"colour": pack_tensor("red")}
