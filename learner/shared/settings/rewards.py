"""Reward signals of a behavior.

If ``reward_signals`` omits ``extrinsic``, the environment's reward is not used, as in ML-Agents.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator
from rollcast.demonstrations import Pairing

from learner.shared.settings.base import (
    NonNegativeReal,
    PositiveReal,
    PositiveWhole,
    Real,
    SettingsModel,
    invalid_as_told,
)
from learner.shared.settings.extensions import REWARD_SIGNALS, ExtensionBlock
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


class RewardSignals(ExtensionBlock):
    """The reward signals of a behavior, in the order of their value heads; None means not used."""

    _setting: ClassVar = "reward_signals"
    _group: ClassVar = REWARD_SIGNALS
    _kind: ClassVar = RewardSignalSettings

    extrinsic: ExtrinsicSettings | None = None
    """the environment's own reward"""
    curiosity: CuriositySettings | None = None
    """reward for transitions that the signal's model predicts badly"""
    rnd: RNDSettings | None = None
    """reward for observations that are new to the signal's network"""
    gail: GAILSettings | None = None
    """reward for similarity to demonstrations"""
