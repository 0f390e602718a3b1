"""The operator's client: finds a running learner and calls its ControlService. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
from google.protobuf.json_format import MessageToDict
from rollcast.channels import channel_options
from rollcast.errors import WireError, from_rpc_error
from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.v1 import control_pb2, control_pb2_grpc, session_pb2

from learner.exits import ExitCode, UserError
from learner.observe.address import find_running, page_url

CALL_SECONDS = 5.0
SAVE_SECONDS = 120.0
_NOT_SAVED = frozenset({"CHECKPOINT_FAILED", "CHECKPOINT_LATE", "NOTHING_TO_SAVE"})


class Operator:
    """Calls of the ControlService at one address; use it in a `with` block.

    Every method raises UserError: UNREACHABLE if the learner does not answer or cannot do it, PROTOCOL_MISMATCH if who
    answers is no learner, NOT_SAVED if there is no checkpoint.
    """

    def __init__(self, address: str, *, page: str = "") -> None:
        self.address = address
        self.page = page
        self._channel = grpc.insecure_channel(address, options=channel_options(MAX_CHUNK_BYTES))
        self._stub = control_pb2_grpc.ControlServiceStub(self._channel)

    @classmethod
    def find(cls, control: str | None, run_id: str | None, results_dir: Path) -> Operator:
        """Returns an operator for a control address, or for the run of that name, or for the only run there is.

        Raises:
            UserError: no address was given and none, or more than one, was found.
        """
        if control is not None:
            return cls(control)
        _, addresses = find_running(run_id, results_dir)
        return cls(addresses.control, page=page_url(addresses.http))

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the channel; turns a failed call into a UserError."""
        self._channel.close()
        if isinstance(error, grpc.RpcError):
            cause = from_rpc_error(error)
            text = f"the learner at {self.address} did not do it: {cause}"
            if cause.code is grpc.StatusCode.UNAVAILABLE and not cause.reason:  # from gRPC itself, not from a learner
                text = f"no learner answers at {self.address}; if it was killed, start it again with --resume"
            raise UserError(_exit_code(cause), text) from None

    def status(self) -> control_pb2.StatusResponse:
        """Returns the state of the run."""
        return self._stub.Status(control_pb2.StatusRequest(), timeout=CALL_SECONDS)

    def pause(self) -> None:
        """Pauses the run."""
        self._stub.Pause(control_pb2.PauseRequest(), timeout=CALL_SECONDS)

    def resume(self) -> None:
        """Ends a pause."""
        self._stub.Resume(control_pb2.ResumeRequest(), timeout=CALL_SECONDS)

    def save_checkpoint(self) -> str:
        """Saves a checkpoint and returns its path on the learner's machine."""
        return self._stub.SaveCheckpoint(control_pb2.SaveCheckpointRequest(), timeout=SAVE_SECONDS).path

    def drain(self, *, final: bool) -> None:
        """Ends the run; `final` lets the actors exit too."""
        self._stub.Drain(control_pb2.DrainRequest(final=final), timeout=CALL_SECONDS)

    def accepts_actors(self) -> bool:
        """Says whether the run waits or trains, as against paused, draining or failed."""
        return self.status().state in {control_pb2.RUN_STATE_WAITING, control_pb2.RUN_STATE_TRAINING}


def _exit_code(cause: WireError) -> ExitCode:
    if cause.reason in _NOT_SAVED:
        return ExitCode.NOT_SAVED
    return ExitCode.PROTOCOL_MISMATCH if cause.code is grpc.StatusCode.UNIMPLEMENTED else ExitCode.UNREACHABLE


def status_document(status: control_pb2.StatusResponse) -> str:
    """Returns the state as JSON; zeros are written, so that every key is there."""
    document = MessageToDict(status, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return json.dumps(document, indent=2)


def render_status(status: control_pb2.StatusResponse, page: str = "") -> str:
    """Returns the state as text: the run, a block for each behavior, a line for each actor.

    Args:
        status: the state.
        page: where the status page is, if that is known.
    """
    state = control_pb2.RunState.Name(status.state).removeprefix("RUN_STATE_").lower()
    lines = [f"run {status.run_id}, generation {status.generation}: {state}, up {status.uptime_seconds:.0f} s"]
    if page:
        lines.append(f"page {page}")
    for row in status.behaviors:
        books = row.books
        mean_return = f"{row.mean_return_100:.1f}" if row.HasField("mean_return_100") else "none yet"
        lines += [
            (
                f"{row.behavior}: version {row.version}, {row.env_steps_taken} steps taken of {row.max_steps}, "
                f"{row.env_steps_per_second:.0f} a second"
            ),
            f"  mean return {mean_return} of the last 100 of {row.episodes} episodes, lag {row.mean_lag:.2f}",
            (
                f"  received {books.received} = trained {books.trained} + dropped ({_reasons(books.dropped)}) + queued "
                f"{books.queued} + lost ({_reasons(books.lost)}); duplicate {books.duplicate}; unknown sessions {books.unknown_sessions}"
            ),
        ]
    names = [row.behavior for row in status.behaviors]
    lines.extend(_actor_line(actor, names) for actor in status.actors)
    if status.last_error:
        lines.append(f"last error: {status.last_error}")
    return "\n".join(lines)


def _actor_line(actor: control_pb2.ActorStatus, names: Sequence[str]) -> str:
    """Returns who the actor is, then for each behavior the version that acts and the actor's own books."""
    link = "connected" if actor.connected else "away"
    line = (
        f"actor {actor.actor_index} {actor.actor_name}: {link}, seen {actor.last_seen_ms / 1000:.1f} s ago, "
        f"{actor.env_steps_per_second:.0f} steps a second"
    )
    versions = {report.behavior_index: report.version for report in actor.policies}
    books = {row.behavior_index: row for row in actor.books}
    for index in sorted(versions.keys() | books.keys()):
        line += f"; {names[index] if index < len(names) else index}: version {versions.get(index, 'none yet')}"
        if index in books:
            row = books[index]
            line += (
                f", produced {row.produced_steps} = acked {row.acked_steps} + unacked {row.unacked_steps} + open "
                f"{row.open_steps} + discarded ({_reasons(row.discarded)}) + dropped ({_reasons(row.dropped)})"
            )
    return line


def _reasons(counts: Iterable[session_pb2.ReasonCount]) -> str:
    return ", ".join(f"{entry.reason} {entry.steps}" for entry in counts) or "none"
