"""What a run begins with: its seed, its device, and the settings that it keeps."""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

import structlog
import torch
from rollcast.limits import PROTOCOL_REVISION

from learner.checkpoints.runfolder import RunFolder
from learner.common.exits import ExitCode, UserError
from learner.common.files import WriteFailed
from learner.common.saved_values import count
from learner.observe.address import BoundAddresses, write_addresses
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.metrics.state import GpuMemory
from learner.observe.metrics.values import EPISODE_RETURN
from learner.settings.load import LoadedRun, effective_document
from learner.settings.options import RunOptions
from learner.settings.service import ServiceSettings, split_address

log = structlog.get_logger(__name__)


SEED_PART = "seed"
"""Where the seed is in what a run state holds besides."""
_MAX_SEED = 2**31 - 1
"""As in the run file."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's names of these are in its malloc.h."""
_KEPT_BLOCK_BYTES: Final = 32 * 2**20
"""The largest block that is kept: glibc takes no larger number."""
_KEPT_BYTES: Final = 256 * 2**20
REVISION_VARIABLE = "ROLLCAST_REVISION"
"""Set by whoever builds an image; names the commit it was built from."""


def choose_seed(options: RunOptions, saved: Mapping[str, Any]) -> int:
    """Returns the seed of the run: the one set, else that of the run that goes on, else a drawn one.

    Raises:
        UserError: what was saved is no seed.
    """
    if options.env_settings.seed >= 0:
        return options.env_settings.seed
    part = saved.get(SEED_PART)
    if not isinstance(part, dict) or "run" not in part:
        return secrets.randbelow(10_000)
    try:
        return count(part, "run", most=_MAX_SEED)
    except ValueError as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"the seed in the run state: {error}; set env_settings.seed, put back another copy of run_state.pt, or start "
            "anew with --force",
        ) from error


class Configuration:
    """The settings of a start, until they are kept in the run folder.

    Args:
        loaded: the settings.
        folder: of the run.
        seed: that was chosen.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder, seed: int) -> None:
        self._loaded: LoadedRun | None = loaded
        self._folder = folder
        self._seed = seed

    def keep(self) -> None:
        """Writes them once; where a run is resumed, not before its trainers took over the saved state.

        Raises:
            UserError: they cannot be written.
        """
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return
        document, sources = effective_document(loaded), dict(loaded.sources)
        block = document.get("env_settings")
        if isinstance(block, dict) and block.get("seed") != self._seed:
            block["seed"] = self._seed
            sources["env_settings.seed"] = "drawn"
        self._folder.write_configuration(document, sources)


def gpu_memory(device: torch.device) -> Callable[[], GpuMemory] | None:
    """Returns what reads the memory of the training device; None where that is not a GPU."""
    if device.type != "cuda":
        return None
    return lambda: GpuMemory(torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))


def choose_device(options: RunOptions) -> torch.device:
    """Chooses the device and the number of threads, and lets a GPU compute in float32.

    Actors do, and the log-probabilities of both are compared. With TF32, which torch takes for convolutions and LSTMs
    where nothing else is said, they would differ by more than what means that an actor has another policy.

    Raises:
        UserError: there is no such device, or it cannot be used in lock-step.
    """
    name = options.torch_settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            ExitCode.RUN_FILE, f"torch_settings.device is {name!r}, which cannot be used here: {reason}"
        ) from None
    torch.backends.cudnn.allow_tf32 = False
    service = options.rollcast
    if service.lockstep is not None:
        make_deterministic(device)
        torch.set_num_threads(service.torch_threads or 1)  # whatever machine it is repeated on
        return device
    # Half of the cores: simulators mostly run on the other half, and small networks gain nothing from more.
    torch.set_num_threads(service.torch_threads or max(1, len(os.sched_getaffinity(0)) // 2))
    return device


def keep_freed_memory() -> None:
    """Lets glibc keep what a minibatch frees for the next one; other C libraries are left as they are.

    It returns large blocks to the system, which gives them back as pages that must be zeroed: at minibatches of 1,024
    steps through two layers of 256, that takes 4 to 8 % of the time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def make_metrics(service: ServiceSettings) -> LearnerMetrics:
    """Returns the metrics of a learner, which say what runs."""
    metrics = LearnerMetrics(return_buckets=service.return_buckets or EPISODE_RETURN)
    metrics.set_build(version("rollcast"), os.environ.get(REVISION_VARIABLE, "unknown"), PROTOCOL_REVISION)
    return metrics


def with_port(address: str, port: int) -> str:
    """Returns an address with another port."""
    host, _ = split_address(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def announce(
    folder: RunFolder, bound: BoundAddresses, *, page: str, generation: int, seed: int, **more: object
) -> None:
    """Writes ``address.json``, and the line that people wait for.

    Args:
        folder: of the run.
        bound: where it listens.
        page: link to the status page; empty for none.
        generation: of this start.
        seed: of the run.
        more: further fields of the line.
    """
    try:
        write_addresses(folder.path, bound)
    except WriteFailed as error:
        log.error("address_not_written", error=str(error), action=f"operators need --control {bound.control}")
    log.info(
        "learner_started",
        run=folder.run_id,
        folder=str(folder.path),
        address=bound.address,
        control=bound.control,
        page=page or "off",
        security="plain text",
        generation=generation,
        resumed=folder.resuming,
        seed=seed,
        **more,
    )


WORKSPACE_VARIABLE: Final = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES: Final = (":4096:8", ":16:8")
"""Sizes under which cuBLAS adds up in one order, as its manual says."""
RANKS_VARIABLE: Final = "WORLD_SIZE"


def make_deterministic(device: torch.device, environ: Mapping[str, str] = os.environ) -> None:
    """Lets torch take algorithms that repeat their results, and fail where it has none.

    Args:
        device: of the training.
        environ: the process's environment.

    Raises:
        UserError: several learners share the run, or cuBLAS is told to work otherwise.
    """
    ranks = environ.get(RANKS_VARIABLE, "1")
    if ranks != "1":
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.lockstep is for one learner, and {RANKS_VARIABLE} is {ranks}: start it without torchrun, or remove "
            "rollcast.lockstep",
        )
    if device.type == "cuda":
        given = environ.get(WORKSPACE_VARIABLE)
        if given is not None and given not in WORKSPACES:
            raise UserError(
                ExitCode.RUN_FILE,
                f"{WORKSPACE_VARIABLE} is {given!r}, under which CUDA's results differ from run to run: rollcast.lockstep "
                f"needs {WORKSPACES[0]}; unset it, or remove rollcast.lockstep",
            )
        if given is None:
            os.environ[WORKSPACE_VARIABLE] = WORKSPACES[0]  # read when cuBLAS is first used
        torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(mode=True)
