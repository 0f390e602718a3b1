"""Tests that the advice of messages helps: each is carried out, and the command then works or fails at the next thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.advised import ACTOR, LEARNER, Cause, Desk

CAUSES = (*LEARNER, *ACTOR)


@pytest.mark.parametrize("cause", CAUSES, ids=[cause.name for cause in CAUSES])
def test_the_advice_helps(cause: Cause, tmp_path: Path) -> None:
    """The message names what helps; with that done, its error is gone."""
    desk = Desk(tmp_path)
    for name, text in cause.files.items():
        desk.write(name, text)
    if cause.name == "certificates a second time":
        desk.succeeds(cause.line)
    desk.environment = dict(cause.variables)
    code, out, err = desk.run(cause.line)
    assert code == cause.code, out + err
    last = err.rstrip().rpartition("\n")[2]
    match = re.search(cause.advice, last)
    assert last.startswith("error: ")
    assert match, last
    line = cause.mend(desk, match, cause.line)
    then, out, err = desk.run(line)
    assert then == cause.then, f"{line}\n{out}{err}"
    assert last not in err
