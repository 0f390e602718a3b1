"""Tests that masks of players (true = forbidden) are inverted for policies (1 = allowed)."""

from rollcast.unity.masks import MaskReader

from tests.actor_client.unity.agents import agent


def test_masks_are_inverted() -> None:
    """Forbidden choices become 0, and an agent without a mask may choose anything."""
    masks, line = MaskReader((3, 2)).read([agent(action_mask=[True, False, False, False, True]), agent()])
    assert line is None
    assert masks is not None
    assert masks.tolist() == [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert masks.dtype == "u1"


def test_nothing_forbidden_is_no_mask() -> None:
    """Without masks or branches there is no mask."""
    assert MaskReader((3, 2)).read([agent(), agent()]) == (None, None)
    assert MaskReader(()).read([agent(action_mask=[True])]) == (None, None)
    assert MaskReader((2,)).read([]) == (None, None)


def test_a_mask_of_a_wrong_length_allows_everything() -> None:
    """A mask of wrong length is reported once and ignored, as by the stock trainer."""
    reader = MaskReader((3, 2))
    masks, line = reader.read([agent(id=4, action_mask=[True]), agent(action_mask=[False] * 4 + [True])])
    assert masks is not None
    assert masks.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert line == "agent 4: its mask has 1 entries for 5 choices, so all are allowed"
    assert reader.read([agent(id=4, action_mask=[True] * 9)])[1] is None


def test_a_branch_without_a_choice_is_open() -> None:
    """No policy can act under its mask forbids a whole branch, and the learner refuses such rows."""
    masks, line = MaskReader((3, 2)).read([agent(), agent(id=8, action_mask=[False] * 3 + [True] * 2)])
    assert masks is not None
    assert masks.all()
    assert line is not None
    assert line.startswith("agent 8: its mask forbids a whole branch")
