"""Joins the asking agents of several messages, so that a policy runs once for all of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.actions import MaskArray
from actor_client.rollout.agents.interface import AskingAgents


def joined(batches: Sequence[AskingAgents]) -> tuple[Sequence[NDArray[Any]], MaskArray | None]:
    """Returns the joined observations of all agents, [sum of n, *shape] each, and their masks; None = all choices."""
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
