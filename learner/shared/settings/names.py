"""Names that become file names: behaviors and run ids."""

from __future__ import annotations

MAX_NAME_CHARACTERS = 128
MAX_FOLDER_BYTES = 200


def name_problem(name: str) -> str | None:
    """Returns why a name cannot be that of a behavior, which becomes a folder, or None if it can.

    Behavior names also arrive over the network, so this check must withstand hostile names.
    """
    if not name.strip():
        return "is empty"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"has {len(name)} characters; at most {MAX_NAME_CHARACTERS} are allowed"
    if name.startswith(".") or name != name.strip():
        return "begins with a dot, or begins or ends with a space"
    bad = sorted({character for character in name if character in '/\\:*?"<>|' or not character.isprintable()})
    if bad:
        return f"contains {' '.join(repr(character) for character in bad)}, which cannot be part of a file name"
    return None


def run_id_problem(run_id: str) -> str | None:
    """Returns why a text cannot name a run, or None if it can: folders below the results folder, separated by ``/``.

    As in ML-Agents, any other character is allowed that can be printed; the run must stay within the results folder.
    """
    parts = run_id.split("/")
    if not all(parts):
        return "is empty, or begins or ends with /, or has // in it"
    if any(part in (".", "..") for part in parts):
        return "has . or .. in it, which would leave the results folder"
    if not run_id.isprintable():
        return "contains a character that cannot be printed"
    if max(len(part.encode("utf-8", "replace")) for part in parts) > MAX_FOLDER_BYTES:
        return f"has a part of more than {MAX_FOLDER_BYTES} bytes"
    return None


def without_team(behavior_id: str) -> str:
    """Returns the behavior name of a behavior id: ``Striker?team=1`` is ``Striker``."""
    return behavior_id.split("?", maxsplit=1)[0]
