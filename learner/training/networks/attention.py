"""Attention over lists of entities: summarizes any number of them, in any order.

Scaled dot products with several heads (Vaswani et al. 2017, arXiv:1706.03762), in the form of ML-Agents 1.1.0: each
entity is embedded with the agent's other observations, the agent has no query, and the summary is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.shared.settings.network import Activation
from learner.training.networks.dense import activation
from learner.training.networks.initializers import Initializer

EMBEDDING = 128
"""Width of an embedded entity, and of the summary of all of them."""
HEADS = 4
PADDING_BELOW = 0.01
"""An entity whose sum of squares is below this is absent: simulators pad their lists with zeros."""

_NOT_THERE = -1e8
"""Added to the score of padding. Finite, so that a list of only padding is uniform, not NaN."""


class EntityEmbedding(nn.Module):
    """Embeds one list ``[B, max, size]`` as ``[B, max, EMBEDDING]``.

    Args:
        spec: The list.
        own: Width of the values appended to each entity; 0 for none.
        kind: The activation after the layer.
        initializer: Draws the initial weights.
    """

    def __init__(self, spec: ObservationSpec, own: int, kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        self._factor = 1.0 / spec.scale if spec.scale else 1.0
        self._size = spec.shape[1]
        self.dense = initializer.linear(self._size + own, EMBEDDING, initializer.gains.hidden)
        self._activation = activation(kind)

    def forward(self, entities: Tensor, own: Tensor | None) -> Tensor:
        """Embeds entities ``[B, max, size]`` float32, each together with ``own`` ``[B, own]``."""
        values = entities if self._factor == 1.0 else entities * self._factor
        weight = self.dense.weight
        # Equals a layer over the entity and `own`, with the part of `own` computed once for all entities.
        sums = nn.functional.linear(values, weight[:, : self._size], self.dense.bias)
        if own is not None:
            sums = sums + nn.functional.linear(own, weight[:, self._size :]).reshape(-1, 1, EMBEDDING)
        embedded: Tensor = self._activation(sums)
        return embedded


class SelfAttention(nn.Module):
    """Summarizes embedded entities to ``[B, width]``: residual attention, a norm, the mean over entities present.

    Args:
        count: Number of entities, including padding; None for any number, in a network that is not exported.
        initializer: Draws the initial weights.
        width: Width of an embedded entity, a multiple of `HEADS`.
    """

    def __init__(self, count: int | None, initializer: Initializer, width: int = EMBEDDING) -> None:
        super().__init__()
        self._count = count
        self._width = width
        self.query, self.key, self.value, self.out = (initializer.linear(width, width, 1.0) for _ in range(4))

    def forward(self, embedded: Tensor, padding: Tensor) -> Tensor:
        """Summarizes entities.

        Args:
            embedded: ``[B, count, width]``.
            padding: ``[B, count]``, 1 where there is no entity, otherwise 0.
        """
        count = embedded.shape[1] if self._count is None else self._count
        values = _normalized(embedded, self._width)
        keys = self._heads(self.key(values), count).transpose(2, 3)
        scores = torch.matmul(self._heads(self.query(values), count), keys) * (1.0 / math.sqrt(self._width))
        weights = torch.softmax(scores + padding.reshape(-1, 1, 1, count) * _NOT_THERE, dim=3)
        attended = torch.matmul(weights, self._heads(self.value(values), count))
        found = values + self.out(attended.permute(0, 2, 1, 3).reshape(-1, count, self._width))
        found = _normalized(found, self._width)
        there = (1.0 - padding).reshape(-1, count, 1)
        return (found * there).sum(1) / there.sum(1).clamp(min=1.0)

    def _heads(self, values: Tensor, count: int) -> Tensor:
        """Splits ``[B, count, width]`` to ``[B, HEADS, count, width / HEADS]``."""
        return values.reshape(-1, count, HEADS, self._width // HEADS).permute(0, 2, 1, 3)


class EntityAttention(nn.Module):
    """Summarizes all lists of entities of a behavior, as one set, to ``[B, EMBEDDING]``.

    Args:
        specs: The lists, ``[max, size]`` each.
        fixed: Width of the other encoded observations; 0 for none.
        kind: Activation of the embeddings.
        initializer: Draws the initial weights.
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
        """Summarizes lists ``[B, max, size]`` of any numeric type, together with ``[B, fixed]`` if present."""
        own = None if self.own is None or fixed is None else self.own(fixed)
        numbers = [values.to(torch.float32) for values in lists]
        embedded = [embed(values, own) for embed, values in zip(self.embeddings, numbers, strict=True)]
        padding = [((values * values).sum(2) < PADDING_BELOW).to(torch.float32) for values in numbers]
        summary: Tensor = self.attention(side_by_side(embedded), side_by_side(padding))
        return summary


def side_by_side(parts: list[Tensor]) -> Tensor:
    """Concatenates parts along their second axis."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _normalized(values: Tensor, width: int) -> Tensor:
    """Normalizes over the last axis, without scale and shift (Ba et al. 2016, arXiv:1607.06450)."""
    return nn.functional.layer_norm(values, (width,))
