"""Finds reasons why a run cannot start, as far as they are visible without starting it.

torch is imported only for checks that need it: of checkpoints, devices and users' code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.reading import check_demonstrations
from rollcast.extras import install

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.foreign import foreign_run
from learner.shared.runfolder.names import LAST, NEWEST, initial_checkpoint
from learner.shared.runfolder.runfolder import FoundFolder, check_run_folder
from learner.shared.settings.extensions import ENCODERS, load
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.network import VISUAL_ENCODERS, NetworkSettings
from learner.shared.settings.options import RunOptions
from learner.shared.settings.rewards import LearnedSignalSettings
from learner.shared.settings.rules import endless_lessons, opponents_without_games, small_rings, unsupported
from learner.shared.settings.service import OWN_STATS_WRITERS
from learner.shared.settings.trainer import TrainerSettings
from learner.training.export.frozen import UnusableModel, check_model
from learner.training.matches.players import ACTOR, opponent


def check_supported(loaded: LoadedRun) -> None:
    """Checks that the settings need no missing feature, and that their files, code and devices can be used.

    Users' code is imported but not called.

    Raises:
        UserError: A check failed; ``details`` names every problem.
    """
    options = loaded.options
    _refuse(ExitCode.RUN_FILE, "the run file has settings that are not supported", unsupported(options))
    service, checkpoints = options.rollcast, options.checkpoint_settings
    if service.resume_checkpoint != LAST and not checkpoints.resume:
        raise UserError(
            ExitCode.USAGE,
            f"checkpoint {service.resume_checkpoint} needs a run to resume: add --resume, or start a new run with "
            "--initialize-from or init_path",
        )
    if not checkpoints.inference:  # acting needs none of these files
        for summary, find in _IN_FILES.items():
            _refuse(ExitCode.RUN_FILE, summary, list(find(options)))
    for error in _missing_code(options):
        raise error
    _check_device(options)


def missing_parts(options: RunOptions) -> list[str]:
    """Returns one line for each demonstration, lesson and part of code in the settings that cannot be used."""
    finders = () if options.checkpoint_settings.inference else _IN_FILES.values()
    found = [line for find in finders for line in find(options)]
    return [*found, *(error.message for error in _missing_code(options))]


def check_folder(loaded: LoadedRun) -> None:
    """Checks that ``serve`` can start in the run folder and load the checkpoints that it starts from; changes nothing.

    Raises:
        UserError: The folder does not allow it, or a checkpoint is missing, damaged, or another trainer's.
    """
    checkpoints = loaded.options.checkpoint_settings
    found = check_run_folder(
        checkpoints.results_dir,
        checkpoints.run_id,
        resume=checkpoints.resume,
        force=checkpoints.force,
        initialize_from=checkpoints.initialize_from,
    )
    if found.resuming:
        _check_resumed(loaded.options, found.path)
    else:
        _check_initial(loaded.options, found)


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
    check_folder(loaded)


def _refuse(code: ExitCode, summary: str, problems: Sequence[str]) -> None:
    """Raises an error if there are problems; a single one becomes the message."""
    if len(problems) == 1:
        raise UserError(code, problems[0])
    if problems:
        raise UserError(code, summary, problems)


def _blocks(options: RunOptions) -> dict[str, TrainerSettings]:
    """Returns the settings of every behavior, and the defaults, by path."""
    blocks = {f"behaviors.{name}": settings for name, settings in options.behaviors.items()}
    if options.default_settings is not None:
        blocks["default_settings"] = options.default_settings
    return blocks


def _unusable_demonstrations(options: RunOptions) -> Iterator[str]:
    """Yields one line for each path without demonstrations; their fit is checked when the behavior is declared."""
    for path, settings in _blocks(options).items():
        named = {
            "behavioral_cloning": settings.behavioral_cloning,
            "reward_signals.gail": settings.reward_signals.gail,
        }
        for key, block in named.items():
            if block is None:
                continue
            setting = f"{path}.{key}.demo_path"
            if not Path(block.demo_path).exists():
                yield f"{setting}: {block.demo_path} does not exist; name a .demo file, or a folder of them"
                continue
            try:
                check_demonstrations(Path(block.demo_path))
            except BadDemonstration as error:
                yield f"{setting}: {error}"


def _unusable_opponents(options: RunOptions) -> Iterator[str]:
    """Yields one line for each frozen opponent without a model; its fit is checked when the behavior is declared."""
    for path, settings in _blocks(options).items():
        named = {} if settings.self_play is None else settings.self_play.frozen_opponents
        for name, file in named.items():
            try:
                check_model(Path(file))
            except UnusableModel as error:
                yield f"{path}.self_play.frozen_opponents.{name}: {file}: {error}"


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


def _missing_code(options: RunOptions) -> Iterator[UserError]:
    """Yields an error for each encoder, writer and callback that cannot be imported; acting needs only the first."""
    for path, settings in _blocks(options).items():
        for setting, network in _networks(path, settings):
            if network.vis_encode_type not in VISUAL_ENCODERS:
                yield from _error_of(setting, network.vis_encode_type)
    if options.checkpoint_settings.inference:
        return
    service = options.rollcast
    # The settings are named like their groups of entry points.
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
            f"rollcast.stats_writers names wandb, but the module 'wandb' is not installed; {install('wandb')}",
        )


def _networks(path: str, settings: TrainerSettings) -> Iterator[tuple[str, NetworkSettings]]:
    """Yields each network's settings of a behavior, with the path of its encoder."""
    yield f"{path}.network_settings.vis_encode_type", settings.network_settings
    for name, signal in settings.reward_signals.active().items():
        if isinstance(signal, LearnedSignalSettings):
            yield f"{path}.reward_signals.{name}.network_settings.vis_encode_type", signal.network_settings


