"""A player: what a Unity build does with the trainer's side, from its first call to its last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import grpc
from communicator_objects import unity_message_pb2

from tests.players.task import Task

METHOD: Final = "/communicator_objects.UnityToExternalProto/Exchange"
OK, CLOSE = 200, 400


class NoTrainerError(Exception):
    """Nothing listened at the player's first call; a real player would now run untrained."""


class RefusedError(Exception):
    """The trainer refused the player's greeting."""


class Player:
    """Speaks as a player of package 3.0.0 does.

    Args:
        port: of the trainer's side.
        task: the scene.
        api_version: that the player claims.
        package_version: that the player claims.
        host: the C# client knows `localhost` only.
    """

    def __init__(
        self,
        port: int,
        task: Task,
        *,
        api_version: str = "1.5.0",
        package_version: str = "3.0.0",
        host: str = "localhost",
    ) -> None:
        self.seed = 0
        self.num_areas = 0
        self.exchanges = 0
        self.resets = 0
        self.waited_seconds = 0.0
        self._task = task
        self._versions = api_version, package_version
        self._channel = grpc.insecure_channel(f"{host}:{port}")
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(METHOD)

    def exchange(self, message: unity_message_pb2.UnityMessageProto) -> unity_message_pb2.UnityMessageProto:
        """Sends a message and waits for its answer, however long that takes."""
        begun = time.monotonic()
        reply = unity_message_pb2.UnityMessageProto.FromString(self._call(message.SerializeToString()))
        self.waited_seconds += time.monotonic() - begun
        self.exchanges += 1
        return reply

    def greet(self, wait_seconds: float = 0.0) -> None:
        """The first two exchanges.

        Args:
            wait_seconds: how long it waits for something to listen; a real player does not.

        Raises:
            NoTrainerError: nothing listens.
            RefusedError: the trainer said no.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                answer = self.exchange(self._greeting())
                break
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() >= deadline:
                    raise NoTrainerError(f"{error.code().name}: {error.details()}") from None
                time.sleep(0.1)
        self._accepted(answer)
        told = answer.unity_input.rl_initialization_input
        self.seed, self.num_areas = told.seed, told.num_areas
        first = self.exchange(_message())
        self._accepted(first)
        self._task.reset(self.seed)
        self.resets += 1

    def run(self, keeps_on: Callable[[], bool]) -> str:
        """Plays until the trainer ends it or `keeps_on` is false, and returns why it ended."""
        while keeps_on():
            message = _message()
            self._task.write(message.unity_output)
            try:
                reply = self.exchange(message)
            except grpc.RpcError as error:
                return f"the trainer has gone: {error.code().name}"
            if reply.header.status != OK:
                return f"the trainer closed: {reply.header.status}"
            self._follow(reply.unity_input.rl_input)
        self.leave()
        return "it left"

    def leave(self) -> None:
        """Says that the player quits."""
        try:
            self.exchange(unity_message_pb2.UnityMessageProto(header=unity_message_pb2.HeaderProto(status=CLOSE)))
        except grpc.RpcError:
            return

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _follow(self, told: unity_message_pb2.UnityRLInputProto) -> None:
        if told.command == unity_message_pb2.RESET:
            self._task.reset()
            self.resets += 1
        else:
            self._task.act(told)

    def _greeting(self) -> unity_message_pb2.UnityMessageProto:
        message = _message()
        greeting = message.unity_output.rl_initialization_output
        greeting.name = "AcademySingleton"
        greeting.communication_version, greeting.package_version = self._versions
        capabilities = greeting.capabilities
        for field in capabilities.DESCRIPTOR.fields:
            setattr(capabilities, field.name, True)
        return message

    def _accepted(self, answer: unity_message_pb2.UnityMessageProto) -> None:
        if answer.header.status != OK:
            raise RefusedError(f"status {answer.header.status}: {answer.header.message}")


def _message() -> unity_message_pb2.UnityMessageProto:
    return unity_message_pb2.UnityMessageProto(header=unity_message_pb2.HeaderProto(status=OK))
