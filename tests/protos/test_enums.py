"""Tests that the IntEnums equal the .proto files."""

from __future__ import annotations

from enum import IntEnum

import pytest
from google.protobuf.descriptor import FileDescriptor
from rollcast import enums
from rollcast.v1 import policy_pb2, session_pb2, spec_pb2, tensor_pb2, trajectory_pb2

FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR for module in (policy_pb2, session_pb2, spec_pb2, tensor_pb2, trajectory_pb2)
)
WIRE = {name: descriptor for file in FILES for name, descriptor in file.enum_types_by_name.items()}
OURS = {kind.__name__: kind for kind in vars(enums).values() if isinstance(kind, type) and issubclass(kind, IntEnum)}


def test_every_enum_has_a_mirror() -> None:
    """Every enum of the contract has an IntEnum, and no other exists."""
    assert sorted(WIRE) == sorted(name for name, kind in OURS.items() if kind is not IntEnum)


@pytest.mark.parametrize("name", sorted(WIRE))
def test_members_have_the_names_and_numbers_of_the_contract(name: str) -> None:
    """A member has the protobuf name without its prefix."""
    expected = {value.name: value.number for value in WIRE[name].values}
    prefix = "".join(f"_{letter}" if letter.isupper() else letter for letter in name).upper().lstrip("_")
    assert expected == {f"{prefix}_{member.name}": member.value for member in OURS[name]}
