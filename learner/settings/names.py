"""Names that become file names: behaviors and run ids."""

from __future__ import annotations

MAX_NAME_CHARACTERS = 128


def name_problem(name: str) -> str | None:
    """Returns why a name cannot be the name of a results folder, or None if it can.

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


def without_team(behavior_id: str) -> str:
    """Returns the behavior name of a behavior id: ``Striker?team=1`` is ``Striker``."""
    return behavior_id.split("?", maxsplit=1)[0]
