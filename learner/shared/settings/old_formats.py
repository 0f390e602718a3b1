"""Recognizes the files of ML-Agents before its releases 3 and 7, whose keys are elsewhere today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from learner.shared.settings.base import Value

PAGE: Final = "actor_client/unity/README.md#old-run-files"
_FLAT: Final = frozenset(
    [
        "trainer",
        "use_recurrent",
        "batch_size",
        "buffer_size",
        "learning_rate",
        "beta",
        "epsilon",
        "lambd",
        "num_epoch",
        "num_layers",
        "hidden_units",
        "normalize",
        "memory_size",
        "sequence_length",
        "gamma",
        "use_curiosity",
        "curiosity_strength",
        "pretraining",
        "summary_path",
        "buffer_init_steps",
        "init_entcoef",
        "brain_to_imitate",
        "batches_per_epoch",
        "demo_path",
        "max_steps",
        "time_horizon",
        "summary_freq",
        "reward_signals",
    ]
)
"""Settings of a behavior, all in one block; the last ones are where they are today."""
_CURRICULUM: Final = frozenset({"measure", "thresholds", "min_lesson_length", "signal_smoothing", "parameters"})


def old_format(tree: Mapping[str, Value], known: Iterable[str]) -> str | None:
    """Returns what an old file is and the way out, for a message of one line; None for a file of today.

    Args:
        tree: The file.
        known: Keys of the top level today.
    """
    blocks = [block for block in tree.values() if isinstance(block, dict)]
    if not tree.keys() & frozenset(known):
        if _is_curriculum(tree) or any(map(_is_curriculum, blocks)):
            return _told("curriculum file", "before release 3", "environment_parameters: {NAME: {curriculum: [...]}}")
        if "resampling-interval" in tree or any("sampler-type" in block for block in blocks):
            return _told("sampler file", "before release 3", "environment_parameters: {NAME: {sampler_type: ...}}")
        if blocks and all(block.keys() & _FLAT for block in blocks):
            return _told(
                "trainer file", "before release 3", "behaviors: {NAME: {trainer_type: ..., hyperparameters: ...}}"
            )
    elif {"curriculum", "parameter_randomization"} & tree.keys():
        return _told("run file", "of the releases 3 to 6", "environment_parameters: {NAME: ...}")
    return None


def _is_curriculum(block: Mapping[str, Value]) -> bool:
    return "thresholds" in block and len(block.keys() & _CURRICULUM) > 1


def _told(kind: str, release: str, form: str) -> str:
    return f"is a {kind} of ML-Agents {release}; today its settings are in {form}, and {PAGE} has the place of each"
