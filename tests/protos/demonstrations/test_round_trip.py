"""What is written is what is read, for every kind of observation and action."""

from pathlib import Path

import numpy as np
import pytest
from communicator_objects.behavior_pb2 import BrainParametersProto
from communicator_objects.demonstration_pb2 import AgentInfoActionPairProto, DemonstrationMetaProto
from numpy.typing import NDArray
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.framing import BRAIN_POSITION, HEAD_BYTES, DemonstrationFile
from rollcast.demonstrations.reading import read_demonstration, read_demonstrations
from rollcast.demonstrations.units import ActionUnits
from rollcast.demonstrations.writing import Action, DemonstrationWriter
from rollcast.enums import ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

F32, U8, I32 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int32)
IMAGE = ObservationKind.IMAGE
OBSERVATIONS = (
    ObservationSpec("vector", F32, (3,)),
    ObservationSpec("goal", F32, (2,), role=ObservationRole.GOAL),
    ObservationSpec("table", F32, (2, 2)),
    ObservationSpec("cube", F32, (2, 2, 2)),
    ObservationSpec("entities", F32, (4, 2), ObservationKind.ENTITIES),
    ObservationSpec("choice", I32, (2,), ObservationKind.CATEGORICAL, categories=(3, 70000 // 2)),
    ObservationSpec("gray", U8, (6, 5, 1), IMAGE, layout=ImageLayout.HWC, scale=255),
    ObservationSpec("colour", U8, (3, 6, 5), IMAGE, layout=ImageLayout.CHW, scale=255),
    ObservationSpec("stack", U8, (6, 5, 7), IMAGE, layout=ImageLayout.HWC, scale=255),
    ObservationSpec("heat", F32, (5, 6, 2), IMAGE, layout=ImageLayout.HWC),
    ObservationSpec("counts", np.dtype(np.int16), (2,)),
)
LIMB = ActionSpec(2, (3, 2), continuous_low=(-2.0, -np.inf), continuous_high=(6.0, np.inf))
SPEC = BehaviorSpec("Limb", OBSERVATIONS, LIMB)


def seen(spec: ObservationSpec, generator: np.random.Generator) -> NDArray[np.generic]:
    """A random observation."""
    if spec.categories:
        return generator.integers(0, spec.categories, spec.shape).astype(spec.dtype)
    if spec.dtype.kind == "f":
        return generator.normal(0, 9, spec.shape).astype(spec.dtype)
    return generator.integers(0, 200, spec.shape).astype(spec.dtype)


def test_every_kind(tmp_path: Path) -> None:
    """Pictures, categories, entities, hybrid actions, masks, groups and both ends come back as they were."""
    generator = np.random.default_rng(4)
    moments = [[seen(spec, generator) for spec in OBSERVATIONS] for _ in range(5)]
    axes = np.array([[-2, 17.5], [6, -3], [1.7, 0.25]], np.float32)
    choices = np.array([[0, 1], [2, 0], [1, 1]], np.int32)
    masks = np.array([[1, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], np.uint8)
    path = tmp_path / "limb.demo"
    with DemonstrationWriter(path, SPEC, team=2) as writer:
        # The second agent's episode begins first and ends last: episodes do not mix in the file.
        writer.step(8, moments[3], Action(axes[2], choices[2], masks[2]), 9.0)
        writer.step(7, moments[0], Action(axes[0], choices[0], masks[0]), 1.5, group=3, group_reward=0.5)
        writer.step(7, moments[1], Action(axes[1], choices[1], masks[1]), -2.0, group=3)
        writer.end(7, moments[2], interrupted=False)
        writer.end(8, moments[4], interrupted=True)
        writer.step(9, moments[0], Action(axes[0], choices[0]), 0.0)  # has not ended, and is not written
        assert (writer.episodes, writer.steps, writer.returns) == (2, 3, [0.0, 9.0])
    found = read_demonstration(path, SPEC)
    assert found.behavior == "Limb?team=2"
    order, after = [0, 1, 3], [1, 2, 4]
    for place, (spec, values) in enumerate(zip(OBSERVATIONS, found.observations, strict=True)):
        assert values.dtype == spec.dtype
        for step in range(3):
            assert np.array_equal(values[found.rows[step]], moments[order[step]][place]), spec.name
            assert np.array_equal(values[found.next_rows[step]], moments[after[step]][place]), spec.name
    assert found.continuous is not None
    assert found.masks is not None
    assert found.discrete is not None
    assert np.allclose(found.continuous, np.array([[-1, 17.5], [1, -3], [(1.7 - 2) / 4, 0.25]]))
    assert np.allclose(ActionUnits(LIMB).actions(found.continuous), axes, rtol=1e-6)
    assert np.array_equal(found.discrete, choices)
    assert np.array_equal(found.masks, masks)
    assert found.rewards.tolist() == [1.5, -2.0, 9.0]
    assert found.group_rewards.tolist() == [0.5, 0.0, 0.0]
    assert found.terminated.tolist() == [False, True, False]
    assert found.truncated.tolist() == [False, False, True]
    assert (found.clipped, found.delayed, found.unfinished) == (0, False, 0)


def test_the_bytes_are_where_unity_has_them(tmp_path: Path) -> None:
    """The head fits 32 bytes and counts records; the brain is at byte 33; ends carry no action."""
    spec = BehaviorSpec("A long name, with a comma", (OBSERVATIONS[0],), ActionSpec(discrete_branches=(2,)))
    path = tmp_path / "plain.demo"
    with DemonstrationWriter(path, spec) as writer:
        writer.step(1, [np.zeros(3, np.float32)], Action(discrete=np.array([1], np.int32)), 4.0)
        writer.end(1, [np.ones(3, np.float32)], interrupted=True)
    data = path.read_bytes()
    meta = DemonstrationMetaProto.FromString(data[1 : 1 + data[0]])
    assert 1 + data[0] <= HEAD_BYTES
    assert (meta.api_version, meta.number_steps, meta.number_episodes, meta.mean_reward) == (1, 2, 1, 4.0)
    assert meta.demonstration_name == "Alongnamewithaco"
    assert BrainParametersProto.FromString(data[BRAIN_POSITION + 1 :][: data[BRAIN_POSITION]]).brain_name.startswith(
        "A l"
    )
    with DemonstrationFile(path) as file:
        first, last = [record.pair for record in file.records()]
    assert isinstance(first, AgentInfoActionPairProto)
    assert list(first.action_info.discrete_actions) == [1]
    assert not last.action_info.discrete_actions
    assert (last.agent_info.done, last.agent_info.max_step_reached, last.agent_info.reward) == (True, True, 4.0)


def test_a_killed_recorder_leaves_its_episodes(tmp_path: Path) -> None:
    """What was finished can be read while the recorder still writes."""
    spec = BehaviorSpec("Kill", (OBSERVATIONS[0],), ActionSpec(discrete_branches=(2,)))
    writer = DemonstrationWriter(tmp_path / "kill.demo", spec)
    for _ in range(3):
        writer.step(1, [np.zeros(3, np.float32)], Action(discrete=np.array([1], np.int32)), 1.0)
    writer.end(1, [np.zeros(3, np.float32)], interrupted=False)
    writer.step(1, [np.zeros(3, np.float32)], Action(discrete=np.array([0], np.int32)), 1.0)
    assert len(read_demonstration(tmp_path / "kill.demo", spec).rows) == 3
    writer.drop(1)
    writer.end(1, [np.zeros(3, np.float32)], interrupted=False)  # there is nothing to end
    writer.close()
    assert writer.episodes == 1


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    """The ``.demo`` files of a folder, in the order of their names; others are left alone."""
    spec = BehaviorSpec("Many", (OBSERVATIONS[0],), ActionSpec(discrete_branches=(2,)))
    for name in ("b", "a"):
        with DemonstrationWriter(tmp_path / f"{name}.demo", spec) as writer:
            writer.step(1, [np.zeros(3, np.float32)], Action(discrete=np.array([1], np.int32)), 1.0)
            writer.end(1, [np.zeros(3, np.float32)], interrupted=False)
    (tmp_path / "notes.txt").write_text("not a demonstration")
    assert [one.path.name for one in read_demonstrations(tmp_path, spec)] == ["a.demo", "b.demo"]
    with pytest.raises(BadDemonstration, match=r"a\.demo: exists; choose another name"):
        DemonstrationWriter(tmp_path / "a.demo", spec)
