"""Tests the messages about saved parameters that do not fit."""

from __future__ import annotations

import pytest
import torch

from learner.training.networks.fit import require_fit


def test_differences_are_one_line() -> None:
    """Three differences are named with both shapes, and the rest is counted."""
    saved = {**{f"w{i}": torch.zeros(2) for i in range(4)}, "old": torch.zeros(1)}
    own = {**{f"w{i}": torch.zeros(3) for i in range(4)}, "new": torch.zeros(1)}
    with pytest.raises(
        ValueError, match=r"^w0 has shape \[2\] in the saved state, but has shape \[3\] in the network; .*; and 3 more$"
    ) as caught:
        require_fit(saved, own)
    assert str(caught.value).count(" in the saved state") == 3
    with pytest.raises(
        ValueError,
        match=r"^new is missing in the saved state, but has shape \[1\] in the network; old has shape \[1\] in",
    ):
        require_fit({"old": torch.zeros(1)}, {"new": torch.zeros(1)})
    with pytest.raises(TypeError, match="NoneType"):
        require_fit(None, own)  # type: ignore[arg-type]
