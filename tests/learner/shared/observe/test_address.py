"""Tests the file with a learner's addresses."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from learner.shared.observe.address import (
    ADDRESS_FILE,
    TRAINERS_FILE,
    AwaitedAddress,
    BoundAddresses,
    page_url,
    read_addresses,
    read_awaited,
    remove_addresses,
    write_addresses,
    write_awaited,
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """All addresses survive the file, which is removed at the learner's end."""
    addresses = BoundAddresses(address="127.0.0.1:40001", http="127.0.0.1:40003")
    assert write_addresses(tmp_path, addresses) == tmp_path / "address.json"
    assert read_addresses(tmp_path) == addresses
    published = replace(addresses, page="192.168.0.7:80")
    write_addresses(tmp_path, published)
    assert read_addresses(tmp_path) == published
    remove_addresses(tmp_path)
    remove_addresses(tmp_path)
    assert read_addresses(tmp_path) is None


def _with(name: str, value: str) -> str:
    return json.dumps({"address": "a:1", name: value})


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "{}", '{"address": 5, "http": "a:1"}', '{"address": "x"}', "\0", "\xff\xfe"),
        *(_with("address", "a:b"), _with("http", "a:99999"), _with("http", "a:b"), _with("http", "a..b:1")),
        *(_with("page", "a\x1b[31m:1"), _with("token", "a\0b"), _with("ca", "\ud800")),
    ],
)
def test_a_file_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    """A damaged file counts as missing."""
    (tmp_path / ADDRESS_FILE).write_text(content, encoding="latin-1")
    assert read_addresses(tmp_path) is None


@pytest.mark.parametrize("content", ["", "x", "x y z", "x 127.0.0.1:99999", "x a:b", "x a..b:1", "\xff :1"])
def test_a_damaged_place_of_trainers_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    """No command fails at what stands in the place of an address."""
    (tmp_path / TRAINERS_FILE).write_text(content, encoding="latin-1")
    assert read_awaited(tmp_path) is None


def test_the_place_of_trainers_follows_no_link(tmp_path: Path) -> None:
    """A link in its place is replaced, and its target stays."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / TRAINERS_FILE).symlink_to("precious")
    write_awaited(tmp_path, AwaitedAddress("name", "127.0.0.1:1"))
    assert read_awaited(tmp_path) == AwaitedAddress("name", "127.0.0.1:1")
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize(
    ("http", "url"),
    [
        ("127.0.0.1:9464", "http://127.0.0.1:9464/"),
        ("[::1]:9464", "http://[::1]:9464/"),
        ("0.0.0.0:9464", "http://127.0.0.1:9464/"),
        ("[::]:9464", "http://[::1]:9464/"),
        ("learner:9464", "http://learner:9464/"),
        ("", ""),
    ],
)
def test_where_a_browser_finds_the_page(http: str, url: str) -> None:
    """The page of a learner on all addresses is at a loopback address."""
    assert page_url(http) == url


@pytest.mark.parametrize(
    ("http", "page", "tls", "url"),
    [
        ("0.0.0.0:9464", "", False, "http://127.0.0.1:9464/"),
        ("0.0.0.0:9464", "127.0.0.1:8000", False, "http://127.0.0.1:8000/"),
        ("0.0.0.0:9464", "0.0.0.0:8000", True, "https://127.0.0.1:8000/"),
        ("127.0.0.1:9464", "train.example:443", True, "https://train.example:443/"),
        ("", "127.0.0.1:8000", False, ""),
    ],
)
def test_links_name_the_published_address(http: str, page: str, tls: bool, url: str) -> None:
    """The page's link has the address at which people reach it, if it is another one than the learner's own."""
    assert BoundAddresses("127.0.0.1:1", http, tls=tls, page=page).page_url == url


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe, or deeply nested JSON, counts as missing."""
    (tmp_path / ADDRESS_FILE).write_text("[" * 50_000)
    assert read_addresses(tmp_path) is None
    (tmp_path / ADDRESS_FILE).unlink()
    os.mkfifo(tmp_path / ADDRESS_FILE)
    assert read_addresses(tmp_path) is None
