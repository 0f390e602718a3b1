"""Translates PPO entries of rl-zoo to settings of run files, key by key, as the table of `ppo.md` says.

The entries are figures of `hyperparams/ppo.yml` of DLR-RM/rl-baselines3-zoo, commit 22e3ff2, for the tasks of the gates.
Keys that an entry lacks have the defaults of Stable-Baselines3's PPO.
"""

import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

Entry = Mapping[str, Any]
Settings = dict[str, Any]

DEFAULTS: Final[Entry] = MappingProxyType(
    {
        "n_envs": 1,
        "n_timesteps": 1e6,
        "policy": "MlpPolicy",
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_range": 0.2,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "learning_rate": 3e-4,
        "target_kl": None,
        "normalize_advantage": True,
        "use_sde": False,
        "sde_sample_freq": -1,
        "normalize": False,
        "policy_kwargs": {},
        "env_wrapper": None,
        "frame_stack": None,
    }
)
NETWORK: Final[Entry] = MappingProxyType(
    {"log_std_init": 0.0, "ortho_init": True, "activation_fn": "Tanh", "net_arch": {"pi": [64, 64], "vf": [64, 64]}}
)
"""Defaults of ``policy_kwargs``."""

ENTRIES: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "Pendulum-v1": {
            "n_envs": 4, "n_timesteps": 1e5, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10,
            "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
        },
        "CartPole-v1": {
            "n_envs": 8, "n_timesteps": 1e5, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98,
            "n_epochs": 20, "ent_coef": 0.0, "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
        },
        "MountainCar-v0": {
            "normalize": True, "n_envs": 16, "n_timesteps": 1e6, "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99,
            "n_epochs": 4, "ent_coef": 0.0,
        },
        "BipedalWalker-v3": {
            "normalize": True, "n_envs": 32, "n_timesteps": 5e6, "n_steps": 2048, "batch_size": 64, "gae_lambda": 0.95,
            "gamma": 0.999, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 3e-4, "clip_range": 0.18,
        },
        "LunarLander-v3": {
            "n_envs": 16, "n_timesteps": 1e6, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999,
            "n_epochs": 4, "ent_coef": 0.01,
        },
        "LunarLanderContinuous-v3": {
            "n_envs": 16, "n_timesteps": 1e6, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999,
            "n_epochs": 4, "ent_coef": 0.01,
        },
        "HalfCheetah-v4": {
            "normalize": True, "n_envs": 1, "n_timesteps": 1e6, "batch_size": 64, "n_steps": 512, "gamma": 0.98,
            "learning_rate": 2.0633e-05, "ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20,
            "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096,
            "policy_kwargs": {
                "log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU",
                "net_arch": {"pi": [256, 256], "vf": [256, 256]},
            },
        },
        "InvertedDoublePendulum-v2": {
            "normalize": True, "n_envs": 1, "n_timesteps": 1e6, "batch_size": 512, "n_steps": 128, "gamma": 0.98,
            "learning_rate": 0.000155454, "ent_coef": 1.05057e-06, "clip_range": 0.4, "n_epochs": 10,
            "gae_lambda": 0.8, "max_grad_norm": 0.5, "vf_coef": 0.695929,
        },
        "MiniGrid-Empty-Random-5x5-v0": {
            "env_wrapper": "minigrid.wrappers.FlatObsWrapper", "normalize": True, "n_envs": 8, "n_timesteps": 1e5,
            "n_steps": 128, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.99, "n_epochs": 10, "ent_coef": 0.0,
            "learning_rate": 2.5e-4, "clip_range": 0.2,
        },
    }
)  # fmt: skip
"""Entries by task; version numbers as in the file."""

CLIPPED_OBSERVATION: Final = 10.0
"""Limit of normalized observations in Stable-Baselines3."""
ACTIVATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Tanh": "tanh", "ReLU": "relu", "SiLU": "swish", "ELU": "elu", "SELU": "selu", "LeakyReLU": "leaky_relu",
        "GELU": "gelu",
    }
)  # fmt: skip


def behavior(entry: Entry, half_range: float = 1.0) -> Settings:
    """Returns the block of a behavior for an entry of rl-zoo.

    Args:
        entry: Keys and values of the entry.
        half_range: Half of the distance between the bounds of an action, in whose unit ours has `log_std_init`.

    Raises:
        KeyError: A key has no translation.
    """
    settings: Settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"ratio": "joint", "beta_schedule": "constant", "adam_epsilon": 1e-5},
        "network_settings": {},
        "reward_signals": {"extrinsic": {}},
    }
    whole = {**DEFAULTS, **entry}
    for key in whole:
        KEYS[key](settings, whole)
    for key in (network := {**NETWORK, **whole["policy_kwargs"]}):
        NETWORK_KEYS[key](settings, network)
    settings["network_settings"]["log_std_init"] -= math.log(half_range)
    return settings


