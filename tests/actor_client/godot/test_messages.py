"""Tests the messages of the plug-in's protocol."""

from __future__ import annotations

import json
import math

import pytest

from actor_client.godot.messages import CLOSE, ENV_INFO, HANDSHAKE, RESET, GameFault, column, decode, encode

OF_GDRL = {
    b'{"type": "handshake", "major_version": "0", "minor_version": "7"}': HANDSHAKE,
    b'{"type": "env_info"}': ENV_INFO,
    b'{"type": "reset"}': RESET,
    b'{"type": "close"}': CLOSE,
    b'{"type": "action", "action": [{"steer": [0.5, -1.0], "jump": 1, "gear": 3, "gas": [0.25]}]}': encode(
        "action", action=[{"steer": [0.5, -1.0], "jump": 1, "gear": 3, "gas": [0.25]}]
    ),
}
"""What godot-rl 0.8.2 was seen to send to a game, and what is sent here."""


def test_messages_are_those_of_the_plug_ins_trainer() -> None:
    """A game reads the same objects, with their keys in the same order."""
    for theirs, ours in OF_GDRL.items():
        assert list(json.loads(ours).items()) == list(json.loads(theirs).items())
        assert ours.isascii()


def test_numbers_as_godot_prints_them_are_read() -> None:
    """NaN and infinity, which are no JSON, become what they are; words in texts stay."""
    found = decode(b'{"type":"step","obs":[{"obs":[nan, -nan,inf,-inf ,1]}],"reward":[null],"say":"nan"}', "step")
    values = found["obs"][0]["obs"]
    assert [math.isnan(value) for value in values] == [True, True, False, False, False]
    assert values[2:] == [math.inf, -math.inf, 1]
    assert found["say"] == "nan"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "sent what is not JSON"),
        (b"\xff", "sent what is not JSON"),
        (b"{" * 9, "sent what is not JSON"),
        (b"[" * 200_000, "sent what is not JSON"),
        (b'{"type":"step","reward":[1' + b"0" * 5000 + b"]}", "sent what is not JSON"),
        (b"[1, 2]", "answered with [1, 2] in place of step"),
        (b'{"obs": []}', "answered with None in place of step"),
        (b'{"type": "reset"}', "answered with 'reset' in place of step"),
        (b'{"type": ["\\u001b[31m"]}', "answered with ['\\x1b[31m'] in place of step"),
    ],
)
def test_what_is_no_answer_is_one_line(body: bytes, said: str) -> None:
    """The fault is named in one printable line, whatever a game sends."""
    with pytest.raises(GameFault) as fault:
        decode(body, "step")
    assert said in str(fault.value)
    assert str(fault.value).isprintable()
    assert len(str(fault.value)) < 200


def test_a_list_has_an_entry_for_each_agent() -> None:
    """Anything else is named with its size."""
    assert column({"reward": [1, 2]}, "reward", 2) == [1, 2]
    for found, said in (([1], "sent reward with 1 entries, and has 2 agents"), ({"a": 1}, "sent reward with {'a': 1}")):
        with pytest.raises(GameFault, match=said):
            column({"reward": found}, "reward", 2)
    with pytest.raises(GameFault, match="sent done with None"):
        column({}, "done", 1)
