"""Finds reasons why a run cannot start, as far as they are visible without starting it.

`learner.training.run.requirements` has the checks that need torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.reading import check_demonstrations

from learner.shared.exits import ExitCode, UserError, refuse
from learner.shared.runfolder.names import LAST
from learner.shared.runfolder.runfolder import FoundFolder, check_run_folder
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.options import RunOptions
from learner.shared.settings.rules import (
    blocks,
    code_of_users,
    endless_lessons,
    missing_code,
    opponents_without_games,
    small_rings,
    unsupported,
)
from learner.training.export.frozen import UnusableModel, check_model
from learner.training.matches.players import ACTOR, opponent


def check_supported(loaded: LoadedRun) -> None:
    """Checks that the settings need no missing feature, and that the files that they name can be used.

    Raises:
        UserError: A check failed; ``details`` names every problem.
    """
    options = loaded.options
    refuse(ExitCode.RUN_FILE, "the run file has settings that are not supported", unsupported(options))
    service, checkpoints = options.rollcast, options.checkpoint_settings
    if service.resume_checkpoint != LAST and not checkpoints.resume:
        raise UserError(
            ExitCode.USAGE,
            f"checkpoint {service.resume_checkpoint} needs a run to resume: add --resume, or start a new run with "
            "--initialize-from or init_path",
        )
    ranks = os.environ.get("WORLD_SIZE", "1")
    if service.lockstep is not None and ranks != "1":
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.lockstep supports one learner process, but WORLD_SIZE is {ranks}: start the learner without "
            "a launcher (rollcast.trainers starts trainers), or remove rollcast.lockstep",
        )
    if not checkpoints.inference:  # acting needs none of these files
        for summary, find in _IN_FILES.items():
            refuse(ExitCode.RUN_FILE, summary, list(find(options)))


def missing_parts(loaded: LoadedRun) -> list[str]:
    """Returns one line for each demonstration, lesson and part of code in the settings that cannot be used."""
    options = loaded.options
    finders = () if options.checkpoint_settings.inference else _IN_FILES.values()
    found = [line for find in finders for line in find(options)]
    return [*found, *(error.message for error in missing_code(options, loaded.places))]


def check_folder(loaded: LoadedRun) -> FoundFolder:
    """Checks that ``serve`` can start in the run folder, and returns it; changes nothing.

    Raises:
        UserError: The folder does not allow it.
    """
    return check_run_folder(**folder_arguments(loaded.options))


def folder_arguments(options: RunOptions) -> dict[str, Any]:
    """Returns the arguments of `open_run_folder`."""
    return options.checkpoint_settings.model_dump(
        include={"results_dir", "run_id", "resume", "force", "initialize_from"}
    )


def has_requirements(options: RunOptions, found: FoundFolder) -> bool:
    """Returns whether `learner.training.run.requirements`, which loads torch, has anything to check.

    Args:
        options: The run file and the command line.
        found: The run folder.
    """
    service = options.rollcast
    if options.torch_settings.device not in {None, "cpu"} or service.lockstep is not None:
        return True
    if any(code_of_users(options)):
        return True
    if found.resuming:
        return service.resume_checkpoint != LAST
    return found.source is not None or any(settings.init_path for _, settings in blocks(options))


def check_start(loaded: LoadedRun) -> None:
    """Checks that settings, run folder and named files let ``serve`` start; changes nothing.

    Raises:
        UserError: They do not; the error has the exit code of ``serve``.
    """
    check_supported(loaded)
    token_file = loaded.options.rollcast.operator_token_file
    if loaded.options.rollcast.http and token_file is not None:
        from learner.service.web.operator_token import token_from_file  # noqa: PLC0415 - rarely needed

        token_from_file(Path(token_file))
    found = check_folder(loaded)
    if has_requirements(loaded.options, found):
        from learner.training.run.requirements import check_requirements  # noqa: PLC0415 - torch takes seconds to load

        check_requirements(loaded, found)


def _unusable_demonstrations(options: RunOptions) -> Iterator[str]:
    """Yields one line for each path without demonstrations; their fit is checked when the behavior is declared."""
    for path, settings in blocks(options):
        named = {
            "behavioral_cloning": settings.behavioral_cloning,
            "reward_signals.gail": settings.reward_signals.gail,
        }
        for key, block in named.items():
            if block is None:
                continue
            setting = f"{'.'.join(path)}.{key}.demo_path"
            if not Path(block.demo_path).exists():
                yield f"{setting}: {block.demo_path} does not exist; name a .demo file, or a folder of them"
                continue
            try:
                check_demonstrations(Path(block.demo_path))
            except BadDemonstration as error:
                yield f"{setting}: {error}"


def _unusable_opponents(options: RunOptions) -> Iterator[str]:
    """Yields one line for each frozen opponent without a model; its fit is checked when the behavior is declared."""
    for path, settings in blocks(options):
        named = {} if settings.self_play is None else settings.self_play.frozen_opponents
        for name, file in named.items():
            try:
                check_model(Path(file))
            except UnusableModel as error:
                yield f"{'.'.join(path)}.self_play.frozen_opponents.{name}: {file}: {error}"


def _missing_opponents(options: RunOptions) -> Iterator[str]:
    """Yields one line for each opponent of evaluations that does not exist; its fit is checked when the behavior is declared.

    Checkpoints of the run itself may be missing.
    """
    yield from opponents_without_games(options)
    checkpoints = options.checkpoint_settings
    results = Path(checkpoints.results_dir)
    for behavior in options.behaviors:
        for text in options.rollcast.evaluation.opponents:
            if text.startswith(("@", ACTOR)):
                continue
            try:
                found = opponent(text, behavior, results, results / checkpoints.run_id)
                if found.path is not None:
                    check_model(found.path)
            except UnusableModel as error:
                yield f"rollcast.evaluation.opponents: {text}: {error}"
            except UserError as error:
                yield f"rollcast.evaluation.opponents: {error.message}"


_IN_FILES: dict[str, Callable[[RunOptions], Iterator[str]]] = {
    "the run file names demonstrations that cannot be used": _unusable_demonstrations,
    "the run file names frozen opponents that cannot be used": _unusable_opponents,
    "the run file names opponents of evaluations that cannot play": _missing_opponents,
    "the run file has lessons that never end": endless_lessons,
    "rollcast.device_ring_steps is too small": small_rings,
}
"""Problems in the run file and its named files that prevent training: a summary, and the function that finds them."""
