"""Tests the secret of session ids in a run folder."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import structlog

from learner.service.ingest.session_ids import SESSION_KEY, session_key


def test_restarts_keep_the_key_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    """The key is random, private, and the same in every start."""
    made = session_key(tmp_path)
    assert len(made) == 32
    assert session_key(tmp_path) == made
    assert stat.S_IMODE((tmp_path / SESSION_KEY).stat().st_mode) == 0o600
    other = tmp_path / "other"
    other.mkdir()
    assert session_key(other) != made


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"00" * 31, b"00" * 33])
def test_a_damaged_or_public_key_is_replaced(tmp_path: Path, content: bytes) -> None:
    """A key that is no key, or that others could have read, is not used."""
    path = tmp_path / SESSION_KEY
    path.write_bytes(content)
    path.chmod(0o600)
    made = session_key(tmp_path)
    assert len(made) == 32
    path.chmod(0o644)
    again = session_key(tmp_path)
    assert again != made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_cannot_keep_it_gets_one_for_this_start(tmp_path: Path) -> None:
    """Without a place for the key the run goes on, and the log says so."""
    with structlog.testing.capture_logs() as logs:
        assert len(session_key(tmp_path / "missing")) == 32
    assert [entry["event"] for entry in logs] == ["session_key_not_kept"]
