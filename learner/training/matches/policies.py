"""The policies of players, as actors run them."""

from __future__ import annotations

from dataclasses import replace

from learner.link.to_trainers import Declared
from learner.shared.exits import ExitCode, UserError
from learner.shared.policies import StoredPolicy
from learner.training.export.frozen import UnusableModel, load_frozen
from learner.training.matches.players import Player


def load_model(player: Player, behavior: Declared, *, is_deterministic: bool = False) -> StoredPolicy:
    """Returns the policy of a model.

    Args:
        player: The player; a model.
        behavior: What it plays.
        is_deterministic: Whether it takes its most likely actions instead of drawn ones.

    Raises:
        UserError: The file is not a model of this behavior, or has changed since it was named.
    """
    path = player.path
    if path is None:
        raise TypeError("a model has a file")
    try:
        found = load_frozen(path, behavior.spec, behavior.index, is_deterministic=is_deterministic)
    except UnusableModel as error:
        raise UserError(ExitCode.BAD_CHECKPOINT, f"player {player.name}: {path}: {error}") from error
    if found.digest.hex() != player.identity:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"player {player.name}: {path} has changed since the start: copy the models of a run that still trains",
        )
    return found.stored


def random_policy(policy: StoredPolicy) -> StoredPolicy:
    """Returns a policy that draws all actions uniformly; it has the bytes of another one, and so a version of its own."""
    description = replace(policy.description, uniform=True, deterministic=False, generation=0, version=1)
    return StoredPolicy(description, policy.payload)
