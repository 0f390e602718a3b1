"""Tests how free memory is measured."""

from __future__ import annotations

from pathlib import Path

from learner.shared.platform import available_bytes


def test_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path: Path) -> None:
    """Free memory is the smaller of machine and container, whose limit is in files of version 2 or 1."""
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    cgroup.mkdir()
    everything = available_bytes(meminfo, cgroup)
    assert everything > 2**28
    meminfo.write_text("MemTotal:   4000 kB\nMemAvailable:   3000 kB\n")
    assert available_bytes(meminfo, cgroup) == 3000 * 1024
    (cgroup / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, cgroup) == 3000 * 1024
    (cgroup / "memory.max").write_text("1000000\n")
    (cgroup / "memory.current").write_text("400000\n")
    assert available_bytes(meminfo, cgroup) == 600_000
    (cgroup / "memory.max").unlink()
    assert available_bytes(meminfo, cgroup) == 3000 * 1024
    (cgroup / "memory").mkdir()
    (cgroup / "memory" / "memory.limit_in_bytes").write_text("900000\n")
    (cgroup / "memory" / "memory.usage_in_bytes").write_text("400000\n")
    assert available_bytes(meminfo, cgroup) == 500_000
    (cgroup / "memory.max").write_text("1000000\n")
    meminfo.write_text("MemAvailable:\n")
    assert available_bytes(meminfo, cgroup) == 600_000
    assert 0 < available_bytes() <= everything
