"""Tests when segments end and chunks are sent, case by case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.envs.base import StepResult
from actor_client.policy.actions import Actions
from actor_client.rollout.vector.recorder import Recorder
from tests.actor_client.rollout.harness import KeepingLink, Piece, limits, pieces

SPEC = BehaviorSpec(
    name="Case",
    observations=(ObservationSpec("state", np.dtype(np.float32), (1,)),),
    action=ActionSpec(discrete_branches=(2,)),
)
ROW_BYTES = 4 + 4 + 4 + 4 + 4  # observation, action, log-probability, reward, version offset


@dataclass
class Driver:
    """A recorder whose time and steps the test sets; observations are step numbers."""

    link: KeepingLink
    agents: int = 2
    masked: bool = False
    now: float = 100.0
    step_number: int = 0
    bad: Mapping[str, float] = field(default_factory=dict)
    """Values of environment 0 that replace what it gives in the last step that is asked for, by place."""
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        """Starts with version 0 of generation 1."""
        self.recorder = Recorder(self.link.spec, self.link, self.agents, masked=self.masked, clock=lambda: self.now)
        self.recorder.begin([7] * self.agents)
        self.swap(0)

    def observed(self) -> list[NDArray[Any]]:
        """Returns what is seen at present."""
        return [np.full((self.agents, 1), self.step_number, np.float32)]

    def masks(self) -> NDArray[np.uint8] | None:
        """Returns masks that allow one choice at a time."""
        if not self.masked:
            return None
        return np.tile(np.array([[self.step_number % 2, 1]], np.uint8), (self.agents, 1))

    def step(self, *ended: int, steps: int = 1, end: SegmentEnd = SegmentEnd.TERMINATED) -> None:
        """Steps; the given environments end their episodes at the last step."""
        for left in reversed(range(steps)):
            before, masks = self.observed(), self.masks()
            bad = self.bad if left == 0 else {}
            before[0][0] = bad.get("observation", before[0][0])
            self.step_number += 1
            now_ended = list(ended) if left == 0 else []
            rewards, log_prob = np.ones(self.agents, np.float32), np.full((self.agents, 1), -0.5, np.float32)
            finals = np.full((len(now_ended), 1), 1000 + self.step_number, np.float32)
            rewards[0], log_prob[0] = bad.get("reward", 1.0), bad.get("action", -0.5)
            finals[:1] = bad.get("last observation", 1000 + self.step_number)
            result = StepResult(
                observations=self.observed(),
                rewards=rewards,
                ended=now_ended,
                ends=np.full(len(now_ended), end, np.uint8),
                final_observations=[finals],
                final_masks=np.ones((len(now_ended), 2), np.uint8) if self.masked else None,
                infos=[{}] * len(now_ended),
                ignored=None,
            )
            chosen = np.ones((self.agents, 1), np.int32)
            actions = Actions(None, chosen, log_prob, None)
            self.recorder.record(before, masks, actions, result, self.masks())

    def swap(self, version: int, generation: int = 1) -> None:
        """Swaps to another version."""
        self.recorder.swap(generation, version, self.observed(), self.masks())

    def pieces(self) -> list[Piece]:
        """Returns what arrived so far."""
        return pieces(self.link.chunks)


def ends_of(driver: Driver) -> list[tuple[int, int, SegmentEnd]]:
    """Returns environment, length and end of each segment that arrived."""
    return [(piece.env, len(piece), piece.end) for piece in driver.pieces()]


def test_a_chunk_says_whose_it_is() -> None:
    """A chunk has behavior, team, generation, agents and age."""
    driver = Driver(KeepingLink(SPEC, time_horizon=4), agents=3)
    driver.step()
    driver.now += 0.25
    driver.step(steps=3)
    driver.now += 0.5
    driver.recorder.flush()

    (chunk,) = driver.link.chunks
    assert (chunk.behavior_index, chunk.team, chunk.generation, chunk.agents) == (2, 1, 1, 3)
    assert (chunk.segments, chunk.rows, chunk.episodes) == (3, 12, 0)
    assert chunk.age_seconds == 0.75


def test_a_chunk_is_sent_at_its_target_size() -> None:
    """A chunk is sent as soon as closed rows reach the target bytes."""
    driver = Driver(KeepingLink(SPEC, time_horizon=2, limits=limits(target=10 * ROW_BYTES)), agents=1)
    sent = []
    for _ in range(10):
        driver.step()
        sent.append(len(driver.link.chunks))

    assert sent[:4] == [0, 0, 0, 0]
    assert sent[-1] >= 1


def test_a_chunk_is_sent_at_its_most_rows() -> None:
    """A chunk is sent when closed rows reach the maximum."""
    driver = Driver(KeepingLink(SPEC, time_horizon=2, limits=limits(steps=4)), agents=1)
    driver.step(steps=8)

    assert [chunk.rows for chunk in driver.link.chunks] == [4, 4]


def test_a_chunk_is_sent_when_its_oldest_segment_is_old() -> None:
    """The age of a chunk counts from its first closed segment."""
    driver = Driver(KeepingLink(SPEC, time_horizon=2, limits=limits(age=0.03)), agents=1)
    driver.step(steps=2)
    driver.now += 0.02
    driver.step(steps=2)
    assert driver.link.chunks == []
    driver.now += 0.011
    driver.step()

    assert [chunk.rows for chunk in driver.link.chunks] == [4]


def test_versions_travel_as_offsets() -> None:
    """Versions are offsets from the lowest version of a chunk."""
    driver = Driver(KeepingLink(SPEC, time_horizon=6), agents=1)
    driver.swap(40)
    driver.step(steps=2)
    driver.swap(43)
    driver.step()
    driver.swap(44)
    driver.step(steps=3)
    driver.recorder.flush()
    driver.step(steps=6)
    driver.recorder.flush()

    assert [piece.versions for piece in driver.pieces()] == [(40, 40, 43, 44, 44, 44), (44,) * 6]
    assert [chunk.base_version for chunk in driver.link.chunks] == [40, 44]
    assert ["version_offset" in chunk.columns for chunk in driver.link.chunks] == [True, False]


def test_a_swap_sends_what_is_closed() -> None:
    """A swap sends closed segments; open ones continue."""
    driver = Driver(KeepingLink(SPEC, time_horizon=100), agents=2)
    driver.step(0)
    driver.swap(1)

    assert ends_of(driver) == [(0, 1, SegmentEnd.TERMINATED)]
    assert driver.recorder.open_steps == 1


def test_rows_of_another_generation_are_discarded() -> None:
    """After a restart of the learner, open and closed rows are discarded and counted."""
    driver = Driver(KeepingLink(SPEC, time_horizon=100), agents=2)
    driver.step(steps=3)
    driver.step(0)
    driver.swap(0, generation=2)
    driver.step(steps=2)
    driver.recorder.cut(driver.observed(), None)

    books = driver.link.books.view()
    assert dict(books.discarded) == {"generation": 8}
    assert (books.produced, books.open, books.unacked) == (12, 0, 4)
    assert [chunk.generation for chunk in driver.link.chunks] == [2]
    assert [(piece.env, piece.episode, piece.first_step) for piece in driver.pieces()] == [(0, 2, 0), (1, 1, 4)]


def test_episode_records_ride_with_their_last_segment() -> None:
    """A record has the return, length, end and versions of the whole episode."""
    driver = Driver(KeepingLink(SPEC, time_horizon=3), agents=2)
    driver.swap(5)
    driver.step(steps=7)
    driver.swap(6)
    driver.step(1, end=SegmentEnd.TRUNCATED)
    driver.swap(9)
    driver.step(1)
    driver.recorder.flush()

    records = [chunk.columns for chunk in driver.link.chunks if chunk.episodes]
    assert [columns["episode/length"].tolist() for columns in records] == [[8], [1]]
    assert [columns["episode/return"].tolist() for columns in records] == [[8.0], [1.0]]
    assert [columns["episode/end"].tolist() for columns in records] == [[SegmentEnd.TRUNCATED], [SegmentEnd.TERMINATED]]
    assert [columns["episode/first_version"].tolist() for columns in records] == [[5], [9]]
    assert [columns["episode/last_version"].tolist() for columns in records] == [[6], [9]]
    assert [columns["episode/seed"].tolist() for columns in records] == [[7], [7]]
    assert [columns["episode/agent"].tolist() for columns in records] == [[1], [1]]


@pytest.mark.parametrize("place", ["observation", "reward", "last observation", "action"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_costs_its_segment(place: str, value: float) -> None:
    """Of two episodes in a chunk, the one with NaN or infinity is discarded in the books, and the other one sent."""
    driver = Driver(KeepingLink(SPEC))
    driver.bad = {place: value}
    driver.step(0, 1, steps=4)
    driver.recorder.flush()
    (piece,) = driver.pieces()
    assert piece.env == 1
    books = driver.link.books.view()
    assert (dict(books.discarded), books.produced) == ({"not_finite": 4}, 8)
    driver.bad = {}
    driver.step(0, 1, steps=4)
    driver.recorder.flush()
    assert len(driver.pieces()) == 3


def test_a_chunk_of_nothing_but_nan_is_sent() -> None:
    """The learner's refusals of everything end the actor, so that an environment that is broken does not run for ever."""
    driver = Driver(KeepingLink(SPEC), agents=1)
    driver.bad = {"reward": np.nan}
    driver.step(0, steps=4)
    with pytest.raises(
        AssertionError, match="column reward, row 3: a value is NaN or infinite"
    ):  # of the link's checks
        driver.recorder.flush()


