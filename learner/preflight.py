"""What would keep a run from starting, as far as it can be seen without starting it; nothing here needs torch."""

from __future__ import annotations

from learner.checkpoints.runfolder import check_run_folder
from learner.exits import ExitCode, UserError
from learner.settings import LoadedRun, unsupported


def check_supported(loaded: LoadedRun) -> None:
    """Looks whether the settings ask for what is not built yet.

    Raises:
        UserError: they do; ``details`` names all of it.
    """
    problems = unsupported(loaded.options)
    if problems:
        raise UserError(ExitCode.RUN_FILE, "the run file asks for what is not built yet", problems)


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
