"""Describes the places in the run file, from the types of the models.

The layers (environment, ``--set``) and the check for unknown keys use this to walk the models, so that no second list
of settings is needed.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Union, get_args, get_origin

from learner.shared.settings.base import Path, SettingsModel, Value

Kind = Literal["leaf", "model", "map", "list"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the run file.

    Attributes:
        kind: A single value, a block with known keys, a map with free keys, or a list.
        nullable: Whether null may be written.
        model: The block's model; None for other kinds.
        item: Type of a map's or list's entries; None for other kinds.
        types: Types of a single value.
    """

    kind: Kind
    nullable: bool = False
    model: type[SettingsModel] | None = None
    item: object = None
    types: tuple[object, ...] = ()

    @property
    def may_be_list(self) -> bool:
        """True if a list may be written in place of a single value."""
        return any(get_origin(option) is tuple for option in self.types)


def _strip(annotation: object) -> object:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def slot_of(annotation: object) -> Slot:
    """Returns the slot for a field's annotation; ``X | None`` is a nullable X."""
    annotation = _strip(annotation)
    options: tuple[object, ...] = (annotation,)
    if get_origin(annotation) in {Union, types.UnionType}:
        options = tuple(_strip(option) for option in get_args(annotation))
    nullable = type(None) in options
    options = tuple(option for option in options if option is not type(None))
    first = options[0]
    if isinstance(first, type) and issubclass(first, SettingsModel):
        return Slot("model", nullable, model=first)
    arguments = get_args(first)
    if get_origin(first) is dict:
        return Slot("map", nullable, item=arguments[1])
    if get_origin(first) is tuple:
        return Slot("list", nullable, item=arguments[0])
    return Slot("leaf", nullable, types=options)


def slot_at(model: type[SettingsModel], raw: Value, path: Path) -> Slot | None:
    """Returns the slot of a path below a model, or None if there is none; ``raw`` decides between forms."""
    slot = Slot("model", model=model)
    for key in path:
        tree: Mapping[str, Value] = raw if isinstance(raw, dict) else {}
        if slot.kind == "model" and slot.model is not None:
            block = slot.model.model_for(tree)
            if key not in block.model_fields:
                return None
            slot = slot_of(block.annotation_for(key, tree))
        elif slot.kind == "map":
            slot = slot_of(slot.item)
        else:
            return None
        raw = tree.get(key)
    return slot


def scalar_paths(model: type[SettingsModel], prefix: Path = ()) -> Iterator[Path]:
    """Yields the path of every single value below a model, without blocks of free keys."""
    for key, field in model.model_fields.items():
        slot = slot_of(field.annotation)
        if slot.kind == "leaf":
            yield (*prefix, key)
        elif slot.kind == "model" and slot.model is not None:
            yield from scalar_paths(slot.model, (*prefix, key))
