"""Tests that the tables of the contract's description equal the code."""

from __future__ import annotations

import re
from pathlib import Path

from rollcast import limits
from rollcast.errors import BY_REASON

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
    of_operators = {"NOTHING_TO_SAVE", "CHECKPOINT_FAILED", "NOT_QUARANTINED", "SETTING_REFUSED"}  # over HTTP
    assert (
        set(BY_REASON) - promised <= {"UNEXPECTED", "POLICY_CORRUPT", "UNAUTHENTICATED", "NOT_ALLOWED"} | of_operators
    )


def reasons(comment: str) -> set[str]:
    """Returns words in capitals that are neither gRPC codes nor type names."""
    codes = {
        "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL",
        "OUT_OF_RANGE", "UNAUTHENTICATED", "PERMISSION_DENIED", "DEADLINE_EXCEEDED", "ABORTED",
    }  # fmt: skip
    return {word for word in re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)*\b", comment) if word not in codes}
