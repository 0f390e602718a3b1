"""Tests that errors of environments show the user's code and not Rollcast's frames."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actor_client.envs.errors import EnvironmentFailed, UnknownEnvironment
from actor_client.envs.factory import make_env_batch
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.tracebacks import MOST_LINES, place_of, place_of_thread, traceback_of
from tests.actor_client.envs import toys

TOYS = r"tests/actor_client/envs/toys\.py:\d+\)$"


def raised(call: Callable[[], object]) -> Exception:
    """Returns what a call raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        call()
    return caught.value


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: toys.Toy(step_fails=(0,)), "step 0 fails"),
        (toys.OldStep, "step must return observation"),
        (toys.wrong_shape, "shape"),
        (toys.OldReset, "reset must return observation"),
        (lambda: toys.Toy(reset_fails=(0,)), "reset 0 fails"),
    ],
)
def test_failures_name_the_place_in_the_users_code(make: Callable[[], Any], text: str) -> None:
    """The place of a failure is the line that raised, or the method that returned wrong values."""
    with pytest.raises(EnvironmentFailed, match=TOYS) as caught:  # noqa: PT012 - any of the steps
        batch = ScalarBatch([make()], "Toy")
        batch.reset([1])
        for _ in range(3):
            batch.step(None, np.zeros((1, 1), np.int32))
    assert text in caught.value.message


def test_construction_shows_the_users_frames() -> None:
    """A failed constructor shows the place and a traceback that starts in the user's code."""
    with pytest.raises(UnknownEnvironment, match=TOYS) as caught:
        make_env_batch(f"{toys.MODULE}:broken", num_envs=1)
    assert "in broken" in caught.value.traceback
    assert "factory.py" not in caught.value.traceback


def test_a_module_that_cannot_be_imported_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with a syntax error is reported with its line."""
    (tmp_path / "misspelled_toy.py").write_text("good = 1\nclass Env(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(UnknownEnvironment, match=r"misspelled_toy\.py:2\)$"):
        make_env_batch("misspelled_toy:Env", num_envs=1)


def test_a_traceback_is_bounded_and_printable() -> None:
    """A traceback is limited in length and stripped of escape sequences."""

    def fail() -> None:
        raise ValueError("\x1b[2J" + "line\n" * 1000 + "the last\udc80")

    error = raised(fail)
    lines = traceback_of(error).splitlines()
    assert len(lines) == MOST_LINES + 1
    assert all(line.isprintable() for line in lines)
    assert lines[-1] == "the last\\udc80"
    assert place_of(error).partition(":")[0] == "tests/actor_client/envs/test_tracebacks.py"


def test_frames_above_rollcasts_are_not_the_users() -> None:
    """An argument that gymnasium refuses has no traceback, and the caller of Rollcast is not its place."""
    error = raised(lambda: make_env_batch("CartPole-v1", num_envs=1, env_kwargs={"nonsense": 1}))
    assert place_of(error) == ""
    assert isinstance(error, UnknownEnvironment)
    assert not error.traceback


def test_the_place_of_a_thread_is_the_line_where_it_hangs() -> None:
    """The place of a hanging thread is the user's line, not one of the standard library."""
    begun, done = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        done.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    try:
        begun.wait()
        assert thread.ident is not None
        assert place_of_thread(thread.ident).startswith("tests/actor_client/envs/test_tracebacks.py:")
    finally:
        done.set()
        thread.join()
