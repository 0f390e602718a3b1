"""Writes and finds the checkpoints of a run.

There are two kinds: the *run state*, one file for everything, from which a restarted learner continues (weights,
optimizers, ledger and sessions of one moment); and *behavior checkpoints*, one per behavior and interval, which users
keep, load into Unity, and start other runs from.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from rollcast.files import read_regular
from rollcast.text import in_one_line

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import write_file
from learner.shared.runfolder.choice import (
    BEHAVIOR_KIND,
    BEST_FILE,
    BEST_MODEL,
    BehaviorCheckpoint,
    read_behavior,
    read_initial,
)
from learner.shared.runfolder.documents import (
    BadCheckpoint,
    encode_document,
    read_document,
    saving,
)
from learner.shared.runfolder.names import NEWEST, PREVIOUS_RUN_STATE, RUN_STATE, initial_checkpoint, safe_name
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.runfolder.status import BestEntry, CheckpointEntry, TrainingStatus
from learner.shared.saved_values import count, reason, shown

FIRST_INTERVAL_SECONDS = 1.0


class RecoverySchedule:
    """Decides when to save: after the first update, then at intervals that double from 1 s to the configured one.

    A crash early in a run, when most crashes happen, therefore costs seconds and not a minute; a run without training
    (paused, or without actors) writes nothing.

    Example::

        if schedule.is_due(updates=trainer.version):
            store.save_run_state(...)
            schedule.saved(updates=trainer.version)

    Args:
        checkpoint_seconds: Longest interval in seconds (``rollcast.checkpoint_seconds``).
        clock: Returns monotonic seconds.
    """

    def __init__(self, checkpoint_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest = checkpoint_seconds
        self._interval = min(FIRST_INTERVAL_SECONDS, checkpoint_seconds)
        self._clock = clock
        self._next_at: float | None = None
        self._saved_updates = 0

    def is_due(self, *, updates: int) -> bool:
        """Returns whether to save now.

        Args:
            updates: Completed updates of all behaviors in this process so far.
        """
        if updates <= self._saved_updates:
            return False
        return self._next_at is None or self._clock() >= self._next_at

    def saved(self, *, updates: int) -> None:
        """Records that all of ``updates`` are saved, for whatever reason; the next interval is twice as long."""
        self._saved_updates = updates
        self._next_at = self._clock() + self._interval
        self._interval = min(2.0 * self._interval, self._longest)

    def failed(self) -> None:
        """Records that saving failed; it is retried after the current interval."""
        self._next_at = self._clock() + self._interval


_RUN_STATE_KIND = "run_state"
_MAX_MODEL_BYTES = 2**31
"""Largest ONNX file, which is one protobuf message."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SavedRunState:
    """Everything a restart needs, from one moment. Plain values and tensors only (`documents.plain`).

    Attributes:
        generation: Generation of the learner that wrote it.
        ledger: `learner.service.ingest.ledger.Ledger.state_dict`.
        sessions: State of the session table.
        behaviors_table: State of the behavior table.
        trainers: State of each trainer, by behavior name.
        extra: Further state (lessons, counters), by the name of its owner.
    """

    generation: int
    ledger: Mapping[str, Any]
    sessions: Mapping[str, Any]
    behaviors_table: Mapping[str, Any]
    trainers: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)


_RUN_STATE_PARTS = ("ledger", "sessions", "behaviors_table", "trainers", "extra")


Export = Callable[[Path], object]
"""Writes a model to a path."""


