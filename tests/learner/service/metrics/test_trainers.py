"""Tests of what the metrics say of the trainers' process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from learner.service.metrics.learner import TrainersCollector

CPU = "rollcast_learner_trainers_cpu_seconds_total"
MEMORY = "rollcast_learner_trainers_resident_memory_bytes"
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "data = bytes(range(256)) * (1 << 18); print(flush=True); input()"])
child.wait()
"""


@pytest.mark.slow
def test_children_count_and_the_ended_have_no_series() -> None:
    """A process with a child of 64 MiB uses more than that; nothing is said of one that has ended."""
    registry = CollectorRegistry()
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        parent.stdout.readline()
        registry.register(TrainersCollector(parent.pid))
        memory, seconds = registry.get_sample_value(MEMORY), registry.get_sample_value(CPU)
        assert memory is not None
        assert seconds is not None
        assert memory > 64 << 20
        assert seconds > 0
        parent.stdin.write(b"\n")
        parent.stdin.close()
        parent.wait()
        assert registry.get_sample_value(MEMORY) is registry.get_sample_value(CPU) is None
