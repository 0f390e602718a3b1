"""The folder of a run: the locations of its files, its lock, and its number of starts.

::

    results/<run_id>/configuration.yaml, configuration_sources.json   the resolved settings and the source of each
    results/<run_id>/generation                                        number of starts of a learner here
    results/<run_id>/run_state.pt, run_state.previous.pt               the state that a restart continues from
    results/<run_id>/received_steps                                    received steps, newer than the run state
    results/<run_id>/session_key                                       the secret of session ids, for its owner only
    results/<run_id>/<Behavior>.onnx                                   the model, at the end
    results/<run_id>/<Behavior>/<Behavior>-<step>.pt, .onnx            checkpoints; checkpoint.pt is the newest
    results/<run_id>/<Behavior>/last_replay_buffer.npz                 replay memory, if it is saved
    results/<run_id>/<Behavior>/stats.csv, events.out.tfevents.*       statistics
    results/<run_id>/run_logs/training_status.json                     their list, lessons, ratings
    results/<run_id>/versions.json, events.jsonl, logs/                versions used, events, the log
    results/<run_id>/progress.json, summary.json                       progress and result
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

import structlog
from google.protobuf.message import DecodeError
from rollcast.errors import WireError
from rollcast.files import read_regular

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, remove_leftovers, sync_folder, write_file
from learner.shared.platform import is_read_only
from learner.shared.runfolder.foreign import foreign_run
from learner.shared.runfolder.lock import FolderLock
from learner.shared.runfolder.names import (
    CONFIGURATION,
    GENERATION,
    NEWEST,
    PREVIOUS_RUN_STATE,
    REPLACED_RUN_STATE,
    RUN_STATE,
    SOURCES,
    holds_a_run,
    safe_name,
)
from learner.shared.runfolder.received import RECEIVED
from learner.shared.saved_values import reason
from learner.shared.settings.base import Value
from learner.shared.settings.load import to_yaml
from learner.shared.settings.names import run_id_problem

_STATISTICS = ("events.out.*", "stats.csv", "last_replay_buffer*.npz")
"""Statistics or experience of another run, which must not be mixed with a new one."""
_MAX_GENERATION_BYTES = 4096
_MAX_GENERATION_DIGITS = 18  # it is sent as uint64

log = structlog.get_logger(__name__)
NO_SENSE: Final = (
    ArithmeticError, AttributeError, DecodeError, LookupError, RuntimeError, TypeError, ValueError, WireError
)  # fmt: skip
"""Errors raised for a readable run state that no learner wrote."""


class RunFolder:
    """The folder of a run, locked until closed; created by `open_run_folder`.

    Args:
        path: The folder.
        lock: Lock on the folder; None if another process of this learner holds it.
        run_id: Name of the run, relative to the folder of all runs.
        resuming: Whether this start continues from ``run_state.pt``.
        initialize_from: Folder of the run whose weights this run starts from, or None.

    Attributes:
        is_superseded: Whether `require_newest` has found a later start of a learner.
    """

    def __init__(
        self, path: Path, lock: FolderLock | None, *, run_id: str, resuming: bool, initialize_from: Path | None
    ) -> None:
        self.path = path
        self.run_id = run_id
        self.resuming = resuming
        self.initialize_from = initialize_from
        self._lock = lock
        self._generation: int | None = None
        self.is_superseded = False

    def resume(self) -> None:
        """Lets the next start in this folder continue from what was saved, if anything was."""
        if _has_state(self.path):
            self.resuming, self.initialize_from = True, None

    @property
    def run_state(self) -> Path:
        """Path of the newest recovery checkpoint."""
        return self.path / RUN_STATE

    @property
    def previous_run_state(self) -> Path:
        """Path of the recovery checkpoint before it."""
        return self.path / PREVIOUS_RUN_STATE

    @property
    def run_logs(self) -> Path:
        """Folder of the status file and of logs; created here."""
        return _made(self.path / "run_logs")

    @property
    def training_status(self) -> Path:
        """Path of ML-Agents' list of checkpoints, lessons and ratings."""
        return self.path / "run_logs" / "training_status.json"

    def behavior(self, name: str) -> Path:
        """Returns the folder of a behavior's checkpoints and TensorBoard files; created here."""
        return _made(self.behavior_place(name))

    def behavior_place(self, name: str) -> Path:
        """Returns the path of `behavior` without creating it."""
        return self.path / safe_name(name)

    def checkpoint(self, name: str, step: int, suffix: str) -> Path:
        """Returns ``<Behavior>/<Behavior>-<step><suffix>``."""
        return self.behavior(name) / f"{safe_name(name)}-{step}{suffix}"

    def newest_checkpoint(self, name: str) -> Path:
        """Returns ``<Behavior>/checkpoint.pt``."""
        return self.behavior(name) / NEWEST

    def final_model(self, name: str) -> Path:
        """Returns ``<Behavior>.onnx``."""
        return self.path / f"{safe_name(name)}.onnx"

    def next_generation(self, at_least: int = 0) -> int:
        """Counts this start and returns its number, already written to disk.

        Args:
            at_least: Generation of the loaded state; the result is larger, even if the file was lost.

        Raises:
            UserError: The file cannot be read or written.
        """
        path = self.path / GENERATION
        generation = max(_read_generation(path), at_least) + 1
        try:
            write_file(path, f"{generation}\n".encode("ascii"))
        except WriteFailed as error:
            raise _cannot_write(error) from error
        self._generation = generation
        return generation

    def note_generation(self, generation: int) -> None:
        """Notes the number that another process of this learner got from `next_generation`."""
        self._generation = generation

    def require_newest(self) -> None:
        """Checks that no other learner was started here since `next_generation`; call it before each write.

        The lock excludes this, but some network file systems have none, and a lock is lost when its server restarts. A
        learner that is started within the milliseconds between this check and the write is not noticed until the next
        check.

        Raises:
            UserError: ``SUPERSEDED``: a later start was found.
        """
        if self._generation is None:
            return
        if not self.is_superseded:
            try:
                newest = _read_generation(self.path / GENERATION)
            except UserError:  # unreadable for now, or damaged: nothing says that there is another learner
                return
            self.is_superseded = newest > self._generation
        if self.is_superseded:
            raise UserError(
                ExitCode.SUPERSEDED,
                f"another learner was started in {self.path} after this one (generation {self._generation}): this one has "
                "stopped and written nothing more; let only one learner use a run folder",
            )

    def write_configuration(self, document: Mapping[str, Value], sources: Mapping[str, str]) -> None:
        """Writes the resolved settings and the source of each value.

        Raises:
            UserError: The files cannot be written.
        """
        try:
            write_file(self.path / CONFIGURATION, to_yaml(document).encode("utf-8"))
            write_file(self.path / SOURCES, f"{json.dumps(dict(sources), indent=2, ensure_ascii=False)}\n".encode())
        except WriteFailed as error:
            raise _cannot_write(error) from error

    def close(self) -> None:
        """Releases the folder for other learners."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class FoundFolder(NamedTuple):
    """The folder that a start would use.

    Attributes:
        path: The folder; possibly not existing yet.
        resuming: Whether the run is resumed.
        source: Folder of the run whose networks it starts with, or None.
    """

    path: Path
    resuming: bool
    source: Path | None


def open_run_folder(
    results_dir: Path | str,
    run_id: str,
    *,
    resume: bool | Literal["auto"] = False,
    force: bool = False,
    initialize_from: str | None = None,
) -> RunFolder:
    """Opens or creates the folder of a run and locks it.

    A folder in which nothing was trained or saved (`holds_a_run`) counts as new. One with the checkpoints of another
    program is refused before anything is written, unless ``force`` is given.

    Args:
        results_dir: Folder of all runs.
        run_id: Name of the run.
        resume: True continues the run, which must exist; ``"auto"`` continues it if it exists.
        force: Starts a new run in a folder that holds a run. Its files stay, except for statistics; its recovery state
            is kept as ``run_state.replaced.pt``, so that a later resume cannot mistake it for that of the new run.
        initialize_from: Another run whose weights this one starts from; has no effect if a run is resumed.

    Raises:
        UserError: ``RUN_FOLDER_EXISTS``, ``NOTHING_TO_RESUME``, or ``RUN_FILE`` for names and permissions.
    """
    path, source = _named(Path(results_dir), run_id, resume=resume, force=force, initialize_from=initialize_from)
    try:
        _make(path)
        lock = FolderLock(path)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(lock.release)
            resuming = _decide(path, resume=resume, force=force)
            _clean(path, resuming=resuming, force=force)
            if not resume:  # a run that was killed before its first state may have acked steps: "auto" continues it
                (path / RECEIVED).unlink(missing_ok=True)
            on_failure.pop_all()
    except OSError as error:
        raise _cannot_use(path, error) from error
    if resuming and source is not None:
        log.info("initialize_from_ignored", run_id=run_id, reason="the run is resumed")
    return RunFolder(path, lock, run_id=run_id, resuming=resuming, initialize_from=None if resuming else source)


def _make(path: Path) -> None:
    """Creates a folder and those above it, with their names on disk: a run is not lost with its folder's name.

    Raises:
        OSError: A folder cannot be created.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def check_run_folder(
    results_dir: Path | str,
    run_id: str,
    *,
    resume: bool | Literal["auto"] = False,
    force: bool = False,
    initialize_from: str | None = None,
) -> FoundFolder:
    """Checks whether `open_run_folder` would accept these arguments; changes nothing.

    Raises:
        UserError: It would refuse them. Only `open_run_folder` finds another learner that runs there.
    """
    path, source = _named(Path(results_dir), run_id, resume=resume, force=force, initialize_from=initialize_from)
    try:
        resuming = path.exists() and _decide(path, resume=resume, force=force)
        _require_writable(path)
    except OSError as error:
        raise _cannot_use(path, error) from error
    return FoundFolder(path, resuming, None if resuming else source)


