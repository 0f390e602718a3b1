"""The folder of a run: where everything is, who may use it, and how often it was started.

::

    results/<run_id>/configuration.yaml, configuration_sources.json   the resolved settings and where each came from
    results/<run_id>/generation                                        how often a learner has started here
    results/<run_id>/run_state.pt, run_state.previous.pt               what a restart goes on from
    results/<run_id>/<Behavior>.onnx                                   the model, at the end
    results/<run_id>/<Behavior>/<Behavior>-<step>.pt, .onnx            checkpoints; checkpoint.pt is the newest
    results/<run_id>/<Behavior>/last_replay_buffer.npz                 replay memory, where it is to be saved
    results/<run_id>/<Behavior>/stats.csv, events.out.tfevents.*       statistics
    results/<run_id>/run_logs/training_status.json                     their list, lessons, ratings
    results/<run_id>/versions.json, events.jsonl, logs/                what it was made with, what happened, the log
    results/<run_id>/progress.json, summary.json                       how far it is, what it came to
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import structlog

from learner.checkpoints.lock import FolderLock
from learner.checkpoints.names import (
    CONFIGURATION,
    GENERATION,
    PREVIOUS_RUN_STATE,
    RUN_STATE,
    SOURCES,
    holds_a_run,
    safe_name,
)
from learner.common.exits import ExitCode, UserError
from learner.common.files import WriteFailed, read_regular, remove_leftovers, write_file
from learner.settings.base import Value
from learner.settings.load import to_yaml
from learner.settings.names import name_problem

_STATISTICS = ("events.out.*", "stats.csv", "last_replay_buffer*.npz")
"""What another run's statistics, or its experience, would be mixed up with."""
_MAX_GENERATION_BYTES = 4096
_MAX_GENERATION_DIGITS = 18  # it travels as uint64

log = structlog.get_logger(__name__)


