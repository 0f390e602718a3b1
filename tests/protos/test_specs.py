"""Tests the specs of declared behaviors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rollcast.enums import ObservationKind, ObservationRole
from rollcast.errors import BadSpec
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec, mismatches
from rollcast.trajectories import encode_chunk
from rollcast.v1 import spec_pb2

from tests.protos.builders import CARTPOLE, EVERYTHING, full_chunk


@pytest.mark.parametrize("spec", [CARTPOLE, EVERYTHING])
def test_round_trip(spec: BehaviorSpec) -> None:
    """Every field survives a round trip as bytes."""
    sent = spec.to_message().SerializeToString()
    assert spec == BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(sent))


def test_equal_specs_compare_equal_before_and_after_the_wire() -> None:
    """Equal specs compare equal before and after the wire, with float32 bounds."""
    spec = BehaviorSpec(
        "B",
        (ObservationSpec("o", np.dtype(">f4"), (np.int64(3),), scale=0.1),),  # type: ignore[arg-type]
        ActionSpec(1, (), (-0.1,), (0.1,)),
    )
    assert spec == BehaviorSpec.from_message(spec.to_message())
    assert hash(spec) == hash(BehaviorSpec.from_message(spec.to_message()))


def test_what_serves_readers_survives_and_is_not_compared() -> None:
    """Places, first numbers and bounds survive a round trip; an actor that does not declare them still fits the run."""
    plain = replace(
        CARTPOLE,
        observations=(ObservationSpec("o", np.dtype("i4"), (2,), ObservationKind.CATEGORICAL, categories=(2, 3)),),
    )
    (observation,) = plain.observations
    told = replace(observation, path=("a/b\n", 3, "é"), first_categories=(-1, 5), bounds=(-0.1, 1e9))
    spec = replace(plain, observations=(told,), action=replace(plain.action, first_choices=(-(2**40),)))
    assert spec == BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(spec.to_message().SerializeToString()))
    assert mismatches(spec, plain) == mismatches(plain, spec) == []


def test_unspecified_role_is_default() -> None:
    """Role 0 compares equal to DEFAULT."""
    message = CARTPOLE.to_message()
    message.observations[0].role = spec_pb2.OBSERVATION_ROLE_UNSPECIFIED
    assert ObservationRole.DEFAULT is BehaviorSpec.from_message(message).observations[0].role


Change = Callable[[spec_pb2.BehaviorSpec], object]
CAMERA, TILE, OTHERS = 1, 2, 3
KNOWN = spec_pb2.DIMENSION_PROPERTY_NONE
STRANGE = spec_pb2.DimensionProperty.ValueType(99)
KEY = spec_pb2.ObservationKey(index=1)


def _bound(message: spec_pb2.BehaviorSpec, low: float, high: float) -> None:
    message.observations[0].low, message.observations[0].high = low, high


FAULTS: list[tuple[Change, str]] = [
    (lambda m: setattr(m, "name", ""), "has 0 characters"),
    (lambda m: setattr(m, "name", "../x"), "separate parts"),
    (lambda m: setattr(m, "name", "x" * 200), "has 200 characters"),
    (lambda m: m.ClearField("observations"), "0 observations"),
    (lambda m: m.observations.extend([m.observations[0]] * 70), "75 observations"),
    (lambda m: setattr(m.observations[1], "name", "state"), "two observations are named 'state'"),
    (lambda m: setattr(m.observations[0], "name", "a/b"), "does not match"),
    (lambda m: setattr(m.observations[0], "name", ""), "does not match"),
    (lambda m: setattr(m.observations[0], "dtype", 0), "type 0"),
    (lambda m: setattr(m.observations[0], "dtype", 8), "type 8"),
    (lambda m: setattr(m.observations[0], "dtype", 13), "type 13"),
    (lambda m: setattr(m.observations[0], "dtype", 99), "type 99"),
    (lambda m: m.observations[0].shape.extend([1] * 7), "8 axes"),
    (lambda m: m.observations[0].shape.append(0), "empty axis"),
    (lambda m: m.observations[0].shape.extend([1 << 63, 1 << 63]), "bytes; at most"),
    (lambda m: setattr(m.observations[0], "scale", float("nan")), "scale nan"),
    (lambda m: setattr(m.observations[0], "scale", -1.0), "scale -1"),
    (lambda m: setattr(m.observations[0], "role", 9), "role 9"),
    (lambda m: setattr(m.observations[0], "kind", 0), "kind 0"),
    (lambda m: setattr(m.observations[0], "kind", 9), "kind 9"),
    (lambda m: setattr(m.observations[0], "layout", 1), "only images"),
    (lambda m: m.observations[0].categories.append(3), "only categorical"),
    (lambda m: m.observations[0].dimension_properties.extend([KNOWN, KNOWN]), "2 dimension properties for 1"),
    (lambda m: m.observations[0].dimension_properties.append(STRANGE), "unknown value"),
    (lambda m: m.observations[CAMERA].shape.append(1), "IMAGE needs 3 axes"),
    (lambda m: setattr(m.observations[CAMERA], "layout", 0), "must be HWC or CHW"),
    (lambda m: setattr(m.observations[CAMERA], "layout", 9), "must be HWC or CHW"),
    (lambda m: m.observations[TILE].shape.append(1), "CATEGORICAL needs 1 axes"),
    (lambda m: setattr(m.observations[TILE], "dtype", 9), "integer type"),
    (lambda m: m.observations[TILE].categories.append(3), "3 numbers of categories"),
    (lambda m: m.observations[TILE].categories.__setitem__(0, 0), "at least 1 each"),
    (lambda m: m.observations[TILE].categories.__setitem__(0, 1 << 31), "at most 65536 together"),
    (lambda m: m.observations[OTHERS].shape.append(1), "ENTITIES needs 2 axes"),
    (lambda m: m.observations[0].path.extend([KEY] * 17), "path of 17 keys; at most 16"),
    (lambda m: m.observations[0].path.add(), "a key of its path is empty"),
    (lambda m: m.observations[0].path.add(name="x" * 129), "more than 128 characters"),
    (lambda m: m.observations[0].first_categories.append(1), "only categorical observations have a first"),
    (lambda m: m.observations[TILE].first_categories.extend([1] * 9), "9 first categories for"),
    (lambda m: setattr(m.observations[0], "low", 1.0), "only one of low and high"),
    (lambda m: _bound(m, 2.0, 1.0), "not a finite interval"),
    (lambda m: _bound(m, float("nan"), 1.0), "not a finite interval"),
    (lambda m: _bound(m, 0.0, float("inf")), "not a finite interval"),
    (lambda m: m.action.first_choices.append(1), "1 first choices for 2 branches"),
    (lambda m: m.ClearField("action"), "neither continuous nor discrete"),
    (lambda m: setattr(m.action, "continuous_size", 1 << 31), "2147483648 continuous actions"),
    (lambda m: m.action.discrete_branches.extend([2] * 300), "302 discrete branches"),
    (lambda m: m.action.discrete_branches.__setitem__(0, 0), "at least 1 choice"),
    (lambda m: m.action.discrete_branches.__setitem__(0, 1 << 31), "at most 65536 together"),
    (lambda m: m.action.continuous_low.append(0.0), "3 low and 2 high bounds"),
    (lambda m: m.action.ClearField("continuous_high"), "2 low and 0 high bounds"),
    (lambda m: m.action.continuous_low.__setitem__(0, 2.0), "not an interval"),
    (lambda m: m.action.continuous_low.__setitem__(0, float("nan")), "not an interval"),
    (lambda m: m.action.continuous_high.__setitem__(0, float("nan")), "not an interval"),
    (lambda m: m.action.continuous_high.__setitem__(0, -float("inf")), "not an interval"),
    (lambda m: m.action.descriptions.append("x"), "5 descriptions for 4 actions"),
    (lambda m: m.action.descriptions.__setitem__(0, "x" * 129), "at most 128 characters"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_every_fault_has_a_sentence(change: Change, message: str) -> None:
    """Each rule of spec.proto is checked with value and limit in the error."""
    declared = EVERYTHING.to_message()
    change(declared)
    with pytest.raises(BadSpec, match=message):
        BehaviorSpec.from_message(declared)


def test_infinite_bounds_are_an_interval() -> None:
    """Infinite bounds are accepted."""
    spec = BehaviorSpec("B", CARTPOLE.observations, ActionSpec(1, (), (-np.inf,), (np.inf,)))
    assert spec == BehaviorSpec.from_message(spec.to_message())


def test_a_wrong_spec_is_refused_at_the_sender_too() -> None:
    """The sender makes the receiver's checks."""
    with pytest.raises(BadSpec, match="neither continuous nor discrete"):
        replace(CARTPOLE, action=ActionSpec()).to_message()


