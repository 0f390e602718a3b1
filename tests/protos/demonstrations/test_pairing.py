"""Tests which record has the action of a step, for recordings of each age of Unity's package and way of starting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from rollcast.demonstrations import Pairing
from rollcast.demonstrations.collecting import Demonstration
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.reading import read_demonstration
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.unity.communicator_objects.demonstration_pb2 import AgentInfoActionPairProto
from rollcast.unity.communicator_objects.observation_pb2 import ObservationProto

from tests.protos.demonstrations.recordings import BRANCH, demonstration, record

SEEN = (ObservationSpec("state", np.dtype(np.float32), (3,)),)
SPECS = {
    "axes": BehaviorSpec("A", SEEN, ActionSpec(continuous_size=3)),
    "choices": BehaviorSpec("A", SEEN, ActionSpec(discrete_branches=(3,))),
}
EPISODES, LENGTH = 12, 25
Floats = NDArray[np.float64]


class Moment(NamedTuple):
    """What an agent sees, and does; nothing where its episode ends."""

    seen: Floats
    act: Floats | None


def played(kind: str, world: str) -> list[list[Moment]]:
    """Plays episodes.

    A world that ``moves`` goes where the action says; in one that ``jumps`` actions change nothing. Players answer what
    they see, or in ``holds`` keep an action for some decisions.
    """
    generator = np.random.default_rng(7)
    episodes = []
    for _ in range(EPISODES):
        seen = generator.uniform(-1, 1, 3)
        act = np.zeros(3)
        moments: list[Moment] = []
        for _ in range(LENGTH):
            answer = np.clip(-seen, -1, 1) if kind == "axes" else np.array([float(np.argmax(-seen))])
            if world != "holds" or generator.random() < 0.3 or not moments:
                act = answer + (generator.normal(0, 0.1, 3).clip(-0.1, 0.1) if kind == "axes" else 0)
            moments.append(Moment(seen, act.clip(-1, 1) if kind == "axes" else act))
            push = 0.5 * act if kind == "axes" else 0.8 * np.eye(3)[int(act[0])]
            seen = seen + push + generator.normal(0, 0.3, 3) if world != "jumps" else generator.uniform(-1, 1, 3)
        episodes.append([*moments, Moment(seen, None)])
    return episodes


def records(kind: str, episodes: list[list[Moment]], recorder: str) -> Iterator[AgentInfoActionPairProto]:
    """Yields what a recorder writes: ``converted`` files of before 0.14, ``1.x`` over ends, and ``3.0`` of today."""

    def written(seen: Floats, act: Floats | None, done: bool) -> AgentInfoActionPairProto:
        data = ObservationProto.FloatData(data=seen)
        observation = ObservationProto(shape=[3], dimension_properties=[1], float_data=data, name="state")
        if act is None:
            return record(observation, done, reward=1.0)
        return record(
            observation, done, reward=1.0, **({"axes": act} if kind == "axes" else {"choices": act.astype(int)})
        )

    late = np.zeros(3 if kind == "axes" else 1)
    for number, moments in enumerate(episodes):
        for place, (seen, act) in enumerate(moments):
            done = place == len(moments) - 1
            if recorder == "3.0" and not place:
                late = np.zeros_like(late)
            if recorder == "converted":
                last = done and number == len(episodes) - 1
                yield written(seen, None if last else moments[place - done].act, done and not last)
            else:
                yield written(seen, late, done)
            late = late if act is None else act


STARTS: dict[str, Callable[[list[AgentInfoActionPairProto]], list[AgentInfoActionPairProto]]] = {
    "from the start": lambda written: written,
    "during play": lambda written: written[4:],
    "one episode": lambda written: written[: LENGTH + 1],
    "without an end": lambda written: [one for one in written[4:] if not one.agent_info.done],
}


def read(folder: Path, kind: str, written: list[AgentInfoActionPairProto], pairing: Pairing = "auto") -> Demonstration:
    """Reads what was written."""
    path = demonstration(folder / "x.demo", SPECS[kind], written)
    return read_demonstration(path, SPECS[kind], pairing=pairing)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("recorder", ["converted", "1.x", "3.0"])
@pytest.mark.parametrize("world", ["moves", "jumps", "holds"])
@pytest.mark.parametrize("kind", SPECS)
def test_each_action_goes_with_what_the_player_saw(
    tmp_path: Path, kind: str, world: str, recorder: str, start: str
) -> None:
    """Whatever the package wrote, and wherever the recording begins, actions are those of their own decisions."""
    episodes = played(kind, world)
    written = STARTS[start](list(records(kind, episodes, recorder)))
    if recorder == "converted" and start in ("one episode", "without an end"):
        written[-1].ClearField("action_info")  # the converter had no next record for the last one
    found = read(tmp_path, kind, written)
    acts = {tuple(seen.astype(np.float32)): act for moments in episodes for seen, act in moments}
    taken = found.continuous if kind == "axes" else found.discrete
    assert taken is not None
    (seen,) = found.observations
    pairs = [(acts[tuple(seen[row])], act) for row, act in zip(found.rows, taken, strict=True)]
    right = [bool(np.allclose(own, act, atol=1e-6)) for own, act in pairs if own is not None]
    assert np.mean(right) > 0.9, found.paired
    assert found.paired.late == (recorder != "converted")
    assert found.paired.is_sure or start == "one episode"
    assert found.paired.evidence


@pytest.mark.parametrize("world", ["moves", "jumps", "holds"])
def test_observations_tell_where_nothing_is_missing(tmp_path: Path, world: str) -> None:
    """A program's recording with an action in every record is read as it was written."""
    written = list(records("axes", played("axes", world), "converted"))[:-1]
    found = read(tmp_path, "axes", written)
    assert (found.paired.late, found.paired.is_sure) == (False, True)
    assert "explain" in found.paired.evidence


