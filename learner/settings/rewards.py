"""Reward signals of a behavior.

Writing ``reward_signals`` without ``extrinsic`` means that the environment's reward is not used, as in ML-Agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
    model_serializer,
)

from learner.common.exits import ExitCode, UserError
from learner.settings.base import (
    Fraction,
    NonNegativeReal,
    PositiveWhole,
    Real,
    SettingsModel,
    Value,
    invalid_as_told,
)
from learner.settings.extensions import REWARD_SIGNALS, built, declared, settings_model
from learner.settings.network import MAX_WIDTH, NetworkSettings


class RewardSignalSettings(SettingsModel):
    """What every reward signal has."""

    gamma: Fraction = 0.99
    """discount of this signal"""
    strength: Real = 1.0
    """factor of this signal; a negative one turns it round"""


class ExtrinsicSettings(RewardSignalSettings):
    """The environment's own reward; it has a network in ML-Agents' files too, which nothing uses."""

    network_settings: NetworkSettings = Field(default_factory=NetworkSettings)
    """unused"""


def _network_of_encoding_size(values: dict[str, object]) -> NetworkSettings:
    """Builds the network of a signal that writes none: the deprecated ``encoding_size`` is its width."""
    size = values.get("encoding_size")
    return NetworkSettings(hidden_units=size) if isinstance(size, int) else NetworkSettings()


class LearnedSignalSettings(RewardSignalSettings):
    """What the signals with a network of their own have."""

    learning_rate: NonNegativeReal = 3e-4
    """step size of the signal's Adam"""
    encoding_size: PositiveWhole | None = Field(default=None, le=MAX_WIDTH)
    """deprecated: hidden_units of the signal's network, if network_settings is absent"""
    network_settings: NetworkSettings = Field(default_factory=_network_of_encoding_size)
    """the network of the signal"""


class CuriositySettings(LearnedSignalSettings):
    """Intrinsic curiosity (Pathak et al. 2017, arXiv:1705.05363)."""


class RNDSettings(LearnedSignalSettings):
    """Random network distillation (Burda et al. 2018, arXiv:1810.12894)."""

    learning_rate: NonNegativeReal = 1e-4
    """step size of the signal's Adam"""


class GAILSettings(LearnedSignalSettings):
    """Generative adversarial imitation (Ho and Ermon 2016, arXiv:1606.03476)."""

    demo_path: str
    """demonstration file or folder"""
    use_actions: bool = False
    """judge actions too, not observations alone"""
    use_vail: bool = False
    """judge by a few noisy numbers of what was seen"""


def _named(name: str) -> Callable[[Any, ValidatorFunctionWrapHandler], RewardSignalSettings]:
    """Returns the validator of a package's signal, whose own faults are told with its name."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> RewardSignalSettings:
        def make() -> RewardSignalSettings:
            settings: RewardSignalSettings = handler(value)
            return settings

        return built("reward_signals", name, make)

    return validate


class RewardSignals(SettingsModel):
    """The reward signals of a behavior; one that is None is not used.

    Those of installed packages are fields of a model that `model_for` makes.
    """

    extrinsic: ExtrinsicSettings | None = None
    """the environment's own reward"""
    curiosity: CuriositySettings | None = None
    """what its model did not foresee"""
    rnd: RNDSettings | None = None
    """what is new to its network"""
    gail: GAILSettings | None = None
    """what looks like demonstrations"""

    def active(self) -> Mapping[str, RewardSignalSettings]:
        """Returns the signals in use by name, in the order extrinsic, curiosity, rnd, gail, then those of packages."""
        signals = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: signal for name, signal in signals.items() if signal is not None}

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """Returns the names of our signals, and of those that installed packages declare."""
        return frozenset(cls.model_fields) | declared(REWARD_SIGNALS)

    @classmethod
    def model_for(cls, raw: Mapping[str, Value]) -> type[RewardSignals]:
        """Returns the model with the signals of installed packages that a map names.

        Raises:
            UserError: one cannot be imported or used.
        """
        added: dict[str, Any] = {}
        for name in sorted(set(raw) - set(cls.model_fields)):
            model = settings_model("reward_signals", name, REWARD_SIGNALS, RewardSignalSettings)
            if model is not None:
                cls._check_name(name)
                added[name] = (Annotated[model, WrapValidator(_named(name))] | None, None)
        return create_model(cls.__name__, __base__=cls, **added) if added else cls

    @classmethod
    def _check_name(cls, name: str) -> None:
        """Refuses the name of a package's signal that would hide a part of this block.

        Raises:
            UserError: it would.
        """
        if name.startswith("_") or hasattr(cls, name):
            raise UserError(
                ExitCode.RUN_FILE,
                f"reward_signals names {name!r}, which no signal can be called: the package must declare it (entry point "
                f"group {REWARD_SIGNALS}) under a name without _ in front that is none of Rollcast's own",
            )

    @field_validator("*", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        if value is None:
            raise invalid_as_told("is empty; write {} for a signal with default settings, or leave the line out")
        return value

    @model_serializer(mode="wrap")
    def _only_active(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {name: signal for name, signal in handler(self).items() if signal is not None}