def _require_writable(path: Path) -> None:
    """Checks that a folder can be created and written to.

    Raises:
        OSError: The folder cannot be created or written to.
    """
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
    if not os.access(nearest, os.W_OK | os.X_OK):
        code = errno.EROFS if is_read_only(nearest) else errno.EACCES
        raise OSError(code, os.strerror(code), str(nearest))


def _named(
    root: Path, run_id: str, *, resume: bool | Literal["auto"], force: bool, initialize_from: str | None
) -> tuple[Path, Path | None]:
    """Returns the folders of a run and of the run it starts from, after checking names and existence."""
    path = _child(root, run_id, "--run-id")
    if force and resume:
        raise UserError(
            ExitCode.USAGE, "--force (start over) and --resume (continue) exclude each other: give only one"
        )
    if resume is True and not path.is_dir():
        raise UserError(
            ExitCode.NOTHING_TO_RESUME,
            f"there is no run {run_id!r} in {root}{_runs_there(root)}; to start it, leave --resume out",
        )
    if not force:
        _refuse_foreign(path, resume=resume)
    return path, None if initialize_from is None else _source_run(root, initialize_from)


def _refuse_foreign(path: Path, *, resume: bool | Literal["auto"]) -> None:
    """Checks that a folder is not another program's, before anything is written there."""
    try:
        program = foreign_run(path)
    except OSError as error:
        raise _cannot_use(path, error) from error
    if program is not None:
        raise UserError(
            ExitCode.NOTHING_TO_RESUME if resume is True else ExitCode.RUN_FOLDER_EXISTS,
            f"{path} holds a run of {program}, which Rollcast cannot continue and does not touch: choose another --run-id "
            "or --results-dir (--force would write there, over files of the same name)",
        )


