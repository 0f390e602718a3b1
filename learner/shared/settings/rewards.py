"""Reward signals of a behavior.

If ``reward_signals`` omits ``extrinsic``, the environment's reward is not used, as in ML-Agents.
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
from rollcast.demonstrations import Pairing

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import (
    NonNegativeReal,
    PositiveReal,
    PositiveWhole,
    Real,
    SettingsModel,
    Value,
    invalid_as_told,
)
from learner.shared.settings.extensions import REWARD_SIGNALS, built, declared, settings_model
from learner.shared.settings.network import MAX_WIDTH, Activation, NetworkSettings


class RewardSignalSettings(SettingsModel):
    """Settings of every reward signal."""

    gamma: Real = 0.99
    """discount of this signal"""
    strength: Real = 1.0
    """factor of this signal; a negative one inverts it"""

    @field_validator("network_settings", check_fields=False)
    @classmethod
    def _reads_all(cls, value: NetworkSettings) -> NetworkSettings:
        if value.critic_only:
            raise invalid_as_told(
                "has critic_only, but a reward signal reads all observations: move it to the behavior's network_settings"
            )
        if value.policy is not None:
            raise invalid_as_told(
                "has a policy, but a reward signal has none: move it to the behavior's network_settings"
            )
        return value


class ExtrinsicSettings(RewardSignalSettings):
    """The environment's own reward; ML-Agents' files give it a network too, which is not used."""

    reward_clip: PositiveReal | None = None
    """largest size of a reward, before the strength; null does not clip"""
    network_settings: NetworkSettings = Field(default_factory=NetworkSettings)
    """unused"""


class FeatureSettings(NetworkSettings):
    """The network of a signal whose reward is a distance between features: tanh would limit them to 1 each."""

    activation: Activation = "swish"
    """activation of the body's layers; with tanh, large observations are all alike"""


def _features_of_encoding_size(values: dict[str, object]) -> FeatureSettings:
    """Builds the network of such a signal; see `_network_of_encoding_size`."""
    size = values.get("encoding_size")
    return FeatureSettings(hidden_units=size) if isinstance(size, int) else FeatureSettings()


def _network_of_encoding_size(values: dict[str, object]) -> NetworkSettings:
    """Builds the network of a signal without network settings; the deprecated ``encoding_size`` is its width."""
    size = values.get("encoding_size")
    return NetworkSettings(hidden_units=size) if isinstance(size, int) else NetworkSettings()


class LearnedSignalSettings(RewardSignalSettings):
    """Settings of signals with their own network."""

    learning_rate: NonNegativeReal = 3e-4
    """step size of the signal's Adam"""
    encoding_size: PositiveWhole | None = Field(default=None, le=MAX_WIDTH)
    """deprecated: hidden_units of the signal's network, if network_settings is absent"""
    network_settings: NetworkSettings = Field(default_factory=_network_of_encoding_size)
    """the network of the signal"""


class CuriositySettings(LearnedSignalSettings):
    """Intrinsic curiosity (Pathak et al. 2017, arXiv:1705.05363)."""

    network_settings: FeatureSettings = Field(default_factory=_features_of_encoding_size)
    """the network of the signal; activation is swish unless it is given"""


class RNDSettings(LearnedSignalSettings):
    """Random network distillation (Burda et al. 2018, arXiv:1810.12894)."""

    learning_rate: NonNegativeReal = 1e-4
    """step size of the signal's Adam"""
    network_settings: FeatureSettings = Field(default_factory=_features_of_encoding_size)
    """the network of the signal; activation is swish unless it is given"""


class GAILSettings(LearnedSignalSettings):
    """Generative adversarial imitation (Ho and Ermon 2016, arXiv:1606.03476)."""

    demo_path: str
    """demonstration file or folder"""
    demo_pairing: Pairing = "auto"
    """which record has an action: that of its observation, the next one (Unity's recorder), or as the recording shows"""
    use_actions: bool = False
    """judge actions in addition to observations"""
    use_vail: bool = False
    """judge by a few noisy numbers computed from the input"""


def _named(name: str) -> Callable[[Any, ValidatorFunctionWrapHandler], RewardSignalSettings]:
    """Returns the validator of a user's signal, whose errors are reported with its name."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> RewardSignalSettings:
        def make() -> RewardSignalSettings:
            settings: RewardSignalSettings = handler(value)
            return settings

        return built("reward_signals", name, make)

    return validate


class RewardSignals(SettingsModel):
    """The reward signals of a behavior; None means not used.

    Signals of users are fields of a model created by `model_for`.
    """

    extrinsic: ExtrinsicSettings | None = None
    """the environment's own reward"""
    curiosity: CuriositySettings | None = None
    """reward for transitions that the signal's model predicts badly"""
    rnd: RNDSettings | None = None
    """reward for observations that are new to the signal's network"""
    gail: GAILSettings | None = None
    """reward for similarity to demonstrations"""

    def active(self) -> Mapping[str, RewardSignalSettings]:
        """Returns the used signals by name, in the order extrinsic, curiosity, rnd, gail, then those of packages."""
        signals = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: signal for name, signal in signals.items() if signal is not None}

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """Returns the names of the built-in signals and of those that installed packages declare."""
        return frozenset(cls.model_fields) | declared(REWARD_SIGNALS)

    @classmethod
    def model_for(cls, raw: Mapping[str, Value]) -> type[RewardSignals]:
        """Returns the model with the signals of users in a map.

        Raises:
            UserError: A signal cannot be imported or used.
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
        """Refuses the name of a package's signal that would hide an attribute of this block.

        Raises:
            UserError: The name is refused.
        """
        if name.startswith("_") or hasattr(cls, name):
            raise UserError(
                ExitCode.RUN_FILE,
                f"reward_signals names {name!r}, which is reserved: the package must declare its signal (entry point group "
                f"{REWARD_SIGNALS}) under a name that Rollcast does not use and that does not begin with _",
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
