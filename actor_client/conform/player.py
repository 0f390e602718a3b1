"""A scripted actor: calls and streams of one session, without the care that an actor takes of either."""

import queue
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
import numpy as np
from rollcast.channels import channel_options
from rollcast.enums import ColumnRole, SegmentEnd
from rollcast.errors import WireError, from_rpc_error
from rollcast.limits import PROTOCOL_REVISION
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.tls import ClientSecurity
from rollcast.trajectories import Chunk, encode_chunk
from rollcast.v1 import (
    policy_pb2,
    policy_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    trajectory_pb2,
    trajectory_pb2_grpc,
)

ANSWER_SECONDS: Final = 30.0
"""Time for an answer; a learner that takes longer has not answered."""


class Ended(Exception):  # noqa: N818 - says what the stream did
    """Raised if a stream ended without an error where a message was expected."""


class Stream:
    """A stream of messages in both directions.

    Args:
        player: Keeps the bytes of the last message.
        start: Begins the call, with an iterator of requests.
    """

    def __init__(self, player: "Player", start: Callable[[Iterator[Any]], Any]) -> None:
        self._player = player
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = start(iter(self._requests.get, None))

    def send(self, message: Any) -> None:
        """Sends a message without waiting."""
        self._player.sent = message.SerializeToString()
        self._requests.put(message)

    def read(self) -> Any:
        """Waits for the next message.

        Raises:
            WireError: The stream ended with an error.
            Ended: It ended well.
        """
        return self._player.received(lambda: next(self._call))

    def finish(self) -> None:
        """Sends nothing more."""
        self._requests.put(None)
        self._call.cancel()