class RunFolder:
    """The folder of a run, locked until it is closed; made by `open_run_folder`.

    Args:
        path: the folder.
        lock: the lock on it.
        resuming: whether this start goes on from ``run_state.pt``.
        initialize_from: the folder of the run whose weights this one starts from, or None.
    """

    def __init__(self, path: Path, lock: FolderLock, *, resuming: bool, initialize_from: Path | None) -> None:
        self.path = path
        self.resuming = resuming
        self.initialize_from = initialize_from
        self._lock = lock

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.path.name

    @property
    def run_state(self) -> Path:
        """The newest recovery checkpoint."""
        return self.path / RUN_STATE

    @property
    def previous_run_state(self) -> Path:
        """The one before it."""
        return self.path / PREVIOUS_RUN_STATE

    @property
    def run_logs(self) -> Path:
        """The folder of the status file and of logs; made here."""
        return _made(self.path / "run_logs")

    @property
    def training_status(self) -> Path:
        """ML-Agents' list of checkpoints, lessons and ratings."""
        return self.path / "run_logs" / "training_status.json"

    def behavior(self, name: str) -> Path:
        """Returns the folder of a behavior's checkpoints and TensorBoard files; made here."""
        return _made(self.behavior_place(name))

    def behavior_place(self, name: str) -> Path:
        """Returns where `behavior` is, whether it is there or not."""
        return self.path / safe_name(name)

    def checkpoint(self, name: str, step: int, suffix: str) -> Path:
        """Returns ``<Behavior>/<Behavior>-<step><suffix>``."""
        return self.behavior(name) / f"{safe_name(name)}-{step}{suffix}"

    def newest_checkpoint(self, name: str) -> Path:
        """Returns ``<Behavior>/checkpoint.pt``."""
        return self.behavior(name) / "checkpoint.pt"

    def final_model(self, name: str) -> Path:
        """Returns ``<Behavior>.onnx``."""
        return self.path / f"{safe_name(name)}.onnx"

    def next_generation(self, at_least: int = 0) -> int:
        """Counts this start, and returns its number; it is on the disk before this returns.

        Args:
            at_least: the generation of the loaded state; the result is larger, even if the file was lost.

        Raises:
            UserError: the file cannot be read or written.
        """
        path = self.path / GENERATION
        generation = max(_read_generation(path), at_least) + 1
        try:
            write_file(path, f"{generation}\n".encode("ascii"))
        except WriteFailed as error:
            raise _cannot_write(error) from error
        return generation

    def write_configuration(self, document: Mapping[str, Value], sources: Mapping[str, str]) -> None:
        """Writes the resolved settings, and where each value came from.

        Raises:
            UserError: they cannot be written.
        """
        try:
            write_file(self.path / CONFIGURATION, to_yaml(document).encode("utf-8"))
            write_file(self.path / SOURCES, f"{json.dumps(dict(sources), indent=2, ensure_ascii=False)}\n".encode())
        except WriteFailed as error:
            raise _cannot_write(error) from error

    def close(self) -> None:
        """Lets another learner use the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_run_folder(
    results_dir: Path | str,
    run_id: str,
    *,
    resume: bool | Literal["auto"] = False,
    force: bool = False,
    initialize_from: str | None = None,
) -> RunFolder:
    """Opens or makes the folder of a run, and locks it.

    A folder in which nothing was trained or saved (`holds_a_run`) counts as new.

    Args:
        results_dir: the folder of all runs.
        run_id: the name of the run.
        resume: go on with the run, which must be there; ``"auto"``: if it is there.
        force: start anew in a folder that holds a run. Its files stay, but for statistics; its recovery state is
            kept as ``run_state.replaced.pt``, so that a later resume cannot take it for the new run's.
        initialize_from: another run whose weights this one starts from; without effect where a run is resumed.

    Raises:
        UserError: ``RUN_FOLDER_EXISTS``, ``NOTHING_TO_RESUME``, or ``RUN_FILE`` for names and rights.
    """
    path, source = _named(Path(results_dir), run_id, resume=resume, force=force, initialize_from=initialize_from)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(lock.release)
            resuming = _decide(path, resume=resume, force=force)
            _clean(path, resuming=resuming, force=force)
            on_failure.pop_all()
    except OSError as error:
        raise _cannot_use(path, error) from error
    if resuming and source is not None:
        log.info("the run is resumed, so initialize_from has no effect", run_id=run_id)
    return RunFolder(path, lock, resuming=resuming, initialize_from=None if resuming else source)


def check_run_folder(
    results_dir: Path | str,
    run_id: str,
    *,
    resume: bool | Literal["auto"] = False,
    force: bool = False,
    initialize_from: str | None = None,
) -> None:
    """Looks whether `open_run_folder` would take these arguments; changes nothing.

    Raises:
        UserError: it would not; another learner that runs there is found by `open_run_folder` only.
    """
    path, _ = _named(Path(results_dir), run_id, resume=resume, force=force, initialize_from=initialize_from)
    try:
        if path.exists():
            _decide(path, resume=resume, force=force)
    except OSError as error:
        raise _cannot_use(path, error) from error


def _named(
    root: Path, run_id: str, *, resume: bool | Literal["auto"], force: bool, initialize_from: str | None
) -> tuple[Path, Path | None]:
    """Returns the folder of a run and of the one it starts from, where the names are sound and there is what must be."""
    path = _child(root, run_id, "--run-id")
    if force and resume:
        raise UserError(ExitCode.USAGE, "--force (start anew) and --resume (go on) contradict each other: give one")
    if resume is True and not path.is_dir():
        raise UserError(ExitCode.NOTHING_TO_RESUME, f"there is no run {run_id!r} in {root}{_runs_there(root)}")
    return path, None if initialize_from is None else _source_run(root, initialize_from)


def _decide(path: Path, *, resume: bool | Literal["auto"], force: bool) -> bool:
    """Says whether to resume; raises where the flags do not fit what is there."""
    has_state = (path / RUN_STATE).exists() or (path / PREVIOUS_RUN_STATE).exists()
    if resume == "auto":
        return has_state
    if resume:
        if not has_state:
            message = f"{path} holds no {RUN_STATE} to go on from: start it anew with --force, or use --resume=auto"
            raise UserError(ExitCode.NOTHING_TO_RESUME, message)
        return True
    if not force and holds_a_run(path):
        message = (
            f"{path} already holds a run: go on with --resume, start anew with --force, or choose another --run-id"
        )
        raise UserError(ExitCode.RUN_FOLDER_EXISTS, message)
    return False


def _clean(path: Path, *, resuming: bool, force: bool) -> None:
    for folder in (path, *(entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink())):
        remove_leftovers(folder)
        if force:
            for statistics in (path for pattern in _STATISTICS for path in folder.glob(pattern)):
                statistics.unlink(missing_ok=True)
    if force:
        (path / PREVIOUS_RUN_STATE).unlink(missing_ok=True)
        if (path / RUN_STATE).exists():
            (path / RUN_STATE).replace(path / "run_state.replaced.pt")
    elif not resuming:  # a state in which nothing was trained: a later resume shall not take it for the new run's
        for name in (RUN_STATE, PREVIOUS_RUN_STATE):
            (path / name).unlink(missing_ok=True)


def _child(root: Path, name: str, option: str) -> Path:
    problem = name_problem(name)
    if problem is not None:
        raise UserError(ExitCode.RUN_FILE, f"{option} {name!r} {problem}; it is the name of a folder in {root}")
    return root / name


def _source_run(root: Path, run_id: str) -> Path:
    path = _child(root, run_id, "--initialize-from")
    if not path.is_dir():
        message = f"--initialize-from names the run {run_id!r}, but it is not in {root}{_runs_there(root)}"
        raise UserError(ExitCode.NOTHING_TO_RESUME, message)
    return path


def _runs_there(root: Path) -> str:
    if not root.is_dir():
        return " (that folder does not exist; check --results-dir)"
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and name_problem(entry.name) is None)
    if not names:
        return " (it holds no runs; check --results-dir)"
    return f" (it holds {', '.join(names[:10])}{', ...' if len(names) > 10 else ''})"


def _read_generation(path: Path) -> int:
    try:
        text = read_regular(path, _MAX_GENERATION_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return 0
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text.isdecimal() or len(text) > _MAX_GENERATION_DIGITS:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"{path} shall hold one number, how often this run was started, and does not: write one into it that is "
            "larger than any before (the learner logs it at each start), or choose another --run-id",
        )
    return int(text)


def _cannot_use(path: Path, error: OSError) -> UserError:
    message = f"cannot use the run folder {path}: {error.strerror}; choose another with --results-dir"
    return UserError(ExitCode.RUN_FILE, message)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WriteFailed(folder, error) from error
    return folder


def _cannot_write(error: WriteFailed) -> UserError:
    return UserError(ExitCode.RUN_FILE, f"{error}: make room, or choose another folder with --results-dir")
