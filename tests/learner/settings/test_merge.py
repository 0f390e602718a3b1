"""Tests how defaults are merged."""

from __future__ import annotations

import pytest

from learner.common.exits import UserError
from learner.settings import hyperparameters
from learner.settings.base import Whole
from learner.settings.hyperparameters import HyperparameterSettings, PPOHyperparameters
from learner.settings.load import load_run_options
from learner.settings.merge import deep_merge

from .conftest import WriteRun


def test_maps_merge_and_the_rest_is_replaced() -> None:
    """Maps are merged at any depth, and other values are replaced."""
    base = deep_merge({"a": {"b": 1, "c": [1, 2]}, "d": 1}, {"a": {"c": [3]}, "d": {"e": 1}})
    assert base == {"a": {"b": 1, "c": [3]}, "d": {"e": 1}}












