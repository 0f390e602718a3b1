"""Places of actors by name."""

from __future__ import annotations

from learner.ingest.places import MAX_NAMES, Places


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
    again.load(places.state())
    assert again.find("a7", set()) == 7
    assert again.find("a0", set()) == 0
    assert len(again.state()) == MAX_NAMES
