"""Numbers too large to train on cost the chunk they are in, and not the run."""

from __future__ import annotations

import numpy as np
import pytest

from learner.ingest.validate import LARGEST, Rejected, find_excess, judge
from tests.learner.ingest.parts import Parts, make_chunk


@pytest.mark.parametrize("column", ["reward", "obs/state", "final_obs/state"])
@pytest.mark.parametrize(("value", "is_welcome"), [(LARGEST, True), (-LARGEST, True), (2e15, False), (-3e38, False)])
def test_the_bound(column: str, value: float, is_welcome: bool) -> None:
    """Up to the bound every number is trained on; beyond it the chunk is refused like one with infinite numbers."""
    parts = Parts()
    behavior = parts.declared(parts.open().session)
    chunk = make_chunk(3)
    array = chunk.columns[column].copy()
    array[-1] = value
    chunk.columns[column] = array
    verdict = judge(chunk, behavior, chunk.generation, 0)
    if is_welcome:
        assert verdict is None
        return
    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.steps) == ("not_finite", 3)
    assert f"column {column}, row {len(array) - 1}: a value beyond 1e+15" in verdict.detail


def test_memories_are_bounded_too() -> None:
    """What one client says that it remembered must not end the training of all."""
    chunk = make_chunk(3)
    for value, is_welcome in ((LARGEST, True), (-2e15, False)):
        chunk.columns["memory"] = np.array([[0.0, 1.0], [value, 0.0]], np.float32)
        assert (find_excess(chunk) is None) == is_welcome
