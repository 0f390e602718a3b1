"""The operator's client: finds a running learner and calls its ControlService. Imports no torch."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlsplit

import grpc
from rollcast.channels import channel_options
from rollcast.errors import WireError, from_rpc_error
from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.v1 import control_pb2, control_pb2_grpc

from learner.common.exits import ExitCode, UserError
from learner.observe.address import find_running, page_url
from learner.web.operator_token import TOKEN_FILE, read_token

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


CONNECT_SECONDS: Final = 2.0


def page_link(run_id: str | None, results_dir: Path) -> str:
    """Returns the address of the page with the operator's token behind ``#``, which a browser sends to nobody.

    Where the token was given in a file of the user's, the link is without it: the page asks.

    Args:
        run_id: the run; None takes the only running one.
        results_dir: where run folders are.

    Raises:
        UserError: no learner runs there, it does not answer, serves no page, or keeps its token from this user.
    """
    folder, addresses = find_running(run_id, results_dir)
    if not addresses.http:
        raise UserError(
            ExitCode.UNREACHABLE, f"the learner of {folder} serves no page; start it with rollcast.http: true"
        )
    url = page_url(addresses.http)
    _require_answer(url)
    token = read_token(folder)
    if token is not None:
        return f"{url}#token={quote(token.reveal(), safe='')}"
    if (folder / TOKEN_FILE).exists():
        raise UserError(
            ExitCode.UNREACHABLE,
            f"{folder / TOKEN_FILE} is for the learner's user alone; the page without buttons is at {url}",
        )
    return url


def _require_answer(url: str) -> None:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), CONNECT_SECONDS).close()
    except OSError:
        raise UserError(
            ExitCode.UNREACHABLE, f"no learner answers at {url}; if it was killed, start it again with --resume"
        ) from None
