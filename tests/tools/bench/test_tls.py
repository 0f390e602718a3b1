"""Tests the measurement with and without TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.bench.measurement import Figures, MeasurementFailed, Series
from tests.tools.bench.tls_runs import BYTES_PER_SECOND, CPU_SECONDS_PER_GB, INGEST, TLS, PixelIngest, ingest_figures
from tests.tools.bench.tls_table import render
from tests.tools.bench.workplace import Workplace


def test_a_rate_is_of_the_bytes_that_were_acked() -> None:
    """Two seconds with 2,000 pictures of 84 x 84 bytes are 7 MB a second."""
    figures = ingest_figures({"at": 1.0, "acked_steps": 1000}, {"at": 3.0, "acked_steps": 3000}, 0.5).values
    assert figures[BYTES_PER_SECOND] == 7_056_000
    assert figures[CPU_SECONDS_PER_GB] == pytest.approx(0.5 / 0.007056)
    with pytest.raises(MeasurementFailed, match="no picture was acked"):
        ingest_figures({"at": 1.0, "acked_steps": 5}, {"at": 3.0, "acked_steps": 5}, 0.5)


def test_the_table_compares_pairs() -> None:
    """The ratio is that of the rounds that both have."""
    plain, tls = Series(INGEST, "plain"), Series(f"{INGEST}{TLS}", "TLS")
    for index, (one, other) in enumerate(((200e6, 100e6), (100e6, 90e6))):
        plain.rounds.append(Figures({BYTES_PER_SECOND: one}, round_index=index))
        tls.rounds.append(Figures({BYTES_PER_SECOND: other}, round_index=index))
    lines = render({each.name: each for each in (plain, tls)}).splitlines()
    assert "0.700 (0.500-0.900)" in lines[1]


@pytest.mark.slow
@pytest.mark.parametrize("is_tls", [False, True])
def test_pictures_arrive(is_tls: bool, tmp_path: Path) -> None:
    """Real processes send pictures, with TLS and a token too."""
    ingest = PixelIngest(Workplace(tmp_path), is_tls=is_tls, seconds=1.0)
    ingest.prepare()
    assert ingest.measure(0).values[BYTES_PER_SECOND] > 0
