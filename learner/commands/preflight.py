"""What would keep a run from starting, as far as it can be seen without starting it; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from learner.checkpoints.names import LAST
from learner.checkpoints.runfolder import check_run_folder
from learner.common import plugins
from learner.common.exits import ExitCode, UserError
from learner.settings.load import LoadedRun
from learner.settings.options import RunOptions
from learner.settings.rules import unsupported
from learner.settings.service import OWN_STATS_WRITERS


def check_supported(loaded: LoadedRun) -> None:
    """Looks whether the settings ask for what is not built yet, or for demonstrations or code that are not there.

    Code of the user's is imported, and not called.

    Raises:
        UserError: they do; ``details`` names all of it.
    """
    problems = unsupported(loaded.options)
    if problems:
        raise UserError(ExitCode.RUN_FILE, "the run file asks for what is not built yet", problems)
    service, checkpoints = loaded.options.rollcast, loaded.options.checkpoint_settings
    if service.resume_checkpoint != LAST and not checkpoints.resume:
        raise UserError(
            ExitCode.USAGE,
            f"--checkpoint {service.resume_checkpoint} says what a resumed run goes on from, and none is resumed: give "
            "--resume, or begin another run with --initialize-from and init_path",
        )
    missing = list(_missing_demonstrations(loaded.options))
    if missing:
        raise UserError(ExitCode.RUN_FILE, "the run file names demonstrations that are not there", missing)
    for error in _missing_code(loaded.options):
        raise error


def missing_parts(options: RunOptions) -> list[str]:
    """Returns one line for each demonstration, statistics writer and callback that the settings name and is not there."""
    return [*_missing_demonstrations(options), *(error.message for error in _missing_code(options))]


def _missing_demonstrations(options: RunOptions) -> Iterator[str]:
    """Yields one line for each path without a file or folder; what is in it is read when its behavior comes."""
    blocks = {f"behaviors.{name}": settings for name, settings in options.behaviors.items()}
    if options.default_settings is not None:
        blocks["default_settings"] = options.default_settings
    for path, settings in blocks.items():
        named = {
            "behavioral_cloning": settings.behavioral_cloning,
            "reward_signals.gail": settings.reward_signals.gail,
        }
        for key, block in named.items():
            if block is not None and not Path(block.demo_path).exists():
                yield f"{path}.{key}.demo_path: {block.demo_path} does not exist; name a .demo file, or a folder of them"


def _missing_code(options: RunOptions) -> Iterator[UserError]:
    """Yields an error for each writer and callback that cannot be imported; acting alone needs neither."""
    if options.checkpoint_settings.inference:
        return
    service = options.rollcast
    # What their groups of entry points are called, too.
    named = {"rollcast.stats_writers": service.stats_writers, "rollcast.callbacks": service.callbacks}
    for setting, names in named.items():
        own = dict.fromkeys(OWN_STATS_WRITERS if setting == "rollcast.stats_writers" else (), print)
        for name in dict.fromkeys(names):
            try:
                plugins.find(setting, name, setting, own)
            except UserError as error:
                yield error
    if "wandb" in service.stats_writers and find_spec("wandb") is None:
        yield UserError(
            ExitCode.MISSING_EXTRA,
            "rollcast.stats_writers names wandb, but the module 'wandb' is not installed; in the checkout: pip install "
            "'.[wandb]'",
        )


def check_start(loaded: LoadedRun) -> None:
    """Looks whether the settings and the run folder would let ``serve`` start; changes nothing.

    Raises:
        UserError: they would not, with the exit code that ``serve`` would end with.
    """
    check_supported(loaded)
    checkpoints = loaded.options.checkpoint_settings
    check_run_folder(
        checkpoints.results_dir,
        checkpoints.run_id,
        resume=checkpoints.resume,
        force=checkpoints.force,
        initialize_from=checkpoints.initialize_from,
    )
