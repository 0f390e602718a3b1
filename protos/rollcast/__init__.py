"""Rollcast's contract: everything that actors and learners share. Its names for Python programs are those of both sides.

    run = rollcast.train("CartPole-v1", max_steps=100_000)
    policy = rollcast.load_policy("results/cartpole")
    action = policy.act(observation)
    result = rollcast.evaluate(policy, "CartPole-v1", episodes=100)

A name loads its side when it is first used, so that the import stays light.
"""

import importlib as _importlib
import os as _os
from typing import Any as _Any

_SIDES = {
    "ActorThread": "actor_client.background",
    "Evaluation": "actor_client.library",
    "LoadedPolicy": "actor_client.library",
    "RollcastError": "rollcast.exits",
    "Run": "learner.library",
    "Study": "learner.cli.sweep_request",
    "act": "actor_client.background",
    "evaluate": "actor_client.library",
    "launch": "learner.library:train",
    "load_policy": "actor_client.library",
    "serve": "learner.library",
    "sweep": "learner.library",
    "train": "learner.library",
}
"""Module of each name, and its name there if it is another."""
__all__ = sorted(_SIDES)  # noqa: PLE0605 - the stub has the list

# ONNX Runtime 1.29 and later sends names and hashes of models to its maker, and keeps an identifier of the machine in the
# user's cache, unless this is set before its import (https://github.com/microsoft/onnxruntime/pull/27379). Training data of
# others is not ours to tell.
_os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# gRPC stops and starts its threads around each fork of a program that uses it, and fails at that (https://github.com/grpc/grpc
# /issues/32992, 31885, 19793): of the processes that environments fork one in ten crashed. They do not use gRPC, and live
# without. It reads the variable when it is loaded; a user's own value stays.
_os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def __getattr__(name: str) -> _Any:
    """Loads a name of `__all__`.

    Raises:
        AttributeError: There is no such name.
        ImportError: A package that it needs is not installed.
    """
    if name not in _SIDES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rollcast.extras import install  # noqa: PLC0415 - few programs need it

    module, _, there = _SIDES[name].partition(":")
    try:
        found = getattr(_importlib.import_module(module), there or name)
    except ModuleNotFoundError as error:
        extras = "learner,actor,gym" if module.startswith("learner") else "actor,gym"
        raise ImportError(f"rollcast.{name} needs the module {error.name!r}; {install(extras)}") from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Returns the names of the module, those that are not loaded yet included."""
    return sorted({*globals(), *__all__})