def _decide(path: Path, *, resume: bool | Literal["auto"], force: bool) -> bool:
    """Returns whether to resume; raises if the flags do not fit the folder."""
    has_state = _has_state(path)
    if resume == "auto":
        return has_state
    if resume:
        if not has_state:
            message = f"{path} holds no {RUN_STATE} to resume from: start over with --force, or use --resume=auto"
            raise UserError(ExitCode.NOTHING_TO_RESUME, message)
        return True
    if not force and holds_a_run(path):
        message = (
            f"{path} already holds a run: continue with --resume, start over with --force, or choose another --run-id"
        )
        raise UserError(ExitCode.RUN_FOLDER_EXISTS, message)
    return False


def _has_state(path: Path) -> bool:
    return (path / RUN_STATE).exists() or (path / PREVIOUS_RUN_STATE).exists()


def _clean(path: Path, *, resuming: bool, force: bool) -> None:
    for folder in (path, *(entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink())):
        remove_leftovers(folder)
        if force:
            for statistics in (path for pattern in _STATISTICS for path in folder.glob(pattern)):
                statistics.unlink(missing_ok=True)
    if force:
        (path / PREVIOUS_RUN_STATE).unlink(missing_ok=True)
        if (path / RUN_STATE).exists():
            (path / RUN_STATE).replace(path / REPLACED_RUN_STATE)
    elif not resuming:  # a state without training: a later resume must not mistake it for that of the new run
        for name in (RUN_STATE, PREVIOUS_RUN_STATE):
            (path / name).unlink(missing_ok=True)


def _child(root: Path, name: str, option: str) -> Path:
    problem = run_id_problem(name)
    if problem is not None:
        raise UserError(
            ExitCode.RUN_FILE, f"{option} {name!r} {problem}; it must be a valid name for a folder in {root}"
        )
    return root / name


def _source_run(root: Path, run_id: str) -> Path:
    path = _child(root, run_id, "--initialize-from")
    if path.is_dir():
        return path
    given, hint = Path(run_id), ""
    if given.suffix == ".onnx":
        hint = "; an .onnx file is a model that acts and cannot be trained further"
    elif given.exists() or path.exists():
        hint = "; a run is named by its folder there, and a checkpoint (.pt) by behaviors.NAME.init_path"
    message = f"--initialize-from names the run {run_id!r}, but it is not in {root}{_runs_there(root)}{hint}"
    raise UserError(ExitCode.NOTHING_TO_RESUME, message)


def _runs_there(root: Path) -> str:
    if not root.is_dir():
        return " (that folder does not exist; check --results-dir)"
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and run_id_problem(entry.name) is None)
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
            f"{path} does not hold the number of starts of this run: write a number larger than any generation in the log, "
            "or choose another --run-id",
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
    return UserError(ExitCode.NOT_SAVED, f"{error}: {error.advice}")


@contextmanager
def must_fit(run_state: Path) -> Iterator[None]:
    """Reports in one line what is wrong with a run state loaded inside the block.

    Raises:
        UserError: The run state does not fit the run file or is damaged.
    """
    try:
        yield
    except NO_SENSE as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"{run_state} is inconsistent ({reason(error)}); restore another copy of it, or start over with --force",
        ) from error
