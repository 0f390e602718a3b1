"""The run file: ML-Agents' YAML and the service's own block, read into one frozen tree.

``load_run_options`` reads it; ``RunOptions`` is the tree; `unsupported` lists what is not built yet.
"""

from learner.settings.hyperparameters import HyperparameterSettings, PPOHyperparameters
from learner.settings.load import LoadedRun, load_run_options
from learner.settings.names import name_problem, without_team
from learner.settings.network import MemorySettings, NetworkSettings
from learner.settings.options import RunOptions, UnknownBehaviorError
from learner.settings.resolved import effective_document, resolved_mlagents_json, sources_document, to_yaml
from learner.settings.rewards import ExtrinsicSettings, RewardSignals, RewardSignalSettings
from learner.settings.rules import unsupported
from learner.settings.service import ServiceSettings, is_loopback, split_address
from learner.settings.trainer import TrainerSettings

__all__ = [
    "ExtrinsicSettings",
    "HyperparameterSettings",
    "LoadedRun",
    "MemorySettings",
    "NetworkSettings",
    "PPOHyperparameters",
    "RewardSignalSettings",
    "RewardSignals",
    "RunOptions",
    "ServiceSettings",
    "TrainerSettings",
    "UnknownBehaviorError",
    "effective_document",
    "is_loopback",
    "load_run_options",
    "name_problem",
    "resolved_mlagents_json",
    "sources_document",
    "split_address",
    "to_yaml",
    "unsupported",
    "without_team",
]
