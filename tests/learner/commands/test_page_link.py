"""The link to the page, found in a run folder."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.cli import main
from learner.commands.operator import page_link
from learner.common.exits import ExitCode, UserError
from learner.observe.address import BoundAddresses, write_addresses
from learner.web.operator_token import TOKEN_FILE, token_of_run


@pytest.fixture
def http() -> Iterator[str]:
    """An address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def folder_of(results: Path, http: str, name: str = "run") -> Path:
    """A run folder whose learner says that its page is there."""
    folder = results / name
    folder.mkdir()
    write_addresses(folder, BoundAddresses("127.0.0.1:1", "127.0.0.1:2", http))
    return folder


def test_the_link_has_the_token(tmp_path: Path, http: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The token is behind the #, which no browser sends to anybody."""
    token = token_of_run(folder_of(tmp_path, http)).reveal()
    assert page_link(None, tmp_path) == page_link("run", tmp_path) == f"http://{http}/#token={token}"
    assert main(["page", "--results-dir", str(tmp_path)]) == ExitCode.OK
    assert capsys.readouterr().out == f"http://{http}/#token={token}\n"


def test_without_a_token_of_its_own(tmp_path: Path, http: str) -> None:
    """The page asks for it."""
    folder_of(tmp_path, http)
    assert page_link(None, tmp_path) == f"http://{http}/"


def test_a_token_that_is_not_for_us(tmp_path: Path, http: str) -> None:
    """It is said that there is one."""
    folder = folder_of(tmp_path, http)
    token_of_run(folder)
    (folder / TOKEN_FILE).chmod(0o644)
    with pytest.raises(UserError, match="for the learner's user alone"):
        page_link(None, tmp_path)


@pytest.mark.parametrize(
    ("listens", "link"),
    [("0.0.0.0", "http://127.0.0.1"), ("127.0.0.1", "http://127.0.0.1")],  # noqa: S104
)
def test_a_learner_that_listens_everywhere_listens_here(tmp_path: Path, http: str, listens: str, link: str) -> None:
    """The link is for a browser on this machine."""
    port = http.rpartition(":")[2]
    folder_of(tmp_path, f"{listens}:{port}")
    assert page_link(None, tmp_path) == f"{link}:{port}/"


def test_who_cannot_be_found(tmp_path: Path, http: str) -> None:
    """Nobody, more than one, one without a page, one that is gone: each has its own words and next step."""
    with pytest.raises(UserError, match="no running learner"):
        page_link(None, tmp_path)
    with pytest.raises(UserError, match="no learner runs in that folder"):
        page_link("run", tmp_path)
    folder_of(tmp_path, "", "silent")
    with pytest.raises(UserError, match=r"rollcast\.http: true"):
        page_link(None, tmp_path)
    folder_of(tmp_path, "127.0.0.1:1", "gone")
    with pytest.raises(UserError, match="--resume") as caught:
        page_link("gone", tmp_path)
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    with pytest.raises(UserError, match="--run-id"):
        page_link(None, tmp_path)
