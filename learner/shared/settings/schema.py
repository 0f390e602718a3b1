"""The JSON schema of run files, with which editors complete and check them.

The models describe themselves. This module adds their rules in code: forms that depend on a neighbour, and short forms.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from learner.shared.settings.companions import Companions, DataBufferSettings
from learner.shared.settings.hyperparameters import DEFAULT_TRAINER, built_trainers, hyperparameters_of
from learner.shared.settings.options import RunOptions
from learner.shared.settings.parameters import SAMPLERS, ParameterSettings, Sampler
from learner.shared.settings.rewards import RewardSignals
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_KEYWORDS: Final = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Standard keywords for pydantic's own, which its schema contains if a function reads the value first."""
_ANYTHING: Final = {"type": ["object", "null"]}

Schema: TypeAlias = dict[str, Any]


def run_file_schema() -> Schema:
    """Returns the JSON schema of run files.

    The schema accepts any settings for trainers, companions and reward signals of other packages; `check-config` checks them.
    """
    hyperparameters = {name: hyperparameters_of(name) for name in built_trainers()}
    models: list[type[BaseModel]] = [
        RunOptions,
        *(model for model in hyperparameters.values() if model),
        *SAMPLERS.values(),
    ]
    places, shared = models_json_schema([(model, "validation") for model in models], title="Rollcast run file")
    definitions: dict[str, Schema] = shared["$defs"]
    references = {model: place for (model, _), place in places.items()}

    trainer = definitions[TrainerSettings.__name__]
    _take_anything(trainer["properties"]["hyperparameters"])
    trainer["allOf"] = [
        _where("trainer_type", name, "hyperparameters", references[model])
        for name, model in hyperparameters.items()
        if model
    ]
    for extended in (RewardSignals, Companions):
        definitions[extended.__name__]["additionalProperties"] = _ANYTHING

    sampler = definitions[Sampler.__name__]
    _take_anything(sampler["properties"]["sampler_parameters"])
    sampler["allOf"] = [
        _where("sampler_type", name, "sampler_parameters", references[model]) for name, model in SAMPLERS.items()
    ]
    definitions["SamplerOrNumber"] = {
        "anyOf": [{"type": ["number", "boolean"]}, {"$ref": f"#/$defs/{Sampler.__name__}"}]
    }
    definitions["Lesson"]["properties"]["value"]["$ref"] = "#/$defs/SamplerOrNumber"
    definitions[RunOptions.__name__]["properties"]["environment_parameters"]["anyOf"][0]["additionalProperties"] = {
        "anyOf": [{"$ref": f"#/$defs/{ParameterSettings.__name__}"}, {"$ref": "#/$defs/SamplerOrNumber"}]
    }
    for block in (ServiceSettings, DataBufferSettings):
        for key, schema in definitions[block.__name__]["properties"].items():
            if key.endswith("_bytes"):  # a number, or text with a unit
                schema.get("anyOf", [schema])[0]["type"] = ["integer", "string"]
    for key, warning in TrainerSettings.ignored_keys.items():
        trainer["properties"][key] = {"deprecated": True, "description": warning}
    standard: Schema = _with_standard_keywords(shared)
    return {"$schema": _DIALECT, **standard, "$ref": f"#/$defs/{RunOptions.__name__}"}


def _take_anything(schema: Schema) -> None:
    del schema["$ref"]
    schema |= _ANYTHING


def _with_standard_keywords(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_standard_keywords(item) for item in node]
    if isinstance(node, dict):
        return {_KEYWORDS.get(key, key): _with_standard_keywords(item) for key, item in node.items()}
    return node


def _where(key: str, value: str, target: str, schema: Schema) -> Schema:
    """Returns the rule for a key's schema if another key has a value, or is absent and has it by default."""
    condition: Schema = {"properties": {key: {"const": value}}}
    if value != DEFAULT_TRAINER:
        condition["required"] = [key]
    return {"if": condition, "then": {"properties": {target: schema}}}
