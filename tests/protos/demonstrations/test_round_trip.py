"""Tests that written files are read back equal and damaged ones are refused."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.framing import (
    BRAIN_POSITION,
    HEAD_BYTES,
    MAX_FIELDS,
    MAX_RECORD_BYTES,
    DemonstrationFile,
    delimited,
)
from rollcast.demonstrations.reading import read_demonstration, read_demonstrations
from rollcast.demonstrations.writing import Action, ActionUnits, DemonstrationWriter
from rollcast.enums import ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.unity.communicator_objects.behavior_pb2 import ActionSpecProto, BrainParametersProto
from rollcast.unity.communicator_objects.demonstration_pb2 import AgentInfoActionPairProto, DemonstrationMetaProto
from rollcast.unity.communicator_objects.observation_pb2 import PNG, ObservationProto
from rollcast.unity.floats import varint

from tests.protos.demonstrations.recordings import AXIS, BRANCH, demonstration, record

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
    """Returns a random observation."""
    if spec.categories:
        return generator.integers(0, spec.categories, spec.shape).astype(spec.dtype)
    if spec.dtype.kind == "f":
        return generator.normal(0, 9, spec.shape).astype(spec.dtype)
    return generator.integers(0, 200, spec.shape).astype(spec.dtype)


def test_every_kind(tmp_path: Path) -> None:
    """Images, categories, entities, hybrid actions, masks, groups and ends are read back equal."""
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
    assert (found.clipped, found.paired.late, found.unfinished) == (0, False, 0)


def test_the_bytes_are_where_unity_has_them(tmp_path: Path) -> None:
    """The head has 32 bytes, the brain starts at byte 33, and ends have no action."""
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


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    """A folder is read as its ``.demo`` files in the order of names."""
    spec = BehaviorSpec("Many", (OBSERVATIONS[0],), ActionSpec(discrete_branches=(2,)))
    for name in ("b", "a"):
        with DemonstrationWriter(tmp_path / f"{name}.demo", spec) as writer:
            writer.step(1, [np.zeros(3, np.float32)], Action(discrete=np.array([1], np.int32)), 1.0)
            writer.end(1, [np.zeros(3, np.float32)], interrupted=False)
    (tmp_path / "notes.txt").write_text("not a demonstration")
    assert [one.path.name for one in read_demonstrations(tmp_path, spec)] == ["a.demo", "b.demo"]
    with pytest.raises(BadDemonstration, match=r"a\.demo: the file exists; choose another name"):
        DemonstrationWriter(tmp_path / "a.demo", spec)


GOOD = [record(1, choices=[1]), record(2, choices=[2], reward=1), record(3, True, reward=1)]
PICTURE = BehaviorSpec(
    "Picture",
    (ObservationSpec("camera", np.dtype(np.uint8), (8, 8, 3), ObservationKind.IMAGE, layout=ImageLayout.HWC),),
    ActionSpec(discrete_branches=(5,)),
)


def refused(path: Path, spec: BehaviorSpec) -> str:
    """Returns the error of one line, which names the file."""
    with pytest.raises(BadDemonstration) as caught:
        read_demonstrations(path, spec)
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    return line


def test_every_length_of_a_cut_file(tmp_path: Path) -> None:
    """A truncated file is refused with the byte where data is missing."""
    whole = demonstration(tmp_path / "whole.demo", BRANCH, GOOD).read_bytes()
    cut = tmp_path / "cut.demo"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        line = refused(cut, BRANCH)
        assert "empty" in line or "cut short" in line or "not a demonstration" in line, line


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"This is a text, and not a short one at all, no.", "this is not a demonstration"),
        (b"\xff" * 64, "the length of"),
        (delimited(DemonstrationMetaProto(api_version=7)).ljust(99, b"\0"), "has version 7 of the format"),
        (delimited(DemonstrationMetaProto(number_steps=-1)).ljust(99, b"\0"), "its head announces -1 records"),
        (
            delimited(DemonstrationMetaProto(api_version=1)).ljust(BRAIN_POSITION, b"\0") + varint(2**32 - 1) + b"abc",
            "byte 33: the description of the behavior announces 4294967295 bytes, but 3 follow",
        ),
    ],
)
def test_what_is_no_demonstration(tmp_path: Path, data: bytes, reason: str) -> None:
    """Wrong heads and lengths are refused before anything is allocated."""
    path = tmp_path / "odd.demo"
    path.write_bytes(data)
    assert reason in refused(path, BRANCH)


def test_a_record_beyond_the_bound(tmp_path: Path) -> None:
    """An oversized record is not read into memory."""
    path = demonstration(tmp_path / "vast.demo", BRANCH, GOOD, announced=4)
    position = path.stat().st_size
    with path.open("ab") as stream:
        stream.write(varint(MAX_RECORD_BYTES + 1))
        stream.truncate(stream.tell() + MAX_RECORD_BYTES + 1)  # a hole: no disk is used
    assert f"byte {position}: record 3 has {MAX_RECORD_BYTES + 1} bytes" in refused(path, BRANCH)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(float("nan"), choices=[1]), "observation state has NaN or infinity"),
        (record(1e20, choices=[1]), "observation state has a value above 1e+15"),
        (record(1, choices=[1], reward=float("inf")), "a reward is not finite"),
        (record(1, choices=[1], group_reward=float("nan")), "a reward is not finite"),
        (record(1, choices=[5]), "discrete action 0 is 5; it must be a whole number below 5"),
        (record(1, choices=[-1]), "discrete action 0 is -1"),
        (
            record(1, choices=[1, 1]),
            "the record has 0 continuous and 2 discrete actions; the run's behavior has 0 and 1",
        ),
        (record(1, axes=[0.5]), "the record has 1 continuous and 0 discrete actions"),
        (AgentInfoActionPairProto(), "the record has 0 observations; the run's behavior has 1"),
        (record(ObservationProto(shape=[2]), choices=[1]), "observation state has shape [2]"),
        (record(ObservationProto(shape=[1]), choices=[1]), "observation state has 0 values; its shape [1] needs 1"),
        (
            record(ObservationProto(shape=[1], compression_type=PNG, compressed_data=b"x"), choices=[1]),
            "only images can be compressed",
        ),
    ],
)
def test_a_bad_record_is_named(tmp_path: Path, bad: AgentInfoActionPairProto, reason: str) -> None:
    """The error has the byte at which the record starts, and the cause."""
    path = demonstration(tmp_path / "bad.demo", BRANCH, [*GOOD, bad])
    position = path.stat().st_size - len(delimited(bad))
    assert f"byte {position}: " in (line := refused(path, BRANCH))
    assert reason in line


def test_axes_that_are_no_numbers(tmp_path: Path) -> None:
    """Continuous actions must be finite, and those outside of [-1, 1] are clipped and counted."""
    path = demonstration(tmp_path / "nan.demo", AXIS, [record(1, axes=[float("nan")]), record(2, True)])
    assert "continuous action 0 is nan" in refused(path, AXIS)
    path = demonstration(tmp_path / "far.demo", AXIS, [record(1, axes=[-7.0]), record(2, True)])
    found = read_demonstration(path, AXIS)
    assert found.continuous is not None
    assert (found.continuous.tolist(), found.clipped) == ([[-1.0]], 1)


def test_another_behavior(tmp_path: Path) -> None:
    """Actions and shapes that differ from the run's are refused with both; old fields are read."""
    path = demonstration(tmp_path / "axis.demo", AXIS, [record(1, axes=[0.5]), record(2, True)])
    assert "its behavior has 1 continuous actions and branches []; the run's has 0 and [5]" in refused(path, BRANCH)
    old = BrainParametersProto(brain_name="Old", vector_action_size_deprecated=[5])
    pair = record(1)
    pair.action_info.vector_actions_deprecated.append(3.0)
    found = read_demonstration(demonstration(tmp_path / "old.demo", BRANCH, [pair, record(2, True)], brain=old), BRANCH)
    assert found.discrete is not None
    assert found.discrete.tolist() == [[3]]
    many = BrainParametersProto(action_spec=ActionSpecProto(num_continuous_actions=-4))
    assert "its behavior cannot be used" in refused(
        demonstration(tmp_path / "n.demo", BRANCH, GOOD, brain=many), BRANCH
    )