def encode_behavior(behavior: str, step: int, state: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a behavior checkpoint.

    Raises:
        TypeError: Something in the state cannot be saved.
    """
    return encode_document(BEHAVIOR_KIND, {"behavior": behavior, "step": step, "state": state})


class CheckpointStore:
    """Writes, lists and finds the checkpoints of one run.

    Every method that writes raises ``UserError`` (``SUPERSEDED``) instead if another learner was started in the folder.

    Args:
        folder: The run's open folder.
        wall_clock: Returns seconds since the epoch, for the list of checkpoints.
    """

    def __init__(self, folder: RunFolder, *, wall_clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        # A new run in an old folder lists, and later deletes, only its own checkpoints.
        self.status = TrainingStatus.load(folder.training_status) if folder.resuming else TrainingStatus()
        self._wall_clock = wall_clock
        self._saved_here: dict[str, CheckpointEntry] = {}

    def save_run_state(self, state: SavedRunState) -> Path:
        """Writes the run state; the one before it is kept as ``run_state.previous.pt``.

        Raises:
            CheckpointFailed: The run state cannot be written; both old files are intact.
            TypeError: Something in the state cannot be saved.
        """
        self.folder.require_newest()
        content = {"generation": state.generation, **{part: getattr(state, part) for part in _RUN_STATE_PARTS}}
        data = encode_document(_RUN_STATE_KIND, content)
        path = self.folder.run_state
        with saving(path):
            write_file(path, data, keep=self.folder.previous_run_state, private=True)  # it has the ids of sessions
        return path

    def load_run_state(self) -> SavedRunState | None:
        """Reads the run state, or the one before it with a warning if the newest is damaged.

        Returns:
            None if there is neither.

        Raises:
            UserError: ``BAD_CHECKPOINT``: run states exist, and none can be read.
        """
        problems = []
        for path in (self.folder.run_state, self.folder.previous_run_state):
            if not path.exists():
                continue
            try:
                state = _read_run_state(path)
            except BadCheckpoint as error:
                problems.append(error)
                continue
            self._note_fallback(path, problems)
            return state
        if not problems:
            return None
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"{problems[0]}: restore a copy of it, or start over with --force"
            f" (--initialize-from=RUN starts from the weights of another run's checkpoint.pt)",
            [str(problem) for problem in problems],
        )

    def save_behavior(
        self,
        behavior: str,
        *,
        step: int,
        state: Mapping[str, Any],
        reward: float | None,
        keep_checkpoints: int,
        export: Callable[[Path], object] | None = None,
    ) -> Path:
        """Writes ``<Behavior>-<step>.pt``, its model, ``checkpoint.pt`` and the status; deletes the oldest.

        Args:
            behavior: Name of the behavior.
            step: Steps of the trainer; replaces a checkpoint of the same step.
            state: Result of the trainer's ``state_dict``.
            reward: Mean episode return since the last update; see `CheckpointEntry`.
            keep_checkpoints: Number of checkpoints to keep, with the lowest steps deleted first; 0 or less keeps all.
            export: Writes the model to the given path. A failure logs a warning and leaves no model.

        Raises:
            CheckpointFailed: A file cannot be written; older checkpoints are intact.
            TypeError: Something in the state cannot be saved.
        """
        self.folder.require_newest()
        data = encode_behavior(behavior, step, state)
        with saving(self.folder.path):
            path, model = (self.folder.checkpoint(behavior, step, suffix) for suffix in (".pt", ".onnx"))
            write_file(path, data)
            write_file(self.folder.newest_checkpoint(behavior), data)
            model.unlink(missing_ok=True)
        if export is not None:
            _export(export, model)
        entry = self._entry(step, reward, model, path)
        self._saved_here[behavior] = entry
        self._list(behavior, entry, keep_checkpoints)
        return path

    def save_best(
        self,
        behavior: str,
        data: bytes,
        *,
        step: int,
        reward: float,
        measure: str,
        revision: int,
        export: Export,
        principals: int = 0,
    ) -> Path:
        """Writes ``<Behavior>/best.pt``, its model, and the status. Retention does not delete them.

        Args:
            behavior: Name of the behavior.
            data: Result of `encode_behavior`.
            step: Steps of the trainer.
            reward: Return by which it was chosen.
            measure: See `BestEntry`.
            revision: See `BestEntry`.
            export: Writes the model to the given path.
            principals: See `BestEntry`.

        Raises:
            CheckpointFailed: The checkpoint cannot be written; the one before it is intact.
        """
        self.folder.require_newest()
        folder = self.folder.behavior(behavior)
        path, model = folder / BEST_FILE, folder / BEST_MODEL
        with saving(path):
            write_file(path, data)
            model.unlink(missing_ok=True)
        _export(export, model)
        entry = self._entry(step, reward, model, path)
        self.status.set_best(behavior, BestEntry(entry, measure, revision, principals))
        self.save_status()
        return path

    def finish_behavior(self, behavior: str) -> Path | None:
        """Copies the model of the newest checkpoint to ``<Behavior>.onnx`` and records it as the final one.

        Returns:
            The copy; None without a model.

        Raises:
            CheckpointFailed: The checkpoint cannot be written.
        """
        self.folder.require_newest()
        # A run resumed from an older state may list steps that it has not reached again.
        newest = self._saved_here.get(behavior) or next(reversed(self.status.checkpoints(behavior)), None)
        if newest is None:
            return None
        with saving(self.folder.path):
            model = self.folder.checkpoint(behavior, newest.steps, ".onnx")
            target = self.folder.final_model(behavior) if model.exists() else None
            if target is not None:
                write_file(target, read_regular(model, _MAX_MODEL_BYTES))
        files = newest.auxillary_file_paths if target is not None else ()
        final = str(target or newest.file_path)
        self.status.set_final(behavior, CheckpointEntry(newest.steps, final, newest.reward, self._wall_clock(), files))
        self.save_status()
        return target

    def save_status(self) -> None:
        """Writes ``training_status.json``.

        Raises:
            CheckpointFailed: The checkpoint cannot be written.
        """
        self.folder.require_newest()
        with saving(self.folder.training_status):
            self.status.write(self.folder.run_logs / self.folder.training_status.name)

    def load_initial(self, behavior: str, init_path: str | None = None) -> BehaviorCheckpoint | None:
        """Reads the state from which a behavior of a new run starts: another run's weights and optimizer.

        The trainer that loads the state sets its step to 0.

        Args:
            behavior: Name of the behavior.
            init_path: The setting of that name: a ``.pt`` file, or the name of such a file in the other run's folder.

        Returns:
            None if nothing was requested, or this run is resumed.

        Raises:
            UserError: ``BAD_CHECKPOINT``: the file is missing or cannot be read.
        """
        if self.folder.resuming:
            return None
        path = initial_checkpoint(behavior, init_path, self.folder.initialize_from)
        return None if path is None else read_initial(behavior, path)

    def _entry(self, step: int, reward: float | None, *files: Path) -> CheckpointEntry:
        present = [file.as_posix() for file in files if file.exists()]
        return CheckpointEntry(step, present[0], reward, self._wall_clock(), tuple(present[1:]))

    def _list(self, behavior: str, entry: CheckpointEntry, keep_checkpoints: int) -> None:
        """Adds a checkpoint to the list and removes the oldest others, including their files."""
        others = [other for other in self.status.checkpoints(behavior) if other.steps != entry.steps]
        surplus = max(len(others) + 1 - keep_checkpoints, 0) if keep_checkpoints > 0 else 0
        self.status.set_checkpoints(behavior, sorted([*others[surplus:], entry], key=lambda listed: listed.steps))
        self.save_status()
        with saving(self.folder.path):
            for old in others[:surplus]:  # after the list was written, so that it never names missing files
                for suffix in (".pt", ".onnx"):
                    self.folder.checkpoint(behavior, old.steps, suffix).unlink(missing_ok=True)

    def _note_fallback(self, used: Path, problems: list[BadCheckpoint]) -> None:
        """Moves a damaged newest state aside: the next save would otherwise replace the intact older state."""
        for problem in problems:
            aside = problem.path.with_name("run_state.damaged.pt")
            with contextlib.suppress(OSError):
                problem.path.replace(aside)
            log.warning("previous_run_state_used", reason=str(problem), used=str(used), kept=str(aside))
        if used == self.folder.previous_run_state and not problems:
            log.warning("previous_run_state_used", reason=f"{self.folder.run_state} is missing", used=str(used))


def read_run_state(folder: Path) -> SavedRunState | None:
    """Reads the run state, or the one before it, of a folder that may belong to another learner; changes nothing.

    Returns:
        None if there is neither, or none can be read.
    """
    for name in (RUN_STATE, PREVIOUS_RUN_STATE):
        with contextlib.suppress(BadCheckpoint):
            return _read_run_state(folder / name)
    return None


def last_states(folder: Path, saved: SavedRunState) -> dict[str, Any]:
    """Returns the newest state of each trainer: its part of the run state, or in lock-step a later checkpoint.

    In lock-step the run state is of a round, and training can end long after it.
    """
    if "lockstep" not in saved.extra:
        return dict(saved.trainers)
    return {name: _later(folder / safe_name(name) / NEWEST, state) for name, state in saved.trainers.items()}


def _later(path: Path, saved: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        newest = read_behavior(path).state
        return newest if count(newest, "steps_trained") > count(saved, "steps_trained") else saved
    except (BadCheckpoint, KeyError, ValueError):
        return saved


def _export(export: Callable[[Path], object], model: Path) -> None:
    try:
        export(model)
    except Exception as error:  # noqa: BLE001 - a model that cannot be exported costs the model, never the run
        log.warning("model_not_exported", file=str(model), reason=in_one_line(error))


def _read_run_state(path: Path) -> SavedRunState:
    document = read_document(path, _RUN_STATE_KIND)
    found = {part: document.get(part) for part in _RUN_STATE_PARTS}
    parts = {name: value for name, value in found.items() if isinstance(value, dict)}
    missing = [name for name in _RUN_STATE_PARTS if name not in parts]
    trainers = parts.get("trainers", {})
    missing += [f"state of the trainer of {shown(name)}" for name in trainers if not isinstance(trainers[name], dict)]
    if missing:
        raise BadCheckpoint(path, f"is incomplete (no {', '.join(missing)})")
    try:
        generation = count(document, "generation")
    except (KeyError, ValueError) as error:
        raise BadCheckpoint(path, f"is incomplete ({reason(error)})") from error
    return SavedRunState(generation, **parts)
