"""Tests single values of a checkpoint."""

from __future__ import annotations

import math

import pytest
import torch

from learner.shared.saved_values import MAX_COUNT, count, flag, number, numbers, reason, shown, text


def test_what_is_right_comes_back() -> None:
    """Valid values are returned in their types."""
    state = {"count": MAX_COUNT, "number": 3, "numbers": [1, 2.5], "text": "a", "flag": False}
    assert (count(state, "count"), number(state, "number"), numbers(state, "numbers")) == (MAX_COUNT, 3.0, [1.0, 2.5])
    assert (text(state, "text"), flag(state, "flag")) == ("a", False)


@pytest.mark.parametrize("value", [-1, MAX_COUNT + 1, True, 1.0, "1", None, [], torch.ones(())])
def test_what_is_no_count_is_told_with_its_bounds(value: object) -> None:
    """An invalid count is refused with its bounds and not converted."""
    with pytest.raises(ValueError, match=r"^steps is .*, but must be a whole number from 0 to 9007199254740992$"):
        count({"steps": value}, "steps")


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.5, 7.5, True, "1", None, torch.ones(())])
def test_what_is_no_number_is_told_with_its_bounds(value: object) -> None:
    """An invalid number, also NaN, is refused with its bounds."""
    with pytest.raises(ValueError, match=r"^debt is .*, but must be a finite number, at least 0, at most 7$"):
        number({"debt": value}, "debt", least=0.0, most=7.0)


def test_what_is_no_list_text_or_flag_is_told() -> None:
    """An invalid list, text or flag is refused."""
    for values in ("12", [1.0, math.nan], {1.0: 2.0}, None):
        with pytest.raises(ValueError, match="returns is "):
            numbers({"returns": values}, "returns")
    with pytest.raises(ValueError, match="name is 3, but must be text"):
        text({"name": 3}, "name")
    with pytest.raises(ValueError, match="done is 1, but must be true or false"):
        flag({"done": 1}, "done")


def test_messages_stay_short_and_in_one_line() -> None:
    """Error messages are short and of one line."""
    assert shown(2**2000) == "a number of 2001 bits"
    assert shown(torch.zeros(1000)) == "a Tensor"
    assert len(shown("x" * 10**6)) == 60
    assert reason(KeyError("tally")) == "'tally' is missing"
    assert reason(ValueError("a\nb")) == "a b"
    assert reason(AttributeError("no a")) == "AttributeError: no a"
    assert len(reason(ValueError("x" * 10**6))) == 1003