def _error_of(setting: str, encoder: str) -> Iterator[UserError]:
    try:
        load(setting, encoder, ENCODERS)
    except UserError as error:
        yield error


def _check_device(options: RunOptions) -> None:
    """Checks that the named device exists if it may be missing, and that it suits lock-step.

    Raises:
        UserError: The device cannot be used.
    """
    is_lockstep = options.rollcast.lockstep is not None
    if options.torch_settings.device in {None, "cpu"} and not is_lockstep:
        return
    from learner.training.run.setup import require_repeatable, usable_device  # noqa: PLC0415 - torch takes seconds to load

    device = usable_device(options)
    if is_lockstep:
        require_repeatable(device)


_ANY = "(any)"
"""Name for the behaviors that the run file does not list."""


def _refuse_added(found: FoundFolder, paths: Mapping[str, Path]) -> None:
    """Refuses behaviors that the other run does not have: initialize_from is for all, init_path for each.

    Raises:
        UserError: Some of the behaviors have a checkpoint in the other run, and some have none.
    """
    source = found.source
    theirs = {name: path for name, path in paths.items() if source is not None and source in path.parents}
    added = [name for name, path in theirs.items() if not path.exists()]
    kept = {name: path for name, path in theirs.items() if name not in added}
    if added and kept:
        name, path = next(iter(kept.items()))
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"{source} has no checkpoint of {', '.join(map(repr, added))}: to start only {', '.join(map(repr, kept))} from it, "
            f"omit initialize_from and give each its init_path, such as --set behaviors.{name}.init_path={path}",
        )


def _check_initial(options: RunOptions, found: FoundFolder) -> None:
    """Checks the checkpoints that behaviors start from: those of listed behaviors, and one that all others share.

    Raises:
        UserError: A checkpoint is missing, damaged, or of another trainer.
    """
    source = found.source
    if source is not None:
        _require_checkpoints(source)
    paths = {
        name: (path, settings)
        for name, settings in options.behaviors.items()
        if (path := initial_checkpoint(name, settings.init_path, source)) is not None
    }
    default = options.default_settings
    if default is not None and default.init_path is not None:
        path = initial_checkpoint(_ANY, default.init_path, source)
        if path == Path(default.init_path):  # one file for all unlisted behaviors
            paths[_ANY] = path, default
    _refuse_added(found, {name: path for name, (path, _) in paths.items()})
    is_listed = bool(paths)
    if source is not None and not is_listed:  # any behavior of the other run may be declared
        settings = default or TrainerSettings()
        paths = {path.parent.name: (path, settings) for path in sorted(source.glob(f"*/{NEWEST}"))}
    if not paths:
        return
    from learner.start.initial import initial_problem  # noqa: PLC0415 - torch takes seconds to load

    is_training = not options.checkpoint_settings.inference
    problems = [initial_problem(name, *each, is_training=is_training) for name, each in paths.items()]
    if is_listed:
        problems = [problem for problem in problems if problem]
        _refuse(ExitCode.BAD_CHECKPOINT, "the run cannot start from its checkpoints", problems)
    elif all(problems):  # no behavior could be declared
        raise UserError(ExitCode.BAD_CHECKPOINT, problems[0])


def _require_checkpoints(source: Path) -> None:
    """Checks that the folder that initialize_from names holds checkpoints.

    Raises:
        UserError: It holds none.
    """
    if any(source.glob("*/*.pt")):
        return
    program = None
    with contextlib.suppress(OSError):
        program = foreign_run(source)
    holds = f"holds no {NEWEST} of any behavior" if program is None else f"is a folder of {program}"
    raise UserError(
        ExitCode.BAD_CHECKPOINT,
        f"--initialize-from names the run {source.name!r}, but {source} {holds}; name a run of Rollcast that has saved "
        f"a {NEWEST}, or omit --initialize-from",
    )


def _check_resumed(options: RunOptions, folder: Path) -> None:
    """Checks the checkpoints from which a run resumes, if they are not the run state.

    Raises:
        UserError: A checkpoint is missing or damaged.
    """
    choice = options.rollcast.resume_checkpoint
    if choice == LAST:
        return
    from learner.shared.runfolder.choice import load_chosen  # noqa: PLC0415 - torch takes seconds to load
    from learner.shared.runfolder.status import TrainingStatus  # noqa: PLC0415
    from learner.shared.runfolder.store import read_run_state  # noqa: PLC0415

    state = read_run_state(folder)
    status = TrainingStatus.load(folder / "run_logs" / "training_status.json")
    for name in () if state is None else state.trainers:
        load_chosen(folder, name, choice, status)