def command_line(block: Settings) -> tuple[str, ...]:
    """Returns the values of a behavior's block as settings of an arm, such as ``hyperparameters.beta=0.0``."""
    found: list[str] = []
    for key, value in block.items():
        if isinstance(value, dict):
            found += [f"{key}.{rest}" for rest in command_line(value)]
        else:
            found.append(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    return tuple(found)


def actor_flags(entry: Entry) -> list[str]:
    """Returns the flags of one actor with all environments of an entry."""
    whole = {**DEFAULTS, **entry}
    flags = ["--num-envs", str(whole["n_envs"])]
    if whole["env_wrapper"] is not None:
        module, _, name = whole["env_wrapper"].rpartition(".")
        flags += ["--wrap", f"{module}:{name}"]
    return flags if whole["frame_stack"] is None else [*flags, "--frame-stack", str(whole["frame_stack"])]


Translation = Callable[[Settings, Entry], None]


def _hyper(key: str, ours: str) -> Translation:
    def translate(settings: Settings, entry: Entry) -> None:
        settings["hyperparameters"][ours] = entry[key]

    return translate


def _scheduled(key: str, ours: str) -> Translation:
    def translate(settings: Settings, entry: Entry) -> None:
        value = str(entry[key])
        settings["hyperparameters"][ours] = float(value.removeprefix("lin_"))
        settings["hyperparameters"][f"{ours}_schedule"] = "linear" if value.startswith("lin_") else "constant"

    return translate


def _network(key: str, ours: str, of: Callable[[Any], Any]) -> Translation:
    def translate(settings: Settings, entry: Entry) -> None:
        settings["network_settings"][ours] = of(entry[key])

    return translate


def _rollout(settings: Settings, entry: Entry) -> None:
    steps = entry["n_envs"] * entry["n_steps"]
    settings["time_horizon"] = entry["n_steps"]
    settings["hyperparameters"]["buffer_size"] = steps
    settings["hyperparameters"]["batch_size"] = min(entry["batch_size"], steps)


def _normalize(settings: Settings, entry: Entry) -> None:
    chosen = entry["normalize"]
    parts = chosen if isinstance(chosen, dict) else {"norm_obs": chosen, "norm_reward": chosen}
    if parts.get("norm_obs", True):
        settings["network_settings"].update(normalize=True, observation_clip=CLIPPED_OBSERVATION)
    settings["hyperparameters"]["normalize_values"] = parts.get("norm_reward", True)


def _policy(settings: Settings, entry: Entry) -> None:
    if entry["policy"] == "CnnPolicy":
        settings["network_settings"]["vis_encode_type"] = "nature_cnn"


def _architecture(chosen: Any) -> list[int]:
    parts = chosen if isinstance(chosen, dict) else {"pi": chosen, "vf": chosen}
    if parts["pi"] != parts["vf"]:
        raise KeyError("net_arch with other widths for pi than for vf")
    return list(parts["pi"])


def _of_actors(settings: Settings, entry: Entry) -> None:
    """Does nothing: flags of actors, see `actor_flags`."""


KEYS: Final[Mapping[str, Translation]] = MappingProxyType(
    {
        "n_envs": _of_actors,
        "n_timesteps": lambda settings, entry: settings.update(max_steps=int(entry["n_timesteps"])),
        "policy": _policy,
        "n_steps": _rollout,
        "batch_size": _rollout,
        "n_epochs": _hyper("n_epochs", "num_epoch"),
        "gamma": lambda settings, entry: settings["reward_signals"]["extrinsic"].update(gamma=entry["gamma"]),
        "gae_lambda": _hyper("gae_lambda", "lambd"),
        "clip_range": _scheduled("clip_range", "epsilon"),
        "ent_coef": _hyper("ent_coef", "beta"),
        "vf_coef": _hyper("vf_coef", "value_coefficient"),
        "max_grad_norm": _hyper("max_grad_norm", "max_grad_norm"),
        "learning_rate": _scheduled("learning_rate", "learning_rate"),
        "target_kl": _hyper("target_kl", "target_kl"),
        "normalize_advantage": _hyper("normalize_advantage", "normalize_advantages"),
        "use_sde": _network("use_sde", "std", lambda is_used: "state" if is_used else "free"),
        "sde_sample_freq": lambda _settings, _entry: None,
        "normalize": _normalize,
        "policy_kwargs": lambda _settings, _entry: None,
        "env_wrapper": _of_actors,
        "frame_stack": _of_actors,
    }
)
NETWORK_KEYS: Final[Mapping[str, Translation]] = MappingProxyType(
    {
        "log_std_init": _network("log_std_init", "log_std_init", float),
        "ortho_init": _network("ortho_init", "initialization", lambda is_used: "orthogonal" if is_used else "lecun"),
        "activation_fn": _network("activation_fn", "activation", lambda name: ACTIVATIONS[name]),
        "net_arch": _network("net_arch", "hidden_units", _architecture),
    }
)
"""Keys of ``policy_kwargs``."""
