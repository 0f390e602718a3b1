"""All targets, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.fuzz import files, service, unity, web, wire
from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    target.name: target for part in (wire, service, unity, files, web) for target in part.TARGETS
}
LONG: Final = frozenset({"open-session", "token-file", "http"})
"""Decoders of bytes of callers that are not identified yet; they are fuzzed three times as long."""