def test_a_bomb_of_pictures(tmp_path: Path) -> None:
    """Decompressed observations are limited, and PNG files must have their announced size."""
    small = ObservationProto(
        shape=[3, 8, 8], dimension_properties=[1, 2, 2], compression_type=PNG, compressed_data=b"x"
    )
    path = demonstration(tmp_path / "png.demo", PICTURE, [record(small, choices=[1]), record(small, True)])
    assert "observation camera needs 1 consecutive PNG files" in refused(path, PICTURE)
    with pytest.raises(BadDemonstration, match="records take more than 0 MiB unpacked, at 253 bytes each"):
        read_demonstration(path, PICTURE, max_bytes=300)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "cannot be opened: No such file"),
        (lambda path: path.mkdir(), "this folder has no .demo files"),
        (os.mkfifo, "not a regular file"),
        (lambda path: demonstration(path, BRANCH, [record(1, choices=[1])]), "has no complete step"),
        (lambda path: demonstration(path, BRANCH, []), "has no complete step"),
        (lambda path: demonstration(path, BRANCH, GOOD, announced=9), "ends after 3 records, but its head announces 9"),
    ],
)
def test_nothing_to_read(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    """Missing files, pipes, empty folders and recordings without steps are errors of one line."""
    make(tmp_path / "none.demo")
    assert reason in refused(tmp_path / "none.demo", BRANCH)


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_a_number_without_end(tmp_path: Path) -> None:
    """A varint without end is refused quickly."""
    path = demonstration(tmp_path / "endless.demo", BRANCH, [])
    path.write_bytes(path.read_bytes() + varint(60_000_000) + b"\x80" * 60_000_000)
    assert "record 0 cannot be read: the file is damaged" in refused(path, BRANCH)


@pytest.mark.parametrize("nested", [False, True])
def test_empty_messages_without_end(tmp_path: Path, nested: bool) -> None:
    """Many empty messages in a record are refused without large allocations."""
    fields = AgentInfoActionPairProto.DESCRIPTOR.fields_by_name
    agent = fields["agent_info"]
    seen = agent.message_type.fields_by_name["observations"].number
    empty = _field(seen, b"")
    bomb = _field(agent.number, empty) * 70_000 if nested else _field(agent.number, empty * 140_000)
    path = demonstration(tmp_path / "bomb.demo", BRANCH, [])
    path.write_bytes(path.read_bytes() + varint(len(bomb)) + bomb)
    assert f"record 0 has more than {MAX_FIELDS} fields" in refused(path, BRANCH)
