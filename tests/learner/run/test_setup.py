"""What a run begins with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from learner.common.exits import ExitCode, UserError
from learner.run.setup import WORKSPACE_VARIABLE, choose_device, choose_seed, make_deterministic
from learner.settings.options import RunOptions
from tests.learner.process import process_as_before


def options(seed: int = -1) -> RunOptions:
    """A run file with a seed; -1 leaves it open."""
    return RunOptions.model_validate({"env_settings": {"seed": seed}})


def test_a_run_that_goes_on_keeps_its_seed() -> None:
    """Unless the run file sets one; a new run draws one."""
    saved = {"seed": {"run": 7}}
    assert choose_seed(options(), saved) == 7
    assert choose_seed(options(3), saved) == 3
    assert 0 <= choose_seed(options(), {}) < 10_000


@pytest.mark.parametrize("seed", [2**70, -1, True, "7", 1.5, None])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    """Random generators would refuse it once the first actor is there."""
    with pytest.raises(UserError, match=r"the seed in the run state: run is .*, and must be a whole number") as caught:
        choose_seed(options(), {"seed": {"run": seed}})
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts back what torch was told, and what the environment said."""
    monkeypatch.delenv(WORKSPACE_VARIABLE, raising=False)
    with process_as_before():
        yield


def test_a_gpu_computes_in_float32() -> None:
    """As actors do; torch would take TF32 for convolutions and LSTMs."""
    torch.backends.cudnn.allow_tf32 = True
    choose_device(RunOptions.model_validate({"torch_settings": {"device": "cpu"}}))
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_torch_takes_algorithms_that_repeat_their_results() -> None:
    """In lock-step it does, with one thread unless the run file says otherwise; else it may choose."""
    options = {"torch_settings": {"device": "cpu"}}
    choose_device(RunOptions.model_validate(options))
    assert not torch.are_deterministic_algorithms_enabled()
    choose_device(RunOptions.model_validate({**options, "rollcast": {"lockstep": {}}}))
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 1
    choose_device(RunOptions.model_validate({**options, "rollcast": {"lockstep": {}, "torch_threads": 2}}))
    assert torch.get_num_threads() == 2


def test_cuda_gets_the_workspace_that_it_needs() -> None:
    """Where nobody chose one it is set; one under which sums differ is refused, with the one that would do."""
    make_deterministic(CUDA, {})
    assert os.environ[WORKSPACE_VARIABLE] == ":4096:8"
    make_deterministic(CUDA, {WORKSPACE_VARIABLE: ":16:8"})
    with pytest.raises(UserError, match=":4096:8") as caught:
        make_deterministic(CUDA, {WORKSPACE_VARIABLE: ":4096:2:16:8"})
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert WORKSPACE_VARIABLE in caught.value.message


def test_several_learners_are_refused() -> None:
    """The variable of torchrun says how many there are."""
    make_deterministic(CPU, {"WORLD_SIZE": "1"})
    with pytest.raises(UserError, match="WORLD_SIZE is 2"):
        make_deterministic(CPU, {"WORLD_SIZE": "2"})


def test_freed_memory_is_kept() -> None:
    """Forty blocks of 1 MiB that are taken and freed five times are the same pages each time; else 20,000 would be new."""
    program = (
        "import resource, torch\n"
        "from learner.run.setup import keep_freed_memory\n"
        "keep_freed_memory()\n"
        "def new_pages():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    blocks = [torch.empty(2**18).zero_() for _ in range(40)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "new_pages()\n"
        "print(sum(new_pages() for _ in range(5)))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(found.stdout) < 2_000
