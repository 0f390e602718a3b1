"""Converts environment parameters of the run file to messages, with seeds for samplers without one."""

from __future__ import annotations

from collections.abc import Mapping

from rollcast.v1 import policy_pb2

from learner.shared.settings.parameters import (
    ConstantParameters,
    GaussianParameters,
    MultiRangeUniformParameters,
    ParameterSettings,
    Sampler,
    UniformParameters,
)

_UNIFORM = policy_pb2.UniformSampler


def seeded(parameters: Mapping[str, ParameterSettings], run_seed: int) -> dict[str, tuple[policy_pb2.Sampler, ...]]:
    """Returns the samplers of each lesson of each parameter.

    A sampler with seed -1 gets the run's seed plus its index among all such samplers, ordered by parameter in the run
    file and then by lesson. A lesson therefore keeps its seed, whatever the current lessons of other parameters.
    """
    offset = 0
    samplers: dict[str, tuple[policy_pb2.Sampler, ...]] = {}
    for name, settings in parameters.items():
        messages = []
        for lesson in settings.curriculum:
            seed = lesson.value.sampler_parameters.seed
            if seed == -1:
                seed = run_seed + offset
                offset += 1
            messages.append(_message(lesson.value, seed))
        samplers[name] = tuple(messages)
    return samplers


def _message(sampler: Sampler, seed: int) -> policy_pb2.Sampler:
    seed &= 2**31 - 1  # range of seeds that players accept
    match sampler.sampler_parameters:
        case ConstantParameters(value=value):
            return policy_pb2.Sampler(constant=value, seed=seed)
        case UniformParameters(min_value=low, max_value=high):
            return policy_pb2.Sampler(uniform=_UNIFORM(low=low, high=high), seed=seed)
        case GaussianParameters(mean=mean, st_dev=st_dev):
            return policy_pb2.Sampler(gaussian=policy_pb2.GaussianSampler(mean=mean, st_dev=st_dev), seed=seed)
        case MultiRangeUniformParameters(intervals=intervals):
            ranges = policy_pb2.MultiRangeSampler(intervals=[_UNIFORM(low=low, high=high) for low, high in intervals])
            return policy_pb2.Sampler(multi_range=ranges, seed=seed)
    raise TypeError(f"no message for a sampler of type {sampler.sampler_type}")
