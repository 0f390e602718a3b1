"""Environment parameters for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learner.shared.settings.options import RunOptions
from learner.shared.settings.parameters import ParameterSettings


def parameters(**written: object) -> Mapping[str, ParameterSettings]:
    """Returns environment parameters as a run file has them, resolved."""
    resolved = RunOptions.model_validate({"environment_parameters": written}).environment_parameters
    assert resolved is not None
    return resolved


def curriculum(*values: object, **criteria: Any) -> dict[str, Any]:
    """Returns a curriculum with these values; all lessons but the last have the same criteria."""
    wanted = {"behavior": "A", "signal_smoothing": False, **criteria}
    lessons: list[dict[str, Any]] = [
        {"name": f"lesson{number}", "value": value, "completion_criteria": wanted}
        for number, value in enumerate(values)
    ]
    del lessons[-1]["completion_criteria"]
    return {"curriculum": lessons}
