"""A player that exchanges messages with a trainer as a Unity build does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import grpc
from rollcast.unity.communicator_objects import unity_message_pb2

from tests.tools.players.task import Task

METHOD: Final = "/communicator_objects.UnityToExternalProto/Exchange"
OK, CLOSE = 200, 400
POLL_SECONDS = 0.1
API_VERSION, PACKAGE_VERSION = "1.5.0", "3.0.0"

Call = Callable[[bytes], bytes]
Notice = Callable[..., None]


class NoTrainerError(Exception):
    """Nothing listened at the player's first call; a real player would run without training."""


class RefusedError(Exception):
    """The trainer refused the player's greeting or sent an invalid answer."""


class Player:
    """Exchanges messages as a player with Unity's package does.

    Args:
        port: Of the trainer's side.
        task: The scene.
        notice: Called with an event and its content.
    """

    def __init__(self, port: int, task: Task, notice: Notice) -> None:
        self.exchanges = 0
        self.resets = 0
        self.waited_seconds = 0.0
        self._task = task
        self._notice = notice
        self._channel = grpc.insecure_channel(f"localhost:{port}")
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(METHOD)

    def exchange(self, message: unity_message_pb2.UnityMessageProto) -> unity_message_pb2.UnityMessageProto:
        """Sends a message and waits for its answer, however long that takes."""
        data = message.SerializeToString()
        begun = time.monotonic()
        answer = self._call(data)
        self.waited_seconds += time.monotonic() - begun
        self.exchanges += 1
        return unity_message_pb2.UnityMessageProto.FromString(answer)

    def greet(self, wait_seconds: float = 0.0) -> None:
        """Makes the first two exchanges.

        Args:
            wait_seconds: How long it waits for something to listen; a real player does not.

        Raises:
            NoTrainerError: Nothing listens.
            RefusedError: The trainer said no.
        """
        answer = self._first(wait_seconds).unity_input
        if not answer.HasField("rl_initialization_input") or not answer.rl_initialization_input.HasField(
            "capabilities"
        ):
            raise RefusedError("the first answer holds no capabilities, which Unity reads")
        told = answer.rl_initialization_input
        versions = {"api": told.communication_version, "package": told.package_version}
        self._notice("greeted", seed=told.seed, num_areas=told.num_areas, **versions)
        answer = self._accepted(self.exchange(_message())).unity_input
        if not answer.HasField("rl_input"):
            raise RefusedError("the second answer holds no rl_input, which Unity reads")
        self._task.reset(told.seed)
        self._follow(answer.rl_input)

    def run(self, keeps_on: Callable[[], bool]) -> str:
        """Plays until the trainer ends it or `keeps_on` is false, and returns why it ended.

        Raises:
            WrongReplyError: An answer that Unity could not use.
        """
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
        """Sends the end of the player."""
        try:
            self.exchange(unity_message_pb2.UnityMessageProto(header=unity_message_pb2.HeaderProto(status=CLOSE)))
        except grpc.RpcError:
            return

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _first(self, wait_seconds: float) -> unity_message_pb2.UnityMessageProto:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                return self._accepted(self.exchange(self._greeting()))
            except grpc.RpcError as error:
                if time.monotonic() >= deadline:
                    raise NoTrainerError(f"{error.code().name}: {error.details()}") from None
                time.sleep(POLL_SECONDS)

    def _follow(self, told: unity_message_pb2.UnityRLInputProto) -> None:
        if told.side_channel:
            self._notice("side_channel", data=told.side_channel)
        if told.command == unity_message_pb2.RESET:
            self.resets += 1
            self._notice("reset")
            if self.resets > 1:
                self._task.reset()
        else:
            self._task.act(told)

    def _greeting(self) -> unity_message_pb2.UnityMessageProto:
        message = _message()
        greeting = message.unity_output.rl_initialization_output
        greeting.name = "AcademySingleton"
        greeting.communication_version, greeting.package_version = API_VERSION, PACKAGE_VERSION
        for field in greeting.capabilities.DESCRIPTOR.fields:
            setattr(greeting.capabilities, field.name, True)
        return message

    @staticmethod
    def _accepted(answer: unity_message_pb2.UnityMessageProto) -> unity_message_pb2.UnityMessageProto:
        if answer.header.status != OK:
            raise RefusedError(f"status {answer.header.status} {answer.header.message}".rstrip())
        return answer


def _message() -> unity_message_pb2.UnityMessageProto:
    return unity_message_pb2.UnityMessageProto(header=unity_message_pb2.HeaderProto(status=OK))
