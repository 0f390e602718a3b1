"""Models that the companions of a behavior share by name, each with a copy for those that only read it."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn

from learner.shared.exits import ExitCode, UserError


class NamedModels:
    """The named models of one behavior.

    A model that trains changes with each step. Everyone else, such as a reward signal, reads its inference model: a copy
    that changes only after a whole training.
    """

    def __init__(self) -> None:
        self._training: dict[str, nn.Module] = {}
        self._inference: dict[str, nn.Module] = {}

    def add(self, name: str, model: nn.Module) -> None:
        """Adds a model, on its device, and copies it.

        Raises:
            UserError: There is one of this name.
        """
        if name in self._training:
            raise UserError(ExitCode.RUN_FILE, f"two companions have a model {name!r}: give one of them another name")
        self._training[name] = model
        self._inference[name] = copy.deepcopy(model).requires_grad_(requires_grad=False).eval()

    def get_training_model(self, name: str) -> nn.Module:
        """Returns the model that trains.

        Raises:
            UserError: There is none of this name.
        """
        return _found(self._training, name)

    def get_inference_model(self, name: str) -> nn.Module:
        """Returns the copy for everyone else; the same object in the whole run.

        Raises:
            UserError: There is none of this name.
        """
        return _found(self._inference, name)

    def all(self) -> list[nn.Module]:
        """Returns the models that train."""
        return list(self._training.values())

    @torch.no_grad()
    def sync(self, name: str) -> None:
        """Copies parameters and buffers of a model that has trained into its inference model."""
        self._inference[name].load_state_dict(self._training[name].state_dict())


def _found(models: Mapping[str, nn.Module], name: str) -> nn.Module:
    found = models.get(name)
    if found is None:
        raise UserError(
            ExitCode.RUN_FILE,
            f"no companion of this behavior has a model {name!r} (known: {', '.join(models) or 'none'}): the create_models of one "
            "must name it",
        )
    return found
