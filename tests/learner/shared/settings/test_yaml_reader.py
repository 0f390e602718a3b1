"""Tests that run files are read strictly, with errors of one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.yaml_reader import MAX_FILE_BYTES, parse_value, read_document

from .conftest import WriteRun


def refusal(path: Path) -> str:
    """Returns the message with which a file is refused, and checks that it is one line with the right code."""
    with pytest.raises(UserError) as caught:
        read_document(path)
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_values_are_those_of_a_safe_loader_with_their_lines(write_run: WriteRun) -> None:
    """Values equal those of PyYAML's safe loader, and dates stay text."""
    document = read_document(write_run("a: 1\nb:\n  c: [1.5, 3e-4, null]\n  d: 2026-01-02\n  e: yes\n"))
    assert document.tree == {"a": 1, "b": {"c": [1.5, "3e-4", None], "d": "2026-01-02", "e": True}}
    assert document.lines["b", "d"] == 4


def test_keys_are_taken_as_written(write_run: WriteRun) -> None:
    """Keys such as 1 or on are read as text."""
    assert read_document(write_run("1: a\non: b\n")).tree == {"1": "a", "on": "b"}


def test_the_last_of_a_duplicate_key_counts(write_run: WriteRun) -> None:
    """As in PyYAML; the document tells of both lines."""
    document = read_document(write_run("a: {x: 1, y: 1}\nb: 2\na: {x: 3}\n"))
    assert document.tree == {"a": {"x": 3}, "b": 2}
    assert list(document.repeated) == [(("a",), 3, "is written twice, first on line 1: this one counts")]


def test_the_first_of_several_merged_maps_wins(write_run: WriteRun) -> None:
    """In a list under <<, earlier maps override later ones."""
    document = read_document(write_run("a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc:\n  <<: [*x, *y]\n"))
    assert document.tree["c"] == {"p": 1, "q": 2}


def test_an_alias_bomb_is_refused(write_run: WriteRun) -> None:
    """Nine levels of nine aliases are refused."""
    levels = ["l0: &l0 [x]"] + [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert "values, including those of aliases" in refusal(write_run("\n".join(levels)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- a\n- b\n", "not a map"),
        ("just words\n", "not a map"),
        ("a: [1,\n", "not YAML"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "tag"),
        ("a: !custom x\n", "tag"),
        ("a: !!int many\n", "not a int"),
        ("? [a, b]\n: 1\n", "key must be plain text"),
        ("a: &a [*a]\n", "nested more than"),
        ("a: " + "[" * 1100 + "]" * 1100, "nested more than"),
        ("<<: 3\n", "only merge maps"),
        ("a: \x07\n", "not YAML"),
        ("a: " + "9" * 5000 + "\n", "not a int"),
    ],
    ids=range(15),
)
def test_what_is_no_run_file_is_refused(write_run: WriteRun, text: str, expected: str) -> None:
    """A document that is not a map of plain values is refused with its own message."""
    assert expected in refusal(write_run(text))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    """A missing file, or a folder, is an error of one line."""
    assert "does not exist" in refusal(tmp_path / "none.yaml")
    assert "cannot be read" in refusal(tmp_path)


def test_a_file_in_another_encoding_names_the_line(tmp_path: Path) -> None:
    """A file that is not UTF-8 is refused with the line of the first invalid byte."""
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: 1\nb: é\n".encode("latin-1"))
    message = refusal(path)
    assert "latin.yaml:2" in message
    assert "UTF-8" in message


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    """A byte order mark is ignored."""
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_document(path).tree == {"a": 1}


def test_an_oversized_file_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    """An oversized file is refused without reading it whole."""
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#")
    os.truncate(path, MAX_FILE_BYTES * 100)
    assert "larger than" in refusal(path)


@pytest.mark.parametrize(("text", "expected"), [("{}", {}), ("[1, a]", [1, "a"]), ("", None), ("7", 7)])
def test_single_values_are_read(text: str, expected: object) -> None:
    """A value of --set is YAML."""
    assert expected == parse_value(text)


@pytest.mark.parametrize("text", ["[1,", "!!python/none", "{a: 1, a: 2}"])
def test_a_single_bad_value_is_refused_in_one_line(text: str) -> None:
    """An invalid value raises ValueError with one line."""
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_value(text)


@pytest.mark.parametrize(
    "number", ["0x" + 400 * "f", ":".join(600 * "1"), 400 * "9"], ids=["hex", "sexagesimal", "decimal"]
)
def test_a_number_beyond_all_floats_is_refused(write_run: WriteRun, number: str) -> None:
    """An integer that no float can be compared with is an error in its line."""
    assert ":2: " in refusal(write_run(f"a: 1\nb: {number}\n"))
