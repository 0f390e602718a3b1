"""Initial setup of a run: its seed, its device, and the settings that it saves."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
import torch

from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.view import GpuUse
from learner.shared.platform import processors
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.saved_values import count
from learner.shared.settings.load import LoadedRun, effective_document
from learner.shared.settings.options import RunOptions
from learner.training.trainers.parts import RunPart, Trainers

log = structlog.get_logger(__name__)


SEED_PART = "seed"
"""Key of the seed in a run state."""
_MAX_SEED = 2**31 - 1
"""Largest seed, as in the run file."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""glibc's numbers for these parameters, from its malloc.h."""
_KEPT_BLOCK_BYTES: Final = 32 * 2**20
"""Largest block that is kept: glibc accepts no larger value."""
_KEPT_BYTES: Final = 256 * 2**20
_KEPT_HEAP_BYTES: Final = 64 * 2**20
"""Size of the heaps of glibc's threads: one is given back if the one before it has this much room, which it never has."""


def choose_seed(options: RunOptions, saved: Mapping[str, Any]) -> int:
    """Returns the seed of the run: the configured one, else that of the resumed run, else a random one.

    Raises:
        UserError: The saved value is not a seed.
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
            f"the seed in the run state is invalid: {error}; set env_settings.seed, restore another copy of run_state.pt, "
            "or start over with --force",
        ) from error


class Configuration(RunPart):
    """The settings of a start, until they are saved in the run folder.

    Args:
        loaded: The settings.
        folder: Folder of the run.
        seed: The chosen seed.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder, seed: int) -> None:
        self._loaded: LoadedRun | None = loaded
        self._folder = folder
        self._seed = seed

    def keep(self) -> None:
        """Saves the settings once. In a resumed run, call it only after the trainers have loaded the saved state.

        Raises:
            UserError: The files cannot be written.
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

    def after_turn(self, trainers: Trainers) -> None:
        """Saves the settings after trainers have loaded their state."""
        del trainers
        try:
            self.keep()
        except UserError as error:  # does not end a run that has begun
            log.error("configuration_not_kept", error=error.message)


def gpu_use(device: torch.device) -> Callable[[], GpuUse] | None:
    """Returns a function that reads the memory and the use of the training device; None if it is not a GPU."""
    if device.type != "cuda":
        return None
    total = torch.cuda.get_device_properties(device).total_memory
    has_nvml = importlib.util.find_spec("pynvml") is not None  # of the extra gpu

    def read() -> GpuUse:
        busy = _gpu_busy(device) if has_nvml else None
        return GpuUse(torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device), total, busy)

    return read


def _gpu_busy(device: torch.device) -> float | None:
    """Returns the share of time in which the device computed; None if NVML does not say, as on a part of a device."""
    try:
        return torch.cuda.utilization(device) / 100.0
    except Exception as error:  # noqa: BLE001 - pynvml's errors are its own
        log.debug("gpu_use_unknown", error=str(error))
        return None


def usable_device(options: RunOptions) -> torch.device:
    """Returns the device to train on; changes nothing.

    Raises:
        UserError: The device does not exist.
    """
    name = options.torch_settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            ExitCode.RUN_FILE,
            f"torch_settings.device is {name!r}, which cannot be used here: {reason}; set it to cpu, or remove it",
        ) from None
    return device


def choose_device(options: RunOptions, rank: int = 0, ranks: int = 1) -> torch.device:
    """Selects the device and the number of threads, and makes a GPU compute in float32.

    Actors compute in float32, and log-probabilities of both sides are compared. With TF32, torch's default for
    convolutions and LSTMs, they would differ by more than the limit that indicates another policy.

    Args:
        options: The run file.
        rank: Number of this process among those that share the machine.
        ranks: Number of these processes, which share its GPUs and cores.

    Raises:
        UserError: The device does not exist or cannot be used in lock-step.
    """
    device = usable_device(options)
    if ranks > 1 and device.type == "cuda" and device.index is None:
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.backends.cudnn.allow_tf32 = False
    service = options.rollcast
    if service.lockstep is not None:
        make_deterministic(device)
        torch.set_num_threads(service.torch_threads or 1)  # the same on every machine
        return device
    # Half of the cores: simulators mostly run on the other half, and small networks gain nothing from more.
    torch.set_num_threads(service.torch_threads or max(1, processors() // (2 * ranks)))
    return device


def keep_freed_memory() -> None:
    """Makes glibc keep the memory that a minibatch frees for the next one; does nothing with other C libraries.

    By default, glibc returns large blocks to the system, which provides them again as pages that must be zeroed: at
    minibatches of 1,024 steps through two layers of 256, this takes 4 to 8 % of the time. Threads other than the first
    have heaps of 64 MiB, which it returns whole: in a tower of 2 x 32 on shogi, a quarter of the trainer's time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_TOP_PAD, _KEPT_HEAP_BYTES)


WORKSPACE_VARIABLE: Final = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES: Final = (":4096:8", ":16:8")
"""Workspace sizes with which cuBLAS adds in a fixed order, according to its manual."""


def make_deterministic(device: torch.device, environ: Mapping[str, str] = os.environ) -> None:
    """Makes torch use deterministic algorithms and fail where it has none.

    Args:
        device: Training device.
        environ: Environment variables of the process.

    Raises:
        UserError: cuBLAS is configured differently.
    """
    require_repeatable(device, environ)
    if device.type == "cuda":
        if environ.get(WORKSPACE_VARIABLE) is None:
            os.environ[WORKSPACE_VARIABLE] = WORKSPACES[0]  # read when cuBLAS is first used
        torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(mode=True)


def require_repeatable(device: torch.device, environ: Mapping[str, str] = os.environ) -> None:
    """Checks that torch can repeat its results in this process.

    Args:
        device: Training device.
        environ: Environment variables of the process.

    Raises:
        UserError: cuBLAS is configured differently.
    """
    if device.type == "cuda":
        given = environ.get(WORKSPACE_VARIABLE)
        if given is not None and given not in WORKSPACES:
            raise UserError(
                ExitCode.RUN_FILE,
                f"{WORKSPACE_VARIABLE} is {given!r}, which makes CUDA's results differ between runs, but rollcast.lockstep "
                f"needs equal results: set it to {WORKSPACES[0]}, unset it, or remove rollcast.lockstep",
            )
