"""Tests how a run is prepared."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.view import GpuUse
from learner.shared.settings.options import RunOptions
from learner.training.run.setup import WORKSPACE_VARIABLE, choose_device, choose_seed, gpu_use, make_deterministic
from tests.learner.process import process_as_before


def options(seed: int = -1) -> RunOptions:
    """Returns a run file with a seed; -1 means none."""
    return RunOptions.model_validate({"env_settings": {"seed": seed}})


def test_a_run_that_goes_on_keeps_its_seed() -> None:
    """A resumed run keeps its seed unless the run file sets one."""
    saved = {"seed": {"run": 7}}
    assert choose_seed(options(), saved) == 7
    assert choose_seed(options(3), saved) == 3
    assert 0 <= choose_seed(options(), {}) < 10_000


@pytest.mark.parametrize("seed", [2**70, -1, True, "7", 1.5, None])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    """An invalid seed is refused at the start."""
    with pytest.raises(
        UserError, match=r"the seed in the run state is invalid: run is .*, but must be a whole number"
    ) as caught:
        choose_seed(options(), {"seed": {"run": seed}})
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores torch's settings and the environment."""
    monkeypatch.delenv(WORKSPACE_VARIABLE, raising=False)
    with process_as_before():
        yield


def test_a_gpu_computes_in_float32() -> None:
    """TF32 is disabled on GPUs."""
    torch.backends.cudnn.allow_tf32 = True
    choose_device(RunOptions.model_validate({"torch_settings": {"device": "cpu"}}))
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_torch_takes_algorithms_that_repeat_their_results() -> None:
    """Lock-step uses deterministic algorithms and one thread by default."""
    options = {"torch_settings": {"device": "cpu"}}
    choose_device(RunOptions.model_validate(options))
    assert not torch.are_deterministic_algorithms_enabled()
    choose_device(RunOptions.model_validate({**options, "rollcast": {"lockstep": {}}}))
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 1
    choose_device(RunOptions.model_validate({**options, "rollcast": {"lockstep": {}, "torch_threads": 2}}))
    assert torch.get_num_threads() == 2


def test_cuda_gets_the_workspace_that_it_needs() -> None:
    """CUBLAS_WORKSPACE_CONFIG is set in lock-step if absent, and refused if not deterministic."""
    make_deterministic(CUDA, {})
    assert os.environ[WORKSPACE_VARIABLE] == ":4096:8"
    make_deterministic(CUDA, {WORKSPACE_VARIABLE: ":16:8"})
    with pytest.raises(UserError, match=":4096:8") as caught:
        make_deterministic(CUDA, {WORKSPACE_VARIABLE: ":4096:2:16:8"})
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert WORKSPACE_VARIABLE in caught.value.message


@pytest.mark.nightly
@pytest.mark.parametrize("thread", [False, True])
def test_freed_memory_is_kept(thread: bool) -> None:
    """Freed memory is reused, also by a thread that fills several heaps: repeated allocations cause no new page faults."""
    program = (
        "import resource, threading, torch\n"
        "from learner.training.run.setup import keep_freed_memory\n"
        "keep_freed_memory()\n"
        "def new_pages():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    blocks = [torch.empty(2**20).zero_() for _ in range(40)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "def run():\n"
        f"    for _ in range({3 if thread else 1}):\n"
        "        new_pages()\n"
        "    print(sum(new_pages() for _ in range(5)))\n"
    )
    program += "thread = threading.Thread(target=run)\nthread.start()\nthread.join()\n" if thread else "run()\n"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(found.stdout) < 2_000


@pytest.mark.parametrize("is_there", [True, False])
def test_how_busy_the_gpu_is(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    """With NVML's package the use of the device is read; without it, or if NVML fails, it is unknown."""
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=3))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2)
    monkeypatch.setattr(torch.cuda, "utilization", lambda _: 37)
    monkeypatch.setattr("learner.training.run.setup.importlib.util.find_spec", lambda _: object() if is_there else None)
    read = gpu_use(device)
    assert read is not None
    assert read() == GpuUse(1, 2, 3, 0.37 if is_there else None)

    def fail(_: torch.device) -> int:
        raise RuntimeError("NVML: not supported")

    monkeypatch.setattr(torch.cuda, "utilization", fail)
    assert read() == GpuUse(1, 2, 3, None)
    assert gpu_use(torch.device("cpu")) is None