def test_what_tells_nothing_counts_as_unitys_and_the_run_file_decides(tmp_path: Path) -> None:
    """Three records of a player that ticked recording say nothing; the setting says all."""
    written = [record(float(n), choices=[n]) for n in (1, 2, 3)]
    path = demonstration(tmp_path / "x.demo", BRANCH, written)
    chosen = {}
    for pairing in ("auto", "next_record", "same_record"):
        found = read_demonstration(path, BRANCH, pairing=pairing)
        assert found.discrete is not None
        chosen[pairing] = (found.discrete.ravel().tolist(), found.paired.is_sure)
    assert chosen == {"auto": ([2, 3], False), "next_record": ([2, 3], True), "same_record": ([1, 2], True)}


@pytest.mark.parametrize(
    ("lacking", "pairing", "taken", "unfinished"),
    [
        (4, "auto", [0, 1, 2, 3], 1),  # a decision that waits for its action
        (4, "next_record", [1, 2, 3], 2),  # the action of the step before is lost
        (0, "auto", [1, 2, 3, 4], 1),  # written before the first decision
        (0, "same_record", [1, 2, 3], 2),
    ],
)
def test_records_without_an_action(
    tmp_path: Path, lacking: int, pairing: Pairing, taken: list[int], unfinished: int
) -> None:
    """The last record of a file, or the first, may lack its action: what has none is no step."""
    written = [record(float(n), choices=[n]) for n in range(5)]
    written[lacking].ClearField("action_info")
    found = read_demonstration(demonstration(tmp_path / "x.demo", BRANCH, written), BRANCH, pairing=pairing)
    assert found.discrete is not None
    assert (found.discrete.ravel().tolist(), found.unfinished) == (taken, unfinished)


def test_an_action_missing_in_the_middle_is_a_fault(tmp_path: Path) -> None:
    """A record amid an episode without an action is damage, with its place."""
    written = [record(float(n), choices=[n]) for n in range(5)]
    written[2].ClearField("action_info")
    with pytest.raises(BadDemonstration, match=r"byte \d+: the record has no action"):
        read_demonstration(demonstration(tmp_path / "x.demo", BRANCH, written), BRANCH)
