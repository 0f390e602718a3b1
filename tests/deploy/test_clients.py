"""Tests the clients: each language's file is short, and counted on their page; the carts are those of Gymnasium."""

from __future__ import annotations

import random
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

import gymnasium
import numpy as np
import pytest
from rollcast.v1 import client_pb2

from tests.documents import ROOT, text_of

PAGE = "deploy/clients/README.md"
MAX_LINES = 300
ROW = re.compile(r"^\| [^|]+ \| \[[^]]+\]\(([^)]+)\) \| (\d+) \|", flags=re.MULTILINE)
ROWS = ROW.findall(text_of(PAGE))


def test_each_language_has_a_row() -> None:
    """Each folder of a client has a file in the table, except JavaScript, whose file is the one that gateways serve."""
    folders = {path.name for path in (ROOT / PAGE).parent.iterdir() if path.is_dir()}
    assert {file.partition("/")[0] for file, _ in ROWS if not file.startswith("..")} == folders - {"javascript"}


@pytest.mark.parametrize(("file", "lines"), ROWS)
def test_each_file_is_short_and_counted(file: str, lines: str) -> None:
    """A file has as many lines as the table says, at most 300."""
    assert len(((ROOT / PAGE).parent / file).read_text(encoding="utf-8").splitlines()) == int(lines) <= MAX_LINES


def test_the_cart_is_that_of_gymnasium() -> None:
    """The states and ends of the client in Python equal those of CartPole-v1, in episodes that fall and one that stands."""
    loader = SourceFileLoader("client", str((ROOT / PAGE).parent / "python" / "cartpole.py"))
    spec = spec_from_loader("client", loader)
    assert spec is not None
    client = module_from_spec(spec)
    loader.exec_module(client)
    cart, draws = client.Cart(), random.Random(1)
    env: Any = gymnasium.make("CartPole-v1")
    ends = set()
    for episode in range(20):
        cart.begin(draws, {})
        env.reset()
        env.unwrapped.state = np.array(cart.state)
        state = client_pb2.AGENT_STATE_UNSPECIFIED
        while state == client_pb2.AGENT_STATE_UNSPECIFIED:
            action = int(cart.state[2] + 0.5 * cart.state[3] > 0) if episode == 0 else draws.randrange(2)
            state = cart.push(action == 1)
            observed, _, ended, cut_off, _ = env.step(action)
            assert observed.tolist() == np.float32(cart.state).tolist()
            assert (ended, cut_off) == (
                state == client_pb2.AGENT_STATE_ENDED,
                state == client_pb2.AGENT_STATE_INTERRUPTED,
            )
        ends.add(state)
    assert ends == {client_pb2.AGENT_STATE_ENDED, client_pb2.AGENT_STATE_INTERRUPTED}
