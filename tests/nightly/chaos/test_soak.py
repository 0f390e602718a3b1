"""Tests the soak."""

from pathlib import Path

import pytest

from tests.nightly.chaos.resources import slope_per_second
from tests.nightly.chaos.soak import ACTORS, soak


def test_the_slope_is_that_of_least_squares() -> None:
    """A line has its own slope, and noise around a constant has almost none."""
    assert slope_per_second([(second, 100 + 0.25 * second) for second in range(10)]) == pytest.approx(0.25)
    noise = (1.0, -1.0, -1.0, 1.0)
    assert slope_per_second([(float(second), value) for second, value in enumerate(noise)]) == pytest.approx(0.0)


@pytest.mark.timeout(600)
def test_every_process_is_measured(tmp_path: Path) -> None:
    """A short soak trains, and reports the memory of the service, of the trainers and of each actor."""
    found = soak(tmp_path, 25.0, 5.0, print)
    assert len(found) == 2 + ACTORS
    assert all(growth.mib > 20 for growth in found)
