"""What the run file may say, and no trainer does yet: refused at the start, by name, and never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from learner.settings.hyperparameters import BUILT_TRAINERS, HYPERPARAMETERS
from learner.settings.options import RunOptions
from learner.settings.parameters import MAX_FLOAT32, ParameterSettings
from learner.settings.trainer import TrainerSettings

RECURRENT_TRAINERS = frozenset({"appo", "impala", "ppo", "sac"})
"""Those whose policies may have a memory."""

CLONING_TRAINERS = frozenset({"appo", "impala", "ppo", "sac"})
"""Those that can imitate demonstrations beside their rewards."""


def unsupported(options: RunOptions) -> list[str]:
    """Returns one line for each feature that is asked for and not built yet; none if the run can start."""
    found = [
        line for name, settings in options.behaviors.items() for line in _of_behavior(f"behaviors.{name}", settings)
    ]
    if options.default_settings is not None:
        found.extend(_of_behavior("default_settings", options.default_settings))
    for name, parameter in (options.environment_parameters or {}).items():
        found.extend(_of_parameter(f"environment_parameters.{name}", name, parameter))
    return found


def _of_parameter(path: str, name: str, parameter: ParameterSettings) -> Iterator[str]:
    """Yields what a player could not be told: ML-Agents fails at the first reset."""
    if not name.isascii():
        yield f"{path}: players read names in ASCII only, rename it there and in the player"
    for lesson in parameter.curriculum:
        for number in lesson.value.sampler_parameters.numbers():
            if abs(number) > MAX_FLOAT32:
                yield f"{path}: {number} in lesson {lesson.name!r} is more than players hold ({MAX_FLOAT32:.4g})"


def _of_behavior(path: str, settings: TrainerSettings) -> Iterator[str]:
    if settings.trainer_type in HYPERPARAMETERS and settings.trainer_type not in BUILT_TRAINERS:
        built = ", ".join(sorted(BUILT_TRAINERS))
        yield f"{path}.trainer_type: {settings.trainer_type} is not built yet; trainers that are: {built}"
    network = settings.network_settings
    if network.memory is not None and settings.trainer_type in HYPERPARAMETERS.keys() - RECURRENT_TRAINERS:
        recurrent = ", ".join(sorted(RECURRENT_TRAINERS))
        yield (
            f"{path}.network_settings.memory: {settings.trainer_type} has no recurrent networks, remove it; trainers that "
            f"have: {recurrent}"
        )
    if not settings.reward_signals.active():
        yield f"{path}.reward_signals: there is none, so nothing would be learned; add extrinsic: {{}}"
    if settings.self_play is not None:
        yield f"{path}.self_play: not built yet, remove it"
    if settings.behavioral_cloning is not None and settings.trainer_type in HYPERPARAMETERS.keys() - CLONING_TRAINERS:
        cloning = ", ".join(sorted(CLONING_TRAINERS))
        yield (
            f"{path}.behavioral_cloning: {settings.trainer_type} does not imitate yet, remove it; trainers that do: {cloning}"
        )
