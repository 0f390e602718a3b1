"""Tests that groups of two behaviors are refused where groups are trained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rollcast.errors import Untrainable
from rollcast.trajectories import Chunk

from learner.service.ingest.intake import MAX_GROUPS, note_groups
from learner.service.ingest.session import Account
from learner.shared.settings.trainer import TrainerSettings

GROUP = (3 << 32) | 7


def chunk(*groups: int) -> Chunk:
    """Returns a chunk with one segment of each group."""
    return Chunk(segments=len(groups), columns={"group": np.array(groups, np.uint64)})


def session(first: str, second: str) -> tuple[Any, Any]:
    """Returns a session with two behaviors and what finds their settings."""
    accounts = {index: Account(name, index, 64, 2**20) for index, name in enumerate(("Goalie", "Striker"))}
    found = [SimpleNamespace(settings=TrainerSettings.model_validate({"trainer_type": one})) for one in (first, second)]
    return SimpleNamespace(accounts=accounts), found.__getitem__


@pytest.mark.parametrize(("first", "second"), [("poca", "poca"), ("poca", "ppo"), ("ppo", "poca")])
def test_a_group_of_two_behaviors_is_refused_by_name(first: str, second: str) -> None:
    """The error names environment, group and both behaviors; other groups are accepted."""
    of, find = session(first, second)
    note_groups(of, of.accounts[0], chunk(GROUP, 0), find)
    note_groups(of, of.accounts[0], chunk(GROUP), find)
    note_groups(of, of.accounts[1], chunk(GROUP + 1, 0), find)
    with pytest.raises(Untrainable, match="group 7 of environment 3 has agents of Goalie and of Striker"):
        note_groups(of, of.accounts[1], chunk(GROUP), find)


def test_other_trainers_accept_such_groups() -> None:
    """Without a trainer of groups, agents of several behaviors may share group rewards."""
    of, find = session("ppo", "ppo")
    for account in of.accounts.values():
        note_groups(of, account, chunk(GROUP), find)


def test_the_newest_groups_are_remembered() -> None:
    """Groups that are formed again and again take bounded memory."""
    of, find = session("poca", "poca")
    note_groups(of, of.accounts[0], chunk(*range(1, MAX_GROUPS + 11)), find)
    note_groups(of, of.accounts[0], Chunk(), find)
    assert len(of.accounts[0].groups) == MAX_GROUPS
    note_groups(of, of.accounts[1], chunk(1), find)
