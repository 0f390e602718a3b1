"""Says for every value of a run's settings where it came from."""

from __future__ import annotations

from collections.abc import Mapping

from learner.settings.base import Path, Tree, Value
from learner.settings.layers import leaves
from learner.settings.run import RunOptions
from learner.settings.trainer import TrainerSettings


def sources_of(options: RunOptions, origins: Mapping[Path, str]) -> dict[str, str]:
    """Returns the source of each value of the resolved settings, by its dotted path.

    Args:
        options: the settings.
        origins: where each written value came from, by its path in the run file.
    """
    tree: Tree = options.model_dump(mode="json")
    return {".".join(path): _source(path, tree, origins) for path in leaves(tree)}


def _source(path: Path, tree: Tree, origins: Mapping[Path, str]) -> str:
    if path in origins:
        return origins[path]
    if path[0] == "environment_parameters" and len(path) > 1:  # whose spellings differ from the resolved form
        return next(origin for written, origin in origins.items() if written[:2] == path[:2])
    if path[0] == "behaviors" and ("default_settings", *path[2:]) in origins:
        return "default_settings"
    return "derived" if _is_derived(path, tree) else "default"


def _is_derived(path: Path, tree: Tree) -> bool:
    """Says whether a trainer's unwritten value differs from its default, for it follows from others."""
    block = path[: {"behaviors": 2, "default_settings": 1}.get(path[0], len(path))]
    below = path[len(block) :]
    trainer_type = _at(tree, (*block, "trainer_type"))
    if not below or not isinstance(trainer_type, str):
        return False
    default = _at(TrainerSettings(trainer_type=trainer_type).model_dump(mode="json"), below)
    return default is not None and default != _at(tree, path)


def _at(tree: Value, path: Path) -> Value:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree
