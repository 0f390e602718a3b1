"""Measures the load of device and host: the share of time in which a kernel ran, and this process's cores."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from typing import Self

import torch

_SAMPLE_MILLISECONDS = 200


@dataclass(slots=True)
class Occupancy:
    """The load over a period; complete when the block of `watched` ends.

    Attributes:
        device: Share of the time in which a kernel ran; None if no one knows.
        host_cores: How many cores this process kept busy.
    """

    device: float | None = None
    host_cores: float = 0.0

    @classmethod
    @contextmanager
    def watched(cls, device: torch.device) -> Iterator[Self]:
        """Measures the load while the block runs."""
        found = cls()
        sampler = _sampler(device)
        begun, used = time.perf_counter(), time.process_time()
        try:
            yield found
        finally:
            found.host_cores = (time.process_time() - used) / (time.perf_counter() - begun)
            if sampler is not None:
                sampler.terminate()
                output, _ = sampler.communicate()
                found.device = mean_share(output)

    def shown(self) -> str:
        """Returns it in words."""
        device = "device not asked" if self.device is None else f"device {self.device:.0%} busy"
        return f"{device}, host {self.host_cores:.1f} of {len(os.sched_getaffinity(0))} cores"

    def figures(self) -> Mapping[str, float]:
        """Returns it as numbers."""
        known = {} if self.device is None else {"device_busy": self.device}
        return {**known, "host_cores": self.host_cores}


def mean_share(output: str) -> float | None:
    """Reads the lines of nvidia-smi, a percentage each; the last one may be torn, and some say [N/A]."""
    shares = [int(line) / 100.0 for line in output.splitlines() if line.strip().isdigit()]
    return mean(shares) if shares else None


def _sampler(device: torch.device) -> "subprocess.Popen[str] | None":
    """Starts nvidia-smi, if there is one."""
    program = shutil.which("nvidia-smi")
    if device.type != "cuda" or program is None:
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"--id=GPU-{uuid}"]
    command = [program, *query, f"--loop-ms={_SAMPLE_MILLISECONDS}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