def test_equal_specs_have_no_mismatches() -> None:
    """Descriptions do not count as mismatches."""
    assert mismatches(EVERYTHING, EVERYTHING) == []
    unnamed = replace(EVERYTHING, action=replace(EVERYTHING.action, descriptions=()))
    assert mismatches(EVERYTHING, unnamed) == []


def observation(index: int, **changes: object) -> BehaviorSpec:
    """Returns EVERYTHING with one observation changed."""
    entries = list(EVERYTHING.observations)
    entries[index] = replace(entries[index], **changes)  # type: ignore[arg-type]
    return replace(EVERYTHING, observations=tuple(entries))


def action(**changes: object) -> BehaviorSpec:
    """Returns EVERYTHING with another action."""
    return replace(EVERYTHING, action=replace(EVERYTHING.action, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (observation(0, shape=(48,)), ["obs/state: run float32[3], actor float32[48]"]),
        (observation(0, dtype=np.dtype(np.float64)), ["obs/state: run float32[3], actor float64[3]"]),
        (
            observation(0, name="pose"),
            ["obs/pose: run has none, actor float32[3]", "obs/state: run float32[3], actor has none"],
        ),
        (observation(0, role=ObservationRole.GOAL), ["obs/state role: run DEFAULT, actor GOAL"]),
        (observation(1, scale=0.0), ["obs/camera scale: run 255.0, actor 0.0"]),
        (observation(2, categories=(5, 8)), ["obs/tile categories: run [5, 7], actor [5, 8]"]),
        (observation(2, kind=ObservationKind.VECTOR), ["obs/tile kind: run CATEGORICAL, actor VECTOR"]),
        (replace(EVERYTHING, name="Walker"), ["name: run 'Crawler', actor 'Walker'"]),
        (replace(EVERYTHING, grouped=False), []),  # groups may form later: rows say which there are
        (action(discrete_branches=(2,)), ["discrete_branches: run [2, 3], actor [2]"]),
        (action(continuous_low=(-2.0, 0.0)), ["continuous_low: run [-1.0, 0.0], actor [-2.0, 0.0]"]),
    ],
)
def test_mismatches_show_both_sides(theirs: BehaviorSpec, expected: list[str]) -> None:
    """A mismatch has both sides."""
    assert expected == mismatches(EVERYTHING, theirs)


def test_another_order_is_a_mismatch() -> None:
    """Another order of observations is a mismatch."""
    turned = replace(EVERYTHING, observations=EVERYTHING.observations[::-1])
    assert mismatches(EVERYTHING, turned) == [
        "order of observations: run state, camera, tile, others, goal, actor goal, others, tile, camera, state"
    ]


@pytest.mark.parametrize("spec", [CARTPOLE, EVERYTHING])
def test_one_step_chunk_bytes_is_an_upper_bound(spec: BehaviorSpec) -> None:
    """one_step_chunk_bytes is a close upper bound of a one-step chunk."""
    chunk = full_chunk(spec, lengths=(1,))
    for name in [name for name in chunk.columns if name.startswith(("extra/", "episode/", "info/", "stat/", "memory"))]:
        del chunk.columns[name], chunk.roles[name]
    size_bytes = encode_chunk(chunk).ByteSize()
    assert size_bytes <= spec.one_step_chunk_bytes <= size_bytes + 16 * 1024
