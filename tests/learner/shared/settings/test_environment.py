"""Tests ML-Agents' blocks about environments, engine, checkpoints and torch."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.shared.settings.environment import CheckpointSettings


@pytest.mark.parametrize("run_id", ["../escape", "", "a/../../b", "/a", "a//b", "a/", ".", "a\nb", "x" * 201])
def test_a_run_id_is_a_folder_name(run_id: str) -> None:
    """A run id cannot lead out of the results folder."""
    with pytest.raises(ValidationError, match="not a valid folder name"):
        CheckpointSettings(run_id=run_id)


@pytest.mark.parametrize(("written", "expected"), [(True, True), ("auto", "auto"), ("true", True), (False, False)])
def test_resume_may_be_auto(written: object, expected: object) -> None:
    """`resume: auto` resumes if there is something to resume."""
    assert expected == CheckpointSettings.model_validate({"resume": written}).resume
