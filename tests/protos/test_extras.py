"""Tests how optional parts are installed."""

from __future__ import annotations

import importlib.metadata
import json
from types import SimpleNamespace
from typing import Any

import pytest
from rollcast import extras


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "'.[learner,certs]' in a clone of Rollcast"),
        ("{", "'.[learner,certs]' in a clone of Rollcast"),
        ({"url": "file:///src/roll%20cast", "dir_info": {}}, "'/src/roll cast[learner,certs]'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "-e '/src[learner,certs]'"),
        ({"url": "file:///tmp/r.whl", "archive_info": {}}, "'/tmp/r.whl[learner,certs]'"),
        ({"url": "https://host/r.whl", "archive_info": {}}, "'rollcast[learner,certs] @ https://host/r.whl'"),
        (
            {"url": "https://host/r.git", "vcs_info": {"vcs": "git", "commit_id": "1a"}},
            "'rollcast[learner,certs] @ git+https://host/r.git@1a'",
        ),
    ],
)
def test_extras_come_from_where_the_package_came(origin: Any, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package from a folder, a file, an address or a repository is named as such; without a known origin, a clone is."""
    text = origin if origin is None or isinstance(origin, str) else json.dumps(origin)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text))
    assert extras.install("learner,certs") == f"pip install {command}"
