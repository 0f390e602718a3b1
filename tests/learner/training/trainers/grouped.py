"""Chunks of groups of agents, acted by the last published policy, with and without memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rollcast.enums import GroupEnd, SegmentEnd
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk

from learner.training.trainers.poca.trainer import POCATrainer
from tests.learner.training.trainers.in_process import Bench
from tests.learner.training.trainers.recurrent import RecurrentActor
from tests.learner.training.trainers.started import make_kind
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor


class Acted(NamedTuple):
    """A segment of one agent of a group.

    Attributes:
        agent: Number of the agent.
        group: Number of the group; 0 for none.
        first: Group step of its first row.
        steps: Number of rows.
        end: How it ends.
        group_end: State of the group at its end.
    """

    agent: int
    group: int
    first: int
    steps: int
    end: SegmentEnd = SegmentEnd.CUT
    group_end: GroupEnd = GroupEnd.CONTINUES


CUT, TERMINATED, TRUNCATED = SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED
SPAN: Sequence[Acted] = (
    Acted(1, 7, 0, 8),
    Acted(2, 7, 0, 3, TERMINATED),
    Acted(3, 7, 2, 6),
    Acted(4, 8, 0, 4, TERMINATED, GroupEnd.TERMINATED),
    Acted(5, 8, 0, 4, TERMINATED, GroupEnd.TERMINATED),
    Acted(6, 9, 0, 5, TRUNCATED, GroupEnd.TRUNCATED),
    Acted(7, 0, 0, 8),
)
"""38 steps: a group with an early death and a late joiner, one that terminates, one that is interrupted, a loner."""


def group_columns(span: Sequence[Acted]) -> dict[str, Any]:
    """Returns the columns of groups."""
    return {
        "group": np.array([one.group for one in span], np.uint64),
        "group_episode": np.array([one.group for one in span], np.uint64),
        "group_end": np.array([one.group_end for one in span], np.uint8),
        "group_step": np.concatenate([one.first + np.arange(one.steps) for one in span]).astype(np.int32),
        "group_reward": np.ones(sum(one.steps for one in span), np.float32),
        "end": np.array([one.end for one in span], np.uint8),
        "agent": np.array([one.agent for one in span], np.uint64),
        "env": np.zeros(len(span), np.uint32),
    }


class GroupActor(SyntheticActor):
    """Makes chunks of groups; see `SyntheticActor`."""

    _episodes = 0

    def play(self, span: Sequence[Acted] = SPAN) -> Chunk:
        """Returns a chunk with these segments, each of a new episode."""
        self._episodes += 100
        columns = group_columns(span)
        columns["episode"] = columns["agent"] + np.uint64(self._episodes)
        return self.chunk([one.steps for one in span], columns=columns)


class RememberingGroupActor(RecurrentActor):
    """Makes chunks of groups whose agents have memories, which continue after a cut."""

    def play_groups(self, span: Sequence[Acted] = SPAN) -> Chunk:
        """Returns a chunk with these segments."""
        columns = group_columns(span)
        del columns["agent"], columns["end"], columns["env"]
        return self.play([(one.agent, one.steps, one.end) for one in span], columns=columns)


def make_poca(spec: BehaviorSpec = CONTINUOUS, **changes: Any) -> tuple[Bench, POCATrainer]:
    """Returns a bench and a started POCA trainer that updates after each span."""
    hyper = {"buffer_size": 30, "batch_size": 8, **changes.pop("hyper", {})}
    return make_kind(POCATrainer, "poca", spec, hyper=hyper, **changes)


MEMORY = {"normalize": False, "hidden_units": 8, "memory": {"memory_size": 6, "sequence_length": 4}}


def start(spec: BehaviorSpec, *, recurrent: bool, masked: bool = False) -> tuple[Bench, POCATrainer, Any]:
    """Returns a bench, a trainer, and a function that plays a span."""
    bench, trainer = make_poca(spec, network=MEMORY if recurrent else {})
    if recurrent:
        return bench, trainer, RememberingGroupActor(bench, masked=masked).play_groups
    return bench, trainer, GroupActor(bench, masked=masked).play
