"""Tests that profiles are read by stop."""

import cProfile
import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollcast.specs import BehaviorSpec

from tests.protos.builders import CARTPOLE
from tests.tools.bench.stops import OTHER, STOPS, shares, stop_of


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Disables garbage collection while a profile is taken."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_time_in_libraries_belongs_to_whoever_called_them(tmp_path: Path) -> None:
    """Time in libraries belongs to their callers, and that of tests to no stop."""
    profile = cProfile.Profile()

    def work() -> None:
        for _ in range(200):
            BehaviorSpec.from_message(CARTPOLE.to_message())
        json.dumps(list(range(20_000)))

    profile.runcall(work)
    profile.dump_stats(tmp_path / "profile")
    found = shares(tmp_path / "profile")
    assert sum(found.stops.values()) == pytest.approx(found.seconds)
    assert set(found.stops) == {"3 encode, decode", OTHER}
    assert all(seconds > 0 for seconds in found.stops.values())


def test_functions_outside_the_packages_have_no_stop() -> None:
    """Tests and libraries have no stop."""
    assert stop_of((__file__, 1, "work")) is None
    assert stop_of((json.__file__, 1, "dumps")) is None


def test_every_stop_is_there() -> None:
    """Each stop names an existing module or package."""
    root = Path(__file__).resolve().parents[3]
    gone = [place for place, _ in STOPS if not (root / place).is_dir() and not (root / f"{place}.py").exists()]
    assert gone == []
