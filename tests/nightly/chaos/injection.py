"""Injects faults into the calls of an actor, between the product's code and gRPC.

Ray's chaos tests name three failures of a call: the request is lost, the reply is lost, and the call fails while the
server still works on it. Streams break or stall at a message, in either direction.
"""

from __future__ import annotations

import asyncio
import enum
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import grpc

POLL_SECONDS: Final = 0.05
IN_FLIGHT_SECONDS: Final = 0.02
"""Seconds between the request of a call that fails in flight and its failure."""


class Kind(enum.StrEnum):
    """What is injected."""

    LOSE_REQUEST = enum.auto()
    LOSE_REPLY = enum.auto()
    FAIL_IN_FLIGHT = enum.auto()
    DELAY = enum.auto()
    DUPLICATE = enum.auto()
    BREAK_WRITE = enum.auto()
    BREAK_READ = enum.auto()
    STALL_WRITE = enum.auto()
    STALL_READ = enum.auto()


OF_CALLS: Final = (Kind.LOSE_REQUEST, Kind.LOSE_REPLY, Kind.FAIL_IN_FLIGHT, Kind.DELAY, Kind.DUPLICATE)
OF_STREAMS: Final = (Kind.BREAK_WRITE, Kind.BREAK_READ, Kind.STALL_WRITE, Kind.STALL_READ)
CALLS: Final = ("OpenSession", "DeclareBehavior", "RenewSession", "CloseSession")
STREAMS: Final = ("Upload", "Subscribe")


@dataclass(frozen=True, slots=True)
class CallFault:
    """A fault of one call.

    Attributes:
        kind: What happens.
        method: Name of the call.
        message: At which message of a stream, from 1; at once if the stream has passed it.
        after: Whether a stream breaks or stalls after that message instead of before it.
        seconds: How long a delay or a stall lasts.
    """

    kind: Kind
    method: str
    message: int = 1
    after: bool = False
    seconds: float = 0.0


class Injector:
    """Keeps armed faults until a call takes them. Any thread may use it.

    Args:
        on_injected: Called with each fault that happened.
    """

    def __init__(self, on_injected: Callable[[CallFault], object] = lambda _: None) -> None:
        self._on_injected = on_injected
        self._lock = threading.Lock()
        self._armed: list[CallFault] = []

    def arm(self, fault: CallFault) -> None:
        """Lets the next matching call fail."""
        with self._lock:
            self._armed.append(fault)

    def take_call(self, method: str) -> CallFault | None:
        """Takes the oldest fault of a unary call; None if there is none."""
        return self._take(lambda fault: fault.method == method and fault.kind in OF_CALLS)

    def take_message(self, method: str, *, is_write: bool, count: int) -> CallFault | None:
        """Takes the oldest fault of a stream that is due at a message; None if there is none.

        Args:
            method: Name of the stream.
            is_write: Whether the actor writes.
            count: Number of the message on the stream in this direction, from 1.
        """
        kinds = (Kind.BREAK_WRITE, Kind.STALL_WRITE) if is_write else (Kind.BREAK_READ, Kind.STALL_READ)
        return self._take(lambda each: each.method == method and each.kind in kinds and count >= each.message)

    def note(self, fault: CallFault) -> None:
        """Records that a fault happens now."""
        self._on_injected(fault)

    def _take(self, matches: Callable[[CallFault], bool]) -> CallFault | None:
        with self._lock:
            found = next((fault for fault in self._armed if matches(fault)), None)
            if found is not None:
                self._armed.remove(found)
        return found


