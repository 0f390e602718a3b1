"""Places of actors by name."""

from __future__ import annotations

import pytest
from rollcast.errors import BadRequest, TooManySessions

from learner.ingest.sessions import MAX_NAMES, FixedPlaces, Places


def test_a_name_gets_its_place_again_unless_it_is_taken() -> None:
    """The remembered place is preferred; a taken one is replaced by the smallest free one, and that is remembered."""
    places = Places()
    assert places.find("a", {0, 1}) == 2
    assert places.find("a", set()) == 2
    assert places.find("a", {2}) == 0
    assert places.find("a", set()) == 0


def test_places_outlive_a_restart_and_are_bounded() -> None:
    """The memory is in the checkpoint; the name not heard of for longest is forgotten first."""
    places = Places()
    for number in range(MAX_NAMES + 1):
        places.find(f"a{number}", range(number))
    again = Places()
    again.load_state_dict(places.state_dict())
    assert again.find("a7", set()) == 7
    assert again.find("a0", set()) == 0
    assert len(again.state_dict()) == MAX_NAMES


def test_in_lockstep_there_are_as_many_places_as_actors() -> None:
    """First come, first served, within the number; a name gets its place again; an awaited one's only if none is free."""
    places = FixedPlaces(2)
    assert places.find("a", set()) == 0
    assert places.find("b", {0}) == 1
    assert places.find("b", {0}) == 1, "its place is free again"
    assert places.find("new", set(), awaited={0}) == 1, "whoever had the other place may come back"
    assert places.find("newer", {1}, awaited={0}) == 0
    with pytest.raises(TooManySessions, match="is taken"):
        places.find("c", {0, 1})


def test_names_fix_places() -> None:
    """The run file's names decide, whoever comes first; others are refused with the names that would do."""
    places = FixedPlaces(2, ("left", "right"))
    assert places.find("right", set()) == 1
    assert places.find("left", {1}) == 0
    assert places.find("right", {0}, awaited={1}) == 1, "it is the one that is awaited"
    with pytest.raises(TooManySessions, match="'left'"):
        places.find("left", {0})
    with pytest.raises(BadRequest, match="left, right"):
        places.find("middle", set())
