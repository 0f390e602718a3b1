"""Settles what a run starts from, where the settings say two things at once."""

from __future__ import annotations

from learner.settings.base import Path, Tree, Value
from learner.settings.problems import Problems

_BLOCK = "checkpoint_settings"
_TRUE_WORDS = frozenset({"true", "yes", "on", "y", "t", "1", "auto"})


def settle_start(tree: Tree, problems: Problems) -> None:
    """Settles ``resume`` against ``initialize_from``, and reads the old name ``load_model`` as ``resume``.

    The higher layer wins (the command line over the rest); within one layer ``resume`` does.
    """
    block = tree.get(_BLOCK)
    if not isinstance(block, dict):
        return
    if _is_set(block.get("load_model")) and not _is_set(block.get("resume")):
        block["resume"] = True
        problems.origins[_BLOCK, "resume"] = problems.origins.get((_BLOCK, "load_model"), "yaml")
    if not _is_set(block.get("resume")) or block.get("initialize_from") is None:
        return
    resume_rank = _rank(problems.origins.get((_BLOCK, "resume"), "yaml"))
    initialize_rank = _rank(problems.origins.get((_BLOCK, "initialize_from"), "yaml"))
    loser, winner = ("resume", "initialize_from") if initialize_rank > resume_rank else ("initialize_from", "resume")
    path: Path = (_BLOCK, loser)
    problems.warn(path, f"is dropped, because {winner} is given too")
    block[loser] = False if loser == "resume" else None


def _is_set(value: Value) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in _TRUE_WORDS)


def _rank(origin: str) -> int:
    """Returns how strong a layer is: file, secrets, environment, command line."""
    for rank, prefix in ((3, "--"), (2, "env "), (1, "secret ")):
        if origin.startswith(prefix):
            return rank
    return 0
