"""Tests that the tables of the contract's description equal the code."""

from __future__ import annotations

import re
from pathlib import Path

from rollcast import enums, limits
from rollcast.columns import OPEN_PREFIXES, column_forms
from rollcast.errors import BY_REASON
from rollcast.v1 import policy_pb2, session_pb2, trajectory_pb2

from tests.protos.builders import EVERYTHING

MODULES = (policy_pb2, session_pb2, trajectory_pb2)
PROTOS = Path(__file__).resolve().parents[2] / "protos"
README = (PROTOS / "README.md").read_text(encoding="utf-8")
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def test_the_limits_are_the_numbers_of_the_code() -> None:
    """Each row has a constant and its value."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\d+) ?(\w*) \|", README, re.MULTILINE)
    assert len(rows) >= 20
    assert {name: int(number) * UNITS[unit] for name, number, unit in rows} == {
        name: getattr(limits, name) for name, _, _ in rows
    }


def test_every_reason_is_described_with_its_code() -> None:
    """Every reason is described with its code, and no other."""
    rows = re.findall(r"^\| ([A-Z_]+) \| `([A-Z_]+)` \|", README, re.MULTILINE)
    assert {reason: code for code, reason in rows} == {
        reason: kind.default_code.name for reason, kind in BY_REASON.items()
    }


def test_reasons_named_in_the_proto_files_exist() -> None:
    """Reasons in comments of the .proto files exist."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (PROTOS / "rollcast" / "v1").glob("*.proto"))
    promised = {word for block in re.findall(r"// Errors:(?:.*\n\s*//)*.*", text) for word in reasons(block)}
    assert promised <= set(BY_REASON)
    assert set(BY_REASON) - promised <= {"UNEXPECTED", "POLICY_CORRUPT", "UNAUTHENTICATED", "NOT_ALLOWED"}


def reasons(comment: str) -> set[str]:
    """Returns words in capitals that are neither gRPC codes nor type names."""
    codes = {
        "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL",
        "OUT_OF_RANGE", "UNAUTHENTICATED", "PERMISSION_DENIED", "DEADLINE_EXCEEDED", "ABORTED",
    }  # fmt: skip
    return {word for word in re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)*\b", comment) if word not in codes}


def test_every_service_and_column_prefix_is_mentioned() -> None:
    """Every service and column prefix is mentioned."""
    services = [
        name for module in (policy_pb2, session_pb2, trajectory_pb2) for name in module.DESCRIPTOR.services_by_name
    ]
    assert all(f"`{name}`" in README for name in services)
    assert all(f"`{prefix}`" in README for prefix in ("extra/", "dist/", "info/"))


def test_what_is_not_acted_on_yet_exists() -> None:
    """Each row of the list names a field, an enum value, a column or a prefix of the contract."""
    (table,) = re.findall(r"\*\*Not acted on yet\.\*\*.*?\n\n(\|.*?)\n(?:\n|$)", README, re.DOTALL)
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) >= 10
    assert [name for name in names if not is_in_the_contract(name)] == []


def is_in_the_contract(name: str) -> bool:
    """Returns whether a name is a field `Message.field`, a value `Enum.VALUE`, a column, or a prefix of columns."""
    first, dot, second = name.partition(".")
    if dot and hasattr(enums, first):
        return second in getattr(enums, first).__members__
    if dot:
        found = [getattr(module, first) for module in MODULES if hasattr(module, first)]
        return any(second in message.DESCRIPTOR.fields_by_name for message in found)
    forms = column_forms(EVERYTHING, 0)
    return name in forms or name.rstrip("…") in OPEN_PREFIXES


def test_files_that_are_mentioned_exist() -> None:
    """Paths in the text exist."""
    root = PROTOS.parent
    for path in ("rollcast/v1/control.proto", "rollcast/limits.py", "generate.py"):
        assert path in README
        assert (PROTOS / path).is_file()
    for path in ("tests/protos/golden", "tests/protos/rollcast-v1.binpb"):
        assert path in README
        assert (root / path).exists()
