"""Attention over lists of entities: any number of them, in any order, to one summary.

Scaled dot products with several heads (Vaswani et al. 2017, arXiv:1706.03762), in the form that ML-Agents 1.1.0 gives
them: each entity knows the agent's other observations, the agent asks nothing by itself, and the summary is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.networks.dense import Activation, activation
from learner.networks.initializers import Initializer

EMBEDDING = 128
"""Width of an embedded entity, and of the summary of all of them."""
HEADS = 4
PADDING_BELOW = 0.01
"""An entity whose squares sum to less is not there: simulators fill up their lists with zeros."""

_NOT_THERE = -1e8
"""Added to the score of padding. Finite, so that a list of padding alone is uniform, not NaN."""


class EntityEmbedding(nn.Module):
    """One list ``[B, max, size]`` to ``[B, max, EMBEDDING]``.

    Args:
        spec: the list.
        own: width of what is appended to each entity; 0 for nothing.
        kind: the activation after the layer.
        initializer: where initial weights come from.
    """

    def __init__(self, spec: ObservationSpec, own: int, kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        self._factor = 1.0 / spec.scale if spec.scale else 1.0
        self._size = spec.shape[1]
        self.dense = initializer.linear(self._size + own, EMBEDDING, initializer.gains.hidden)
        self._activation = activation(kind)

    def forward(self, entities: Tensor, own: Tensor | None) -> Tensor:
        """Embeds entities ``[B, max, size]`` float32, each beside ``own`` ``[B, own]``."""
        values = entities if self._factor == 1.0 else entities * self._factor
        weight = self.dense.weight
        # The layer of the entity beside `own`, but what `own` adds is computed once for all entities.
        sums = nn.functional.linear(values, weight[:, : self._size], self.dense.bias)
        if own is not None:
            sums = sums + nn.functional.linear(own, weight[:, self._size :]).reshape(-1, 1, EMBEDDING)
        embedded: Tensor = self._activation(sums)
        return embedded


class SelfAttention(nn.Module):
    """Embedded entities to their summary ``[B, EMBEDDING]``: residual attention, a norm, the mean of those there.

    Args:
        count: of entities, padding included.
        initializer: where initial weights come from.
    """

    def __init__(self, count: int, initializer: Initializer) -> None:
        super().__init__()
        self._count = count
        self.query, self.key, self.value, self.out = (initializer.linear(EMBEDDING, EMBEDDING, 1.0) for _ in range(4))

    def forward(self, embedded: Tensor, padding: Tensor) -> Tensor:
        """Summarizes entities.

        Args:
            embedded: ``[B, count, EMBEDDING]``.
            padding: ``[B, count]``, 1 where there is no entity, else 0.
        """
        values = _normalized(embedded)
        keys = self._heads(self.key(values)).transpose(2, 3)
        scores = torch.matmul(self._heads(self.query(values)), keys) * (1.0 / math.sqrt(EMBEDDING))
        weights = torch.softmax(scores + padding.reshape(-1, 1, 1, self._count) * _NOT_THERE, dim=3)
        attended = torch.matmul(weights, self._heads(self.value(values)))
        found = _normalized(values + self.out(attended.permute(0, 2, 1, 3).reshape(-1, self._count, EMBEDDING)))
        there = (1.0 - padding).reshape(-1, self._count, 1)
        return (found * there).sum(1) / there.sum(1).clamp(min=1.0)

    def _heads(self, values: Tensor) -> Tensor:
        """Splits ``[B, count, EMBEDDING]`` to ``[B, HEADS, count, EMBEDDING / HEADS]``."""
        return values.reshape(-1, self._count, HEADS, EMBEDDING // HEADS).permute(0, 2, 1, 3)


class EntityAttention(nn.Module):
    """All lists of entities of a behavior, as one set, to ``[B, EMBEDDING]``.

    Args:
        specs: the lists, ``[max, size]`` each.
        fixed: width of the other observations, encoded; 0 if there are none.
        kind: the activation of embeddings.
        initializer: where initial weights come from.
    """

    def __init__(
        self, specs: Sequence[ObservationSpec], fixed: int, kind: Activation, initializer: Initializer
    ) -> None:
        super().__init__()
        self.size = EMBEDDING
        self.own = initializer.linear(fixed, EMBEDDING, initializer.gains.hidden) if fixed else None
        own = EMBEDDING if fixed else 0
        self.embeddings = nn.ModuleList(EntityEmbedding(spec, own, kind, initializer) for spec in specs)
        self.attention = SelfAttention(sum(spec.shape[0] for spec in specs), initializer)

    def forward(self, lists: Sequence[Tensor], fixed: Tensor | None) -> Tensor:
        """Summarizes lists ``[B, max, size]`` of any numeric type, beside ``[B, fixed]`` if there is such a part."""
        own = None if self.own is None or fixed is None else self.own(fixed)
        numbers = [values.to(torch.float32) for values in lists]
        embedded = [embed(values, own) for embed, values in zip(self.embeddings, numbers, strict=True)]
        padding = [((values * values).sum(2) < PADDING_BELOW).to(torch.float32) for values in numbers]
        summary: Tensor = self.attention(_side_by_side(embedded), _side_by_side(padding))
        return summary


def _side_by_side(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _normalized(values: Tensor) -> Tensor:
    """Normalizes over the last axis, without factor and shift (Ba et al. 2016, arXiv:1607.06450)."""
    return nn.functional.layer_norm(values, (EMBEDDING,))
