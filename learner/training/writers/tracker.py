"""What writers to experiment trackers share: the error of a missing package, and the kept id of a run."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from rollcast.extras import install
from rollcast.files import read_regular

from learner.shared.exits import ExitCode, UserError

_MAX_ID_BYTES = 4096
_ID = re.compile(r"[0-9a-zA-Z]{1,64}")


def not_installed(writer: str, error: ModuleNotFoundError) -> UserError:
    """Returns the error of a writer whose package is missing."""
    return UserError(
        ExitCode.MISSING_EXTRA,
        f"rollcast.stats_writers names {writer}, but the module {error.name!r} is not installed; {install(writer)}",
    )


def is_id(text: str) -> bool:
    """Returns whether a text has the form of a tracker's id."""
    return _ID.fullmatch(text) is not None


def kept_id(path: Path) -> str:
    """Returns the id that the previous start of a run has kept; empty if there is none of its form."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        kept = read_regular(path, _MAX_ID_BYTES).decode("ascii").strip()
        return kept if is_id(kept) else ""
    return ""
