"""Tests the memories of environments that are stepped together."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from rollcast.enums import ColumnRole

from actor_client.envs.base import EnvBatch
from actor_client.envs.factory import make_env_batch
from actor_client.envs.scalar import ScalarBatch
from actor_client.policy.actions import Actions, MemoryForm
from actor_client.rollout.chunks import remembered_rows
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy, limits, remembered
from tests.actor_client.rollout.vector.test_evaluation import evaluate

FORM = MemoryForm(size=5, stride=3)


def played(batch: EnvBatch, vector_steps: int, *, swap_every: int = 0, **options: Any) -> KeepingLink:
    """Steps a batch with a policy that counts, with occasional swaps."""
    link = KeepingLink(batch.spec, memory=FORM, **options)
    versions = itertools.count(1)
    link.policies.append(RulePolicy(batch.spec, memory=FORM))
    steps = itertools.count(1)

    def allowed() -> bool:
        if swap_every and next(steps) % swap_every == 0:
            link.policies.append(RulePolicy(batch.spec, version=next(versions), memory=FORM))
        return True

    link.allowed = allowed
    done = LoopLimits(max_steps=vector_steps * batch.num_envs)
    RolloutLoop(lambda: batch, batch, KeepingSession(), lambda: link, limits=done).run()
    return link


def check(link: KeepingLink) -> int:
    """Checks that each memory counts its row's steps, and returns the number of memories."""
    found = 0
    for chunk in link.chunks:
        if not chunk.segments:
            continue
        assert chunk.roles["memory"] is ColumnRole.MEMORY
        lengths, firsts = chunk.columns["length"].tolist(), chunk.columns["first_step"].tolist()
        for numbers, first, length in zip(remembered(chunk, FORM.stride), firsts, lengths, strict=True):
            assert numbers == list(range(first, first + length, FORM.stride))
            found += len(numbers)
    return found


@pytest.mark.parametrize("options", [{"time_horizon": 7}, {"time_horizon": 6}, {"time_horizon": 1},
                                     {"time_horizon": 50, "cut_at_swap": True, "swap_every": 5},
                                     {"time_horizon": 50, "max_policy_lag": 2, "swap_every": 4}])  # fmt: skip
def test_memories_go_with_the_first_row_of_every_sequence(options: dict[str, Any]) -> None:
    """Memories match their rows at every cut and start with zeros in each episode."""
    batch = ScalarBatch([toys.Toy(length=length) for length in (4, 11, 30)], "Toy")
    assert check(played(batch, 60, **options)) >= 60


def test_steps_that_environments_ignore_leave_no_memory() -> None:
    """With NextStep resets, memories start with zeros in each episode."""
    batch = make_env_batch("CartPole-v1", num_envs=3, vector=True)
    link = played(batch, 100, time_horizon=8)
    assert check(link) > 60
    assert any(chunk.columns["end"].max() > 1 for chunk in link.chunks)


def test_chunks_with_memories_keep_to_their_limits() -> None:
    """Memories count towards the size of a chunk, and a horizon that would not fit is cut."""
    batch = ScalarBatch([toys.Toy(length=10_000)], "Toy")
    largest = 9_000
    link = played(batch, 800, time_horizon=1000, limits=limits(largest=largest))
    check(link)
    assert len(link.chunks) > 2


def test_another_generation_remembers_nothing_and_may_have_another_form() -> None:
    """A new generation starts with zeros of its own memory size, even within an episode."""
    batch = ScalarBatch([toys.Toy(length=100)], "Toy")
    link = KeepingLink(batch.spec, memory=FORM, time_horizon=4, limits=limits(steps=4))
    link.policies.append(RulePolicy(batch.spec, memory=FORM))
    other = MemoryForm(size=2, stride=2)
    steps = itertools.count(1)

    def allowed() -> bool:
        if next(steps) == 9:
            link.memory = other
            link.policies.append(RulePolicy(batch.spec, generation=2, memory=other))
        return True

    link.allowed = allowed
    RolloutLoop(lambda: batch, batch, KeepingSession(), lambda: link, limits=LoopLimits(max_steps=16)).run()
    before, after = (
        [chunk for chunk in link.chunks if chunk.generation == generation] for generation in (1, 2)
    )  # fmt: skip
    assert [numbers for chunk in before for numbers in remembered(chunk, 3)] == [[0, 3], [4, 7]]
    assert [numbers for chunk in after for numbers in remembered(chunk, 2)] == [[0, 2], [4, 6]]
    assert all(chunk.columns["memory"].shape[1] == 2 for chunk in after)


def test_rows_that_carry_memories() -> None:
    """Memories are recorded for the first row of each segment and every stride after it."""
    assert remembered_rows(np.array([4, 1, 6]), 3).tolist() == [0, 3, 4, 5, 8]
    assert remembered_rows(np.array([2, 2]), 1).tolist() == [0, 1, 2, 3]


def test_a_form_knows_its_bytes() -> None:
    """A segment's memories never exceed the estimate by row and segment."""
    for size, stride, length in itertools.product((1, 5, 128), (1, 3, 64), (1, 2, 64, 65, 1000)):
        form = MemoryForm(size, stride)
        assert -(-length // stride) * 4 * size <= length * form.row_bytes + form.segment_bytes
    assert MemoryForm().row_bytes == MemoryForm().segment_bytes == 0


def test_evaluations_remember_their_own_episodes() -> None:
    """Evaluated episodes start with zeros, and training restarts after them."""
    seen: list[float] = []

    @dataclass
    class Listening(RulePolicy):
        """Records its memory of the first environment."""

        def act(self, *arguments: Any, **options: Any) -> Actions:
            """Acts as its rule says."""
            actions = super().act(*arguments, **options)
            assert actions.memory_in is not None
            seen.append(float(actions.memory_in[0, 0]))
            return actions

    batch = ScalarBatch([toys.Toy(length=5), toys.Toy(length=3)], "Toy")
    link = KeepingLink(batch.spec, memory=FORM)
    link.policies.append(Listening(batch.spec, memory=FORM))
    session = KeepingSession()

    def look() -> bool:
        steps = loop.stats.steps // batch.num_envs
        session.assignment = evaluate() if 7 <= steps < 14 else None
        return True

    link.allowed = link.acts = look
    loop = RolloutLoop(lambda: batch, batch, session, lambda: link, limits=LoopLimits(max_steps=40))
    loop.run()
    assert seen[:7] == [0, 1, 2, 3, 4, 0, 1]
    begun = seen.index(0, 6)
    assert begun in {7, 8}  # the assignment is seen between two steps
    resumed = seen.index(0, begun + 6)
    assert seen[begun:resumed] == [0, 1, 2, 3, 4, 0, 1, 2][: resumed - begun]
    assert seen[resumed : resumed + 5] == [0, 1, 2, 3, 4]
    check(link)
