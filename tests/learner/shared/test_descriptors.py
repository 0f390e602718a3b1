"""Tests which errors are a shortage of file descriptors, and that it is waited out."""

from __future__ import annotations

import errno

import pytest

from learner.shared.descriptors import lacks_descriptors, with_descriptors
from tests.learner.training.run.test_faults import caused


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (OSError(errno.EMFILE, "too many open files"), True),
        (caused(ValueError("cannot be exported"), OSError(errno.ENFILE, "too many open files")), True),
        (OSError(errno.ENOSPC, "no space left"), False),
        (ValueError("too many open files"), False),
    ],
)
def test_a_shortage_of_descriptors_is_recognized(error: Exception, lacks: bool) -> None:
    """Errors of opening files beyond a limit are told from others."""
    assert lacks_descriptors(error) is lacks


@pytest.mark.parametrize(("number", "is_over"), [(errno.EACCES, False), (errno.EMFILE, True)])
def test_other_faults_are_not_repeated(number: int, is_over: bool) -> None:
    """A function that fails for another reason is called once, and so is one whose result nobody needs."""
    calls = []

    def fail() -> None:
        calls.append(1)
        raise OSError(number, "it fails")

    with pytest.raises(OSError, match="it fails"):
        with_descriptors(fail, until=lambda: is_over)
    assert len(calls) == 1
