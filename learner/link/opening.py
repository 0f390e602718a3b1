"""Messages with which a run begins: the service describes the start, and the trainers answer what it continues from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollcast.v1 import policy_pb2

from learner.shared.exits import ExitCode
from learner.shared.observe.address import BoundAddresses
from learner.shared.settings.load import LoadedRun


@dataclass(frozen=True, slots=True)
class Hello:
    """Describes the start to a process of trainers.

    Attributes:
        loaded: The settings and their sources.
        folder: The run folder, which the service has locked.
        resuming: Whether the run continues from its run state.
        initialize_from: Folder of the run whose weights this run starts from; None for none.
        directory: The service's working folder, in which relative paths begin; None if the process was started there.
        is_again: Whether trainers of this start of the service have died, so that actors wait for others.
    """

    loaded: LoadedRun
    folder: Path
    resuming: bool
    initialize_from: Path | None
    directory: Path | None = None
    is_again: bool = False


@dataclass(frozen=True, slots=True)
class Check(Hello):
    """Asks whether a run can start, before its folder is opened; the reply is `Checked` or `NotOpened`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Reports that nothing prevents the start."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Reports that the trainers' side is ready, and what the service continues from.

    Attributes:
        generation: Number of this start, already written to disk.
        seed: Seed of the run.
        device: The training device.
        assignment: First assignment of the actors; None without lessons.
        books: State of behaviors, ledger and sessions of the resumed run; None for a new run.
        status: Clocks, curves and the last statistics of the trainers in the resumed run.
        trained: Behaviors with a trainer in the resumed run.
    """

    generation: int
    seed: int
    device: str
    assignment: policy_pb2.Assignment | None = None
    books: Mapping[str, Any] | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    trained: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NotOpened:
    """Reports why a process of trainers does not start; it ends.

    Attributes:
        exit_code: Exit code of the command; OK if a run in lock-step has nothing left to train.
        message: Last line of the command's output.
        details: Every problem found, one line each, if there are several.
    """

    exit_code: ExitCode
    message: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """Starts the trainers, because the service listens.

    Attributes:
        bound: The learner's addresses.
    """

    bound: BoundAddresses


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Ends the run without asking for results, because of an error of the service.

    Attributes:
        error: The error in one line.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Logged:
    """Passes on a log line of a process of trainers.

    Attributes:
        level: Its level, as ``info``.
        event: The event.
        fields: Its fields, plain values; a traceback is text in ``exception``.
    """

    level: str
    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)
