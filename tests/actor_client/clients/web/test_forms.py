"""Tests the two forms of messages with any content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from rollcast.v1.client_pb2 import AgentActions, Environment, PlayRequest, PlayResponse

from actor_client.clients.messages import BadClientData
from actor_client.clients.web.forms import FORMS, JSON, MAX_DEPTH, BinaryForm, Form

NAMES = (
    "hello",
    "steps",
    "statistics",
    "behaviors",
    "observations",
    "values",
    "states",
    "agents",
    "data",
    "shape",
    "x",
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)


def told(form: Form, content: str | bytes) -> str:
    """Returns what a client is told of its content; empty if it is a message."""
    try:
        assert isinstance(form.read(content), PlayRequest)
    except BadClientData as error:
        return str(error)
    return ""


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_any_json(document: dict[str, Any]) -> None:
    """Any JSON is a message, or refused in one short line."""
    said = told(JSON, json.dumps(document))
    assert said == "" or said.isprintable()
    assert len(said) < 400


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    """Any text is a message, or refused in one short line."""
    said = told(JSON, text)
    assert said == "" or said.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a message, or refused in one short line."""
    for form in FORMS:
        said = told(form, data)
        assert said == "" or said.isprintable()


def test_numbers_are_bounded() -> None:
    """A number that no float holds is refused, wherever it stands."""
    huge = "1" + "0" * 400
    for text in (f'{{"steps":[{{"behavior":"a","values":[{huge}]}}]}}', f'{{"statistics":{{"a":{huge}}}}}'):
        assert told(JSON, text)


def test_depth_is_bounded() -> None:
    """Lists within lists are refused before they take much."""
    for depth in (MAX_DEPTH, 2000, 60_000):
        assert told(JSON, '{"statistics":' * depth + "{}" + "}" * depth)
        assert told(JSON, "[" * depth + "]" * depth)


@pytest.mark.parametrize("form", FORMS)
def test_an_answer(form: Form) -> None:
    """An answer can be read back from its content."""
    response = PlayResponse(
        environment=Environment(seed=2**32 - 1, parameters={"mass": 0.1}),
        actions=[AgentActions(behavior="A?team=1", agents=[0, 2], continuous=[0.1, -1.0], discrete=[0, 3])],
    )
    content = form.write(response)
    if isinstance(content, str):
        assert json_format.Parse(content, PlayResponse()) == response
    else:
        assert isinstance(form, BinaryForm)
        assert PlayResponse.FromString(content) == response