def test_masks_are_recorded_with_the_choice_they_allowed() -> None:
    """Each row has the mask of its choice, and each cut has the next mask."""
    driver = Driver(KeepingLink(SPEC, time_horizon=3), agents=1, masked=True)
    driver.step(steps=5)
    driver.step(0)
    driver.recorder.flush()

    first, second = driver.pieces()
    assert first.rows["action_mask"].tolist() == [[0, 1], [1, 1], [0, 1]]
    assert first.final["final_action_mask"].tolist() == [1, 1]
    assert second.rows["action_mask"].tolist() == [[1, 1], [0, 1], [1, 1]]
    assert second.end is SegmentEnd.TERMINATED


def test_memory_is_bounded_without_a_flush() -> None:
    """A full log sends rows before it overwrites them."""
    link = KeepingLink(SPEC, time_horizon=5, limits=limits(target=1 << 40))
    driver = Driver(link, agents=2)
    # The first environment's segments close out of step with the second's, so that the oldest is not the first closed.
    for _ in range(100):
        driver.step(0, steps=3)
    driver.recorder.cut(driver.observed(), None)

    rows = sorted((piece.env, float(row)) for piece in driver.pieces() for row in piece.rows["obs/state"][:, 0])
    assert rows == [(env, float(step)) for env in range(2) for step in range(300)]
    assert len(link.chunks) > 1