class Player:
    """One session of a scripted actor.

    Args:
        address: The learner's.
        security: How to connect.
        name: Name of the actor.
        behavior: The declared behavior; empty before it is known.

    Attributes:
        sent: Bytes of the last message that was sent.
        errors: Every error that came.
        generation: The learner's.
        epoch: Of the session.
        session_id: The session; empty before the first opening.
        index: Index of the behavior.
    """

    def __init__(self, address: str, security: ClientSecurity, name: str, behavior: str) -> None:
        self.name, self.behavior = name, behavior
        self.sent = b""
        self.errors: list[WireError] = []
        self.instance_id = str(uuid.uuid4())
        self.generation = self.epoch = self.index = 0
        self.session_id = ""
        self._metadata = security.metadata()
        self._channel = security.sync_channel(address, channel_options())
        self._stubs: dict[str, Any] = {}
        for stub in (
            session_pb2_grpc.SessionServiceStub,
            trajectory_pb2_grpc.TrajectoryServiceStub,
            policy_pb2_grpc.PolicyServiceStub,
        ):
            self._stubs.update(vars(stub(self._channel)))

    def received(self, wait: Callable[[], Any]) -> Any:
        """Returns what a call answers.

        Raises:
            WireError: It failed.
            Ended: A stream ended well.
        """
        try:
            return wait()
        except StopIteration:
            raise Ended from None
        except grpc.RpcError as error:
            self.errors.append(from_rpc_error(error))
            raise self.errors[-1] from None

    def call(self, method: str, request: Any) -> Any:
        """Makes a unary call.

        Raises:
            WireError: It failed.
        """
        self.sent = request.SerializeToString()
        return self.received(lambda: self._stubs[method](request, timeout=ANSWER_SECONDS, metadata=self._metadata))

    def open(self, **fields: Any) -> session_pb2.OpenSessionResponse:
        """Opens a session; fields replace those of the request."""
        request = {"protocol_revision": PROTOCOL_REVISION, "actor_name": self.name, "instance_id": self.instance_id}
        opened: session_pb2.OpenSessionResponse = self.call(
            "OpenSession", session_pb2.OpenSessionRequest(**{**request, **fields})
        )
        self.session_id, self.epoch, self.generation = opened.session_id, opened.epoch, opened.generation
        self.behavior = self.behavior or next(iter(opened.behaviors), "")
        return opened

    def declare(self, size: int = 4) -> session_pb2.DeclareBehaviorResponse:
        """Declares the behavior, with so many numbers as its observation."""
        state = ObservationSpec("state", np.dtype(np.float32), (size,))
        spec = BehaviorSpec(self.behavior, (state,), ActionSpec(discrete_branches=(2,)))
        request = session_pb2.DeclareBehaviorRequest(
            session_id=self.session_id, epoch=self.epoch, spec=spec.to_message(), agents=1
        )
        declared: session_pb2.DeclareBehaviorResponse = self.call("DeclareBehavior", request)
        self.index = declared.behavior_index
        return declared

    def renew(self, epoch: int | None = None, session_id: str | None = None) -> session_pb2.RenewSessionResponse:
        """Renews the lease."""
        request = session_pb2.RenewSessionRequest(
            session_id=self.session_id if session_id is None else session_id,
            epoch=self.epoch if epoch is None else epoch,
        )
        renewed: session_pb2.RenewSessionResponse = self.call("RenewSession", request)
        return renewed

    def resume(self, session_id: str | None = None, instance_id: str | None = None) -> session_pb2.OpenSessionResponse:
        """Opens the session again, or another one, as another process if an instance is given."""
        return self.open(
            instance_id=instance_id or self.instance_id,
            resume=session_pb2.ResumeSession(
                session_id=session_id or self.session_id, epoch=self.epoch, generation=self.generation
            ),
        )

    def close(self) -> None:
        """Closes the session."""
        self.call(
            "CloseSession",
            session_pb2.CloseSessionRequest(
                session_id=self.session_id, epoch=self.epoch, reason=session_pb2.CLOSE_REASON_DONE
            ),
        )

    def upload(self, *, opens: bool = True) -> Stream:
        """Begins an upload; opens it."""
        start = self._stubs["Upload"]
        stream = Stream(self, lambda requests: start(requests, timeout=ANSWER_SECONDS, metadata=self._metadata))
        if opens:
            opening = trajectory_pb2.UploadOpen(session_id=self.session_id, epoch=self.epoch)
            stream.send(trajectory_pb2.UploadRequest(open=opening))
        return stream

    def policies(self, method: str, request: Any) -> Iterator[Any]:
        """Yields the messages of Subscribe or GetPolicy.

        Raises:
            WireError: The stream ended with an error.
        """
        self.sent = request.SerializeToString()
        call = self._stubs[method](request, timeout=ANSWER_SECONDS, metadata=self._metadata)
        try:
            while True:
                yield self.received(lambda: next(call))
        except Ended:
            return
        finally:
            call.cancel()

    def subscribe(self) -> Iterator[policy_pb2.SubscribeResponse]:
        """Yields the messages of a subscription."""
        return self.policies("Subscribe", policy_pb2.SubscribeRequest(session_id=self.session_id, epoch=self.epoch))

    def chunk(self, sequence: int, version: int, reward: float = 0.0) -> trajectory_pb2.UploadRequest:
        """Returns a chunk with one segment of one row."""
        step, segment, final = ColumnRole.STEP, ColumnRole.SEGMENT, ColumnRole.FINAL
        columns: dict[str, tuple[ColumnRole, str, Any]] = {
            "obs/state": (step, "f4", [[0, 0, 0, 0]]),
            "discrete_action": (step, "i4", [[0]]),
            "log_prob": (step, "f4", [[np.log(0.5)]]),
            "reward": (step, "f4", [reward]),
            "length": (segment, "u4", [1]),
            "end": (segment, "u1", [SegmentEnd.TRUNCATED]),
            "env": (segment, "u4", [0]),
            "agent": (segment, "u8", [0]),
            "episode": (segment, "u8", [sequence]),
            "first_step": (segment, "u4", [0]),
            "final_obs/state": (final, "f4", [[0, 0, 0, 0]]),
        }
        chunk = Chunk(
            sequence=sequence,
            generation=self.generation,
            behavior_index=self.index,
            base_version=version,
            produced_steps=sequence,
            segments=1,
            rows=1,
            agents=1,
            columns={name: np.asarray(values, dtype) for name, (_, dtype, values) in columns.items()},
            roles={name: role for name, (role, _, _) in columns.items()},
        )
        return trajectory_pb2.UploadRequest(chunk=encode_chunk(chunk))

    def leave(self) -> None:
        """Closes the connection."""
        self._channel.close()
