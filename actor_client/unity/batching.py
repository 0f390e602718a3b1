"""One run of a policy for all who wait for it, of whichever players."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.actions import ActingPolicy, Actions, MaskArray
from actor_client.policy.noise import Noise
from actor_client.unity.acting import Acting
from actor_client.unity.asking import Exchange
from actor_client.unity.steps import DecisionBatch


def act(policy: ActingPolicy, crew: Sequence[Acting], noise: Noise) -> list[Exchange]:
    """Answers all who wait for one policy with one run of it.

    Args:
        policy: The policy.
        crew: Behavior ids that act with it; someone waits.
        noise: Of the behavior.

    Returns:
        Exchanges that are complete by it.

    Raises:
        PolicyUnusable: The policy failed.
    """
    everyone = [asking for acting in crew for asking in acting.waiting]
    memories = [memory for acting in crew if (memory := acting.remembered(policy)) is not None]
    memory = np.concatenate(memories) if memories else None
    actions = policy.act(*joined([asking.part.step.decisions for asking in everyone]), noise, memory)
    complete: list[Exchange] = []
    begin = 0
    for asking in everyone:
        part = sliced(actions, begin, asking.agents)
        begin += asking.agents
        if asking.exchange.act(asking.part.form.behavior_id, part):
            complete.append(asking.exchange)
    begin = 0
    for acting in crew:
        agents = acting.agents_waiting
        acting.acted(sliced(actions, begin, agents))
        begin += agents
    return complete


def joined(batches: Sequence[DecisionBatch]) -> tuple[list[NDArray[Any]], MaskArray | None]:
    """Returns what all agents see, [sum of n, *shape] each, and their masks; None = all choices are allowed."""
    if len(batches) == 1:
        return batches[0].observations, batches[0].masks
    columns = zip(*(batch.observations for batch in batches), strict=True)
    observations = [np.concatenate(column) for column in columns]
    given = [batch.masks for batch in batches if batch.masks is not None]
    if not given:
        return observations, None
    width = given[0].shape[1]
    masks = [np.ones((len(batch.ids), width), np.uint8) if batch.masks is None else batch.masks for batch in batches]
    return observations, np.concatenate(masks)


def sliced(actions: Actions, begin: int, count: int) -> Actions:
    """Returns the actions of some agents, views of those of all."""
    if count == len(actions.log_prob):
        return actions
    rows = slice(begin, begin + count)
    continuous, discrete, log_prob, transformed, memory_in, memory_out = actions
    return Actions(
        None if continuous is None else continuous[rows],
        None if discrete is None else discrete[rows],
        log_prob[rows],
        None if transformed is None else transformed[rows],
        None if memory_in is None else memory_in[rows],
        None if memory_out is None else memory_out[rows],
    )
