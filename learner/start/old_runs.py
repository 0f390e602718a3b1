"""Removes runs that are no longer wanted."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Final

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.lock import FolderLock
from learner.start.list_runs import RunRow, list_runs, table

_DAY_SECONDS: Final = 86400.0


def old_runs_text(results_dir: Path, days: float, *, is_meant: bool, as_json: bool) -> str:
    """Returns the output of `rollcast runs --remove-older-than`; arguments and errors as for `remove_old_runs`."""
    rows = remove_old_runs(results_dir, days=days, is_meant=is_meant)
    if as_json:
        return json.dumps([asdict(row) for row in rows], indent=2, allow_nan=False)
    if not rows:
        return f"no run in {results_dir} is older than {days:g} days"
    ending = "removed" if is_meant else "add --yes to remove them"
    return f"{table(rows)}\n{len(rows)} runs: {ending}"


def remove_old_runs(results_dir: Path, *, days: float, is_meant: bool) -> list[RunRow]:
    """Removes runs that no learner has and whose files were last written so many days ago; returns them.

    Folders of other programs are never touched, whatever they are called.

    Args:
        results_dir: Folder of all runs.
        days: Age.
        is_meant: False only tells which they are.

    Raises:
        UserError: The folder cannot be read, or a run not removed.
    """
    old = [
        row
        for row in list_runs(results_dir)
        if row.generation and row.age_seconds is not None and row.age_seconds >= days * _DAY_SECONDS
    ]
    return [
        row
        for row in old
        if not FolderLock.is_held(results_dir / row.run_id) and _is_removed(results_dir, row, is_meant)
    ]


def _is_removed(results_dir: Path, row: RunRow, is_meant: bool) -> bool:
    if not is_meant:
        return True
    folder = results_dir / row.run_id
    hidden = results_dir / f".removed-{secrets.token_hex(4)}"
    try:
        lock = FolderLock(folder)
    except (OSError, UserError):  # a learner has just started
        return False
    try:
        folder.rename(hidden)  # half of a run never lies there under its name
        shutil.rmtree(hidden)
    except OSError as error:
        raise UserError(ExitCode.NOT_SAVED, f"{folder} cannot be removed ({error.strerror})") from None
    finally:
        lock.release()
    return True