def unavailable(fault: CallFault) -> grpc.aio.AioRpcError:
    """Returns the error that the product sees."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, f"injected: {fault.kind}")


class FaultyChannel:
    """A channel whose calls fail by request; everything else is the real channel's.

    Args:
        channel: The real channel.
        injector: Keeps the faults.
    """

    def __init__(self, channel: grpc.aio.Channel, injector: Injector) -> None:
        self._channel = channel
        self._injector = injector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def unary_unary(self, method: str, *args: Any, **options: Any) -> Any:
        """Returns a unary call with faults."""
        call = self._channel.unary_unary(method, *args, **options)
        return _faulty_call(call, method.rpartition("/")[2], self._injector)

    def unary_stream(self, method: str, *args: Any, **options: Any) -> Any:
        """Returns a stream of replies with faults."""
        call, name = self._channel.unary_stream(method, *args, **options), method.rpartition("/")[2]
        return lambda *given, **more: FaultyStream(call(*given, **more), name, self._injector)

    def stream_stream(self, method: str, *args: Any, **options: Any) -> Any:
        """Returns a stream in both directions with faults."""
        call, name = self._channel.stream_stream(method, *args, **options), method.rpartition("/")[2]
        return lambda *given, **more: FaultyStream(call(*given, **more), name, self._injector)


def _faulty_call(call: Any, method: str, injector: Injector) -> Callable[..., Any]:
    async def faulty(request: Any, **options: Any) -> Any:
        fault = injector.take_call(method)
        if fault is None:
            return await call(request, **options)
        injector.note(fault)
        match fault.kind:
            case Kind.DELAY:
                await asyncio.sleep(fault.seconds)
            case Kind.DUPLICATE:
                await call(request, **options)
            case Kind.LOSE_REQUEST:
                raise unavailable(fault)
            case Kind.LOSE_REPLY:
                await call(request, **options)
                raise unavailable(fault)
            case Kind.FAIL_IN_FLIGHT:
                working = asyncio.ensure_future(call(request, **options))
                # Before the pause, in which the caller may be cancelled: nobody looks at the answer.
                working.add_done_callback(lambda done: done.cancelled() or done.exception())
                await asyncio.sleep(IN_FLIGHT_SECONDS)
                raise unavailable(fault)
        return await call(request, **options)

    return faulty


class FaultyStream:
    """A stream that breaks or stalls at a message.

    Args:
        call: The real stream.
        method: Its name.
        injector: Keeps the faults.
    """

    def __init__(self, call: Any, method: str, injector: Injector) -> None:
        self._call = call
        self._method = method
        self._injector = injector
        self._counts = {True: 0, False: 0}
        self._broken: CallFault | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def write(self, message: Any) -> None:
        """Writes a message."""
        await self._message(lambda: self._call.write(message), is_write=True)

    async def read(self) -> Any:
        """Reads a message."""
        return await self._message(self._call.read, is_write=False)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    async def _message(self, carry: Callable[[], Any], *, is_write: bool) -> Any:
        self._counts[is_write] += 1
        fault = self._injector.take_message(self._method, is_write=is_write, count=self._counts[is_write])
        if fault is not None and not fault.after:
            await self._fail(fault)
        try:
            found = await carry()
        except (asyncio.CancelledError, asyncio.InvalidStateError):
            if self._broken is not None:
                raise unavailable(self._broken) from None
            raise
        if fault is not None and fault.after:
            await self._fail(fault)
        return found

    async def _fail(self, fault: CallFault) -> None:
        self._injector.note(fault)
        if fault.kind in {Kind.STALL_READ, Kind.STALL_WRITE}:
            await asyncio.sleep(fault.seconds)
            return
        self._broken = fault
        self._call.cancel()
        raise unavailable(fault)


class FaultFile:
    """Delivers faults from a schedule to the process of an actor, by a file of JSON lines.

    Args:
        path: The file; what has happened goes to a file next to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = path.with_suffix(".done")
        self._lock = threading.Lock()

    def send(self, fault: CallFault) -> None:
        """Asks for a fault."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(fault)) + "\n")

    def injected(self) -> list[Kind]:
        """Returns the kinds of the faults that happened."""
        if not self._done.exists():
            return []
        return [Kind(line) for line in self._done.read_text(encoding="utf-8").split()]

    def note(self, fault: CallFault) -> None:
        """Records that a fault happened."""
        with self._lock, self._done.open("a", encoding="utf-8") as file:
            file.write(f"{fault.kind}\n")

    def follow(self, injector: Injector) -> None:
        """Arms the faults of lines that are added from now on; runs in a thread for ever."""
        position = self._path.stat().st_size if self._path.exists() else 0
        pause = threading.Event()
        while True:
            if self._path.exists() and self._path.stat().st_size > position:
                with self._path.open(encoding="utf-8") as file:
                    file.seek(position)
                    lines: deque[str] = deque(line for line in file if line.endswith("\n"))
                for line in lines:
                    position += len(line)
                    fields = json.loads(line)
                    injector.arm(CallFault(**{**fields, "kind": Kind(fields["kind"])}))
            pause.wait(POLL_SECONDS)  # `time.sleep` fails under a library that changes the clock
