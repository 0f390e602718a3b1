"""Reads the settings of a trainer's page and of its code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import learner.training.trainers
from learner.shared.settings.hyperparameters import HyperparameterSettings

FOLDER = Path(next(iter(learner.training.trainers.__path__)))


class Row(NamedTuple):
    """A row of the settings table.

    Attributes:
        default: As YAML writes it.
        range: In words.
        text: What it does; empty for what the code says.
    """

    default: str
    range: str
    text: str


def sections(page: str) -> dict[str, str]:
    """Returns the parts of a page by their headings of the second level."""
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows_of_page(page: str) -> dict[str, Row]:
    """Returns the settings table of a page, by key."""
    lines = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", sections(page)["Settings"], flags=re.MULTILINE)
    assert len(lines) == len({line[0] for line in lines}), "a setting has two lines"
    return {key: Row(*rest) for key, *rest in lines}


def rows_of_code(model: type[HyperparameterSettings]) -> dict[str, Row]:
    """Returns what the table must say: every setting, its default where nothing is given, its range."""
    defaults = model().model_dump(mode="json")
    properties = model.model_json_schema()["properties"]
    return {key: Row(_yaml(defaults[key]), range_in_words(schema), "") for key, schema in properties.items()}


def range_in_words(schema: dict[str, Any]) -> str:
    """Describes the range in a JSON schema as pages do."""
    if "anyOf" in schema:
        inner = [part for part in schema["anyOf"] if part != {"type": "null"}]
        told = ", or ".join(range_in_words(part) for part in inner)
        return told if len(inner) == len(schema["anyOf"]) else f"{told}, or null"
    if schema.get("type") == "array":
        return "list of " + (
            "pairs of numbers"
            if "prefixItems" in schema["items"]
            else "numbers"
            if schema["items"].get("type") in {"integer", "number"}
            else "text"
        )
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "boolean":
        return "true, false"
    if schema.get("type") not in {"integer", "number"}:
        return "text"
    words = ["whole"] if schema["type"] == "integer" else []
    # Bounds behind a validator of our own keep pydantic's names.
    low, above = schema.get("minimum", schema.get("ge")), schema.get("exclusiveMinimum", schema.get("gt"))
    high = schema.get("maximum", schema.get("le"))
    if low is not None and high is not None:
        words.append(f"{_exactly(low)} to {_exactly(high)}")
    elif low is not None:
        words.append(f"from {low:g}")
    elif above is not None:
        words.append(f"above {above:g}")
        if high is not None:
            words.append(f"at most {_exactly(high)}")
    return ", ".join(words) if words else "any number"


def _exactly(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else str(value)


def _yaml(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(yaml.safe_dump(value)).removesuffix("\n...\n").strip()
