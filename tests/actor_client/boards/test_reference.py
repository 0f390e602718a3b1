"""Compares shogi with another implementation of its rules; the module `reference` says where they differ."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("nshogi is built for Linux", allow_module_level=True)

from tests.actor_client.boards.reference import START, compare

CHECKS = (
    "4k4/9/9/9/9/9/9/9/R3K4 b - 1",
    "4k3r/9/9/9/9/9/9/9/4K4 w - 1",
    "3gk4/9/9/9/9/9/9/9/R3K3L b GS2Pgs2p 1",
)


def test_shogi_is_that_of_the_reference() -> None:
    """Legal moves, SFEN, results and repetitions agree in random and in repetitive games."""
    seen = compare(1500, 1)
    assert seen["plies"] >= 1500
    assert seen["no legal move"]


def test_repetitions_are_those_of_the_reference() -> None:
    """Games with few pieces repeat positions: draws and perpetual checks agree."""
    seen = compare(600, 1, CHECKS)
    assert seen["fourfold repetition"]


@pytest.mark.nightly
def test_many_plies_of_shogi_are_those_of_the_reference() -> None:
    """The same with 40,000 plies; a million agree as well (`python -m tests.actor_client.boards.reference 1000000`)."""
    seen = compare(40_000, 2, (START, START, *CHECKS))
    assert seen["fourfold repetition"]
    assert seen["pawns dropped with mate"]
    assert seen["unpromoted"]