def test_a_segment_that_closes_late_but_began_early_is_kept() -> None:
    """The log keeps the oldest closed row even if a younger segment was closed first."""
    for horizon in range(17, 24):
        link = KeepingLink(SPEC, time_horizon=horizon, limits=limits(target=1 << 40))
        driver = Driver(link, agents=2)
        driver.step(0, steps=horizon - 1)
        for _ in range(30):
            driver.step(0)
        driver.recorder.cut(driver.observed(), None)
        rows = sorted((piece.env, float(row)) for piece in driver.pieces() for row in piece.rows["obs/state"][:, 0])
        assert rows == [(env, float(step)) for env in range(2) for step in range(horizon + 29)]


def test_a_segment_never_exceeds_a_chunk() -> None:
    """Wide observations shorten the horizon to fit the largest chunk, to at least one row."""
    wide = BehaviorSpec(
        name="Wide",
        observations=(ObservationSpec("state", np.dtype(np.float32), (500,)),),
        action=ActionSpec(discrete_branches=(2,)),
    )

    def horizon(largest: int, steps: int = 0) -> int:
        link = KeepingLink(wide, time_horizon=1000, limits=limits(largest=largest, steps=steps))
        return Recorder(wide, link, 1).horizon

    assert horizon(1 << 22) == 1000
    assert horizon(1 << 22, steps=64) == 64
    assert 20 <= horizon(1 << 16) <= 32
    assert horizon(100) == 1


def test_a_new_learner_may_have_other_settings() -> None:
    """A new generation can change the horizon, the limits and the behavior's number."""
    link = KeepingLink(SPEC, time_horizon=4)
    driver = Driver(link, agents=1)
    driver.step(steps=6)
    link.time_horizon, link.behavior_index, link.limits = 3, 9, limits(steps=3)
    driver.swap(0, generation=2)
    driver.step(steps=7)
    driver.step(0)

    assert [(chunk.generation, chunk.behavior_index) for chunk in link.chunks] == [(2, 9)] * 2
    assert [len(piece) for piece in driver.pieces()] == [3, 3]
    driver.recorder.flush()
    assert driver.pieces()[-1].end is SegmentEnd.TERMINATED
    assert link.chunks[-1].columns["episode/length"].tolist() == [14]


def test_versions_of_an_older_learner_are_not_reported() -> None:
    """An episode that started under an older generation reports only versions of the current one."""
    driver = Driver(KeepingLink(SPEC, time_horizon=4), agents=1)
    driver.swap(500)
    driver.step()
    driver.swap(3, generation=2)
    driver.step(0)
    driver.recorder.flush()

    columns = driver.link.chunks[0].columns
    assert (columns["episode/first_version"].tolist(), columns["episode/last_version"].tolist()) == ([3], [3])
