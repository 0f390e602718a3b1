"""Says for every value of a run's settings where it came from."""

from __future__ import annotations

from collections.abc import Mapping

from learner.settings.base import Path, SettingsModel, Tree
from learner.settings.layers import leaves
from learner.settings.options import RunOptions


def sources_of(options: RunOptions, origins: Mapping[Path, str]) -> dict[str, str]:
    """Returns the source of each value of the resolved settings, by its dotted path.

    Args:
        options: the settings.
        origins: where each written value came from, by its path in the run file.
    """
    tree: Tree = options.model_dump(mode="json")
    return {".".join(path): _source(path, options, origins) for path in leaves(tree)}


def _source(path: Path, options: RunOptions, origins: Mapping[Path, str]) -> str:
    if path in origins:
        return origins[path]
    if path[0] == "environment_parameters" and len(path) > 1:  # whose spellings differ from the resolved form
        return next(origin for written, origin in origins.items() if written[:2] == path[:2])
    if path[0] == "behaviors" and ("default_settings", *path[2:]) in origins:
        return "default_settings"
    return "derived" if _is_derived(options, path) else "default"


def _is_derived(options: RunOptions, path: Path) -> bool:
    """Says whether a value that nobody wrote differs from its field's default, for it follows from others."""
    block: object = options
    for key in path[:-1]:
        block = block[key] if isinstance(block, dict) else getattr(block, key)
    field = type(block).model_fields.get(path[-1]) if isinstance(block, SettingsModel) else None
    if field is None:
        return False
    default: object = field.get_default(call_default_factory=True, validated_data={})
    return bool(default != getattr(block, path[-1]))
