"""The resolved settings as documents: for the run folder, for ML-Agents' tools, for people."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from learner.settings.base import Path, Tree, Value
from learner.settings.load import LoadedRun
from learner.settings.options import RunOptions

MASK = "**********"
"""Stands for a secret wherever settings are shown or written."""


def resolved_mlagents_json(options: RunOptions) -> Tree:
    """Returns the complete settings with ML-Agents' keys and nesting, and Rollcast's own keys beside them."""
    tree: Tree = options.model_dump(mode="json")
    return tree


def effective_document(loaded: LoadedRun) -> Tree:
    """Returns what is written into the run folder as ``configuration.yaml``: complete, secrets masked.

    Reading it back gives the same settings.
    """
    return _masked(resolved_mlagents_json(loaded.options), loaded.sources, ())


def sources_document(loaded: LoadedRun) -> dict[str, str]:
    """Returns what is written as ``configuration_sources.json``: the source of each value by its dotted path."""
    return dict(loaded.sources)


def to_yaml(document: Mapping[str, Value]) -> str:
    """Returns a document as YAML, keys in the order of the document."""
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    return text


def _masked(tree: Tree, sources: Mapping[str, str], path: Path) -> Tree:
    masked: Tree = {}
    for key, value in tree.items():
        here = (*path, key)
        if isinstance(value, dict):
            masked[key] = _masked(value, sources, here)
        else:
            masked[key] = MASK if sources.get(".".join(here), "").startswith("secret ") else value
    return masked
