"""The file that says where a learner listens."""

from pathlib import Path

import pytest

from learner.observe.address import ADDRESS_FILE, BoundAddresses, read_addresses, remove_addresses, write_addresses


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Both addresses survive the file; after the end of the learner there is none."""
    addresses = BoundAddresses(address="127.0.0.1:40001", control="127.0.0.1:40002")
    assert write_addresses(tmp_path, addresses) == tmp_path / "address.json"
    assert read_addresses(tmp_path) == addresses
    remove_addresses(tmp_path)
    remove_addresses(tmp_path)
    assert read_addresses(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"address": 5, "control": "x"}', '{"address": "x"}', "\0"])
def test_a_file_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    """A damaged file is not an error for whoever waits for the learner."""
    (tmp_path / ADDRESS_FILE).write_text(content)
    assert read_addresses(tmp_path) is None


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """Neither is one that is not text."""
    (tmp_path / ADDRESS_FILE).write_bytes(b"\xff\xfe")
    assert read_addresses(tmp_path) is None
