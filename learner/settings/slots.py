"""What a place in the run file may hold, read from the types of the models.

The layers (environment, ``--set``) and the check for unknown keys walk the models by this, so that no second list of
settings has to be kept.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Union, get_args, get_origin

from learner.settings.base import Path, SettingsModel, Value

Kind = Literal["leaf", "model", "map", "list"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the run file.

    Attributes:
        kind: a single value, a block with known keys, a map with free keys, or a list.
        nullable: whether null may be written.
        model: the block's model, if it is one.
        item: the type of a map's or list's entries, if it has any.
        types: the types of a single value.
    """

    kind: Kind
    nullable: bool = False
    model: type[SettingsModel] | None = None
    item: object = None
    types: tuple[object, ...] = ()


def _strip(annotation: object) -> object:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def slot_of(annotation: object) -> Slot:
    """Reads a field's annotation; ``X | None`` is a nullable X."""
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
    """Finds the slot of a path below a model, or None if there is none; ``raw`` decides between forms."""
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
    """Yields the path of every single value below a model that has no free keys on its way."""
    for key, field in model.model_fields.items():
        slot = slot_of(field.annotation)
        if slot.kind == "leaf":
            yield (*prefix, key)
        elif slot.kind == "model" and slot.model is not None:
            yield from scalar_paths(slot.model, (*prefix, key))
