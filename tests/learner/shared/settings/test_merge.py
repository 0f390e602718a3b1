"""Tests how defaults are merged."""

from __future__ import annotations

from learner.shared.settings.load import deep_merge


def test_maps_merge_and_the_rest_is_replaced() -> None:
    """Maps are merged at any depth, and other values are replaced."""
    base = deep_merge({"a": {"b": 1, "c": [1, 2]}, "d": 1}, {"a": {"c": [3]}, "d": {"e": 1}})
    assert base == {"a": {"b": 1, "c": [3]}, "d": {"e": 1}}
