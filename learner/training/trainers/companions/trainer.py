"""The base class of companions, which train further models beside the policy of a behavior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.stats import StatsReporter
from learner.shared.saved_values import count
from learner.shared.settings.companions import CompanionSettings
from learner.training.networks.fit import require_fit
from learner.training.networks.named import NamedModels
from learner.training.trainers.companions.data import DataUser


@dataclass(frozen=True, slots=True)
class CompanionContext:
    """Everything a companion is built from, in addition to its settings.

    Attributes:
        name: Its name in the run file.
        spec: Observations and actions of the behavior.
        device: Device of models and data.
        models: Models of all companions of the behavior.
        data: Data buffers of the behavior, by name.
        stats: Receives statistics.
    """

    name: str
    spec: BehaviorSpec
    device: torch.device
    models: NamedModels
    data: Mapping[str, DataUser]
    stats: StatsReporter


class CompanionTrainer(ABC):
    """Trains named models from the experience of a behavior, beside the trainer of its policy.

    A training is `setup`, `train`, `sync_models` and `teardown`. It begins if `is_trainable`, after the turn of the
    policy's trainer and in the same thread. A subclass defines `create_models` and `train`, and overrides what else it
    needs.

    Args:
        settings: The companion's block in the run file.
        context: Everything else.

    Attributes:
        settings_model: Class attribute with the type of ``settings``.
        context: As given.
        optimizers: What `create_optimizers` returned.
        trainings: Completed trainings.
    """

    settings_model: ClassVar[type[CompanionSettings]] = CompanionSettings

    def __init__(self, settings: CompanionSettings, context: CompanionContext) -> None:
        self.settings = settings
        self.context = context
        self.min_buffer_size = settings.min_buffer_size
        self.min_new_data_count = settings.min_new_data_count
        self.training_condition_data_user = settings.data
        self.trainings = 0
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {}
        self._names: tuple[str, ...] = ()  # of its own models
        self._added = 0  # steps that had been added when the newest training began

    @property
    def spec(self) -> BehaviorSpec:
        """Observations and actions of the behavior."""
        return self.context.spec

    def create_models(self) -> Mapping[str, nn.Module]:
        """Creates the models that this companion adds, by name; none unless overridden.

        Create them on torch's default device. The random weights of torch's layers follow from the seed of the run.
        """
        return {}

    def create_optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Creates the optimizers by name, once, when the models are on their device: unless overridden, Adam for its models."""
        parameters = [each for name in self._names for each in self.get_training_model(name).parameters()]
        return {"adam": torch.optim.Adam(parameters, lr=self.settings.learning_rate)} if parameters else {}

    def is_trainable(self) -> bool:
        """Returns whether the data buffer has enough steps, and enough new ones since the newest training began."""
        data = self.get_data_user(self.training_condition_data_user)
        return len(data) >= self.min_buffer_size and data.added - self._added >= self.min_new_data_count

    def setup(self) -> None:  # noqa: B027
        """Prepares `train`; called before it."""

    @abstractmethod
    def train(self) -> Iterator[None] | None:
        """Trains, and yields after each gradient step, where the policy's trainer may take its turn.

        One that returns without a yield runs as a whole, during which the policy waits.
        """

    def sync_models(self) -> None:
        """Copies its trained models to their inference models.

        Raises:
            UserError: A parameter is not finite.
        """
        for name in self._names:
            model = self.get_training_model(name)
            if not all(bool(value.isfinite().all()) for value in model.parameters()):
                raise UserError(
                    ExitCode.TRAINER_FAILED,
                    f"companion {self.context.name!r} trained its model {name!r} to numbers that are not finite: lower its "
                    "learning_rate, or limit its loss",
                )
            self.context.models.sync(name)

    def teardown(self) -> None:  # noqa: B027
        """Cleans up after `sync_models`; also called if they failed or are not finished."""

    def get_training_model(self, name: str) -> nn.Module:
        """Returns the model that trains, of any companion of the behavior.

        Raises:
            UserError: There is none of this name.
        """
        return self.context.models.get_training_model(name)

    def get_inference_model(self, name: str) -> nn.Module:
        """Returns the copy that changes only after a training, of any companion of the behavior.

        Raises:
            UserError: There is none of this name.
        """
        return self.context.models.get_inference_model(name)

    def get_data_user(self, name: str) -> DataUser:
        """Returns a data buffer.

        Raises:
            UserError: There is none of this name.
        """
        data = self.context.data
        if name not in data:
            raise UserError(
                ExitCode.RUN_FILE,
                f"companion {self.context.name!r} reads the data buffer {name!r}, which does not exist (known: "
                f"{', '.join(data)}): list it under data_buffers",
            )
        return data[name]

    def add_stat(self, key: str, value: float) -> None:
        """Adds a value to a statistic, such as ``Losses/World Model``; writers get the mean since the last summary."""
        self.context.stats.add_stat(key, value)

    def state_dict(self) -> dict[str, Any]:
        """Returns models, optimizers and counts; a subclass adds what else it learns."""
        return {
            "models": {name: self.get_training_model(name).state_dict() for name in self._names},
            "optimizers": {name: each.state_dict() for name, each in self.optimizers.items()},
            "trainings": self.trainings,
            "added": self._added,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError: The state does not fit.
        """
        models = {name: state["models"][name] for name in self._names}
        require_fit(_flat(models), _flat({name: self.get_training_model(name).state_dict() for name in models}))
        for name, parameters in models.items():
            self.get_training_model(name).load_state_dict(parameters)
            self.context.models.sync(name)
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
            for key, value in ((key, value) for kept in optimizer.state.values() for key, value in kept.items()):
                if isinstance(value, Tensor) and not bool(value.isfinite().all()):
                    raise ValueError(f"{key} of the optimizer {name} holds NaN or infinite values")
        self.trainings = count(state, "trainings")
        # The buffer may be another one than at that time.
        self._added = min(count(state, "added"), self.get_data_user(self.training_condition_data_user).added)

    def add_models(self) -> None:
        """Creates its models, and adds them to those of the behavior; called once, before all other methods.

        Raises:
            TypeError: `create_models` returned something else.
            UserError: Another companion has a model of the same name.
        """
        models = self.create_models()
        if not all(isinstance(model, nn.Module) for model in models.values()):
            raise TypeError("create_models must return a map of names to torch.nn.Module")
        for name, model in models.items():
            self.context.models.add(name, model.to(self.context.device))
        self._names = tuple(models)

    def training(self) -> Iterator[None]:
        """Runs one training, and yields where it may be interrupted."""
        self._added = self.get_data_user(self.training_condition_data_user).added
        try:
            self.setup()
            yield from self.train() or ()
            self.sync_models()
            self.trainings += 1
        finally:
            self.teardown()


def _flat(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the parameters of all models, named by their model first."""
    return {f"{name}.{key}": value for name, parameters in models.items() for key, value in parameters.items()}
