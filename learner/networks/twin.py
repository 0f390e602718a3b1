"""Twin critics Q(s, a): two networks of one shape, whose layers are computed as one.

Both see the same encoded observations and the same continuous actions; what discrete actions are worth comes out side by
side, one number for each choice (Christodoulou 2019, arXiv:1910.07207). Two critics of which the smaller counts do not
overestimate as one does (Fujimoto et al. 2018, arXiv:1802.09477, section 4.2). As in `learner.networks.dense`,
derivatives are written by hand; the encoders and layers that goals condition stay with autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.dense import Activation, ConditionedLayer, activation
from learner.networks.encoders import Encoded, ObservationEncoder, VectorEncoder
from learner.networks.initializers import Initializer
from learner.networks.lstm import Memory, Unrolled
from learner.networks.tower import BoardEncoder
from learner.settings.network import NetworkSettings
from learner.sizing.networks import Board

TWINS = 2


class TwinLayer(nn.Module):
    """Two linear layers: ``[2, B, inputs]`` to ``[2, B, outputs]``.

    Args:
        first, second: layers whose initial weights are taken over.
    """

    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([first.weight.detach().t(), second.weight.detach().t()]))
        self.bias = nn.Parameter(torch.stack([first.bias.detach(), second.bias.detach()]).unsqueeze(1))

    def forward(self, values: Tensor) -> Tensor:
        """Computes ``[2, B, outputs]``."""
        return torch.baddbmm(self.bias, values, self.weight)

    def write_gradients(self, inputs: Tensor, outer: Tensor) -> None:
        """Writes the gradients of the parameters, given the derivative of what came out ``[2, B, outputs]``."""
        torch.bmm(inputs.transpose(1, 2), outer, out=self.weight.grad)
        torch.sum(outer, 1, keepdim=True, out=self.bias.grad)

    def to_inputs(self, outer: Tensor) -> Tensor:
        """Returns the derivative of what went in, ``[2, B, inputs]``."""
        return torch.bmm(outer, self.weight.transpose(1, 2))


class TwinNeck(nn.Module):
    """What each twin sees of a tower's planes: a 1x1 convolution of its own; both are computed as one.

    Args:
        planes: of the tower.
        count: planes that are left for each.
        initializer: where initial weights come from.

    Attributes:
        size: numbers that are left for each.
    """

    def __init__(self, planes: Board, count: int, initializer: Initializer) -> None:
        super().__init__()
        self._shape = tuple(planes)
        self.size = count * planes.height * planes.width
        self.conv = initializer.conv(planes.planes, TWINS * count, 1)

    def forward(self, encoded: Tensor) -> Tensor:
        """Computes ``[2, B, size]`` from the tower's numbers."""
        found: Tensor = self.conv(encoded.reshape(-1, *self._shape)).relu()
        return found.view(-1, TWINS, self.size).transpose(0, 1).contiguous()


class TwinRecord(NamedTuple):
    """What the way back through `TwinCritic` needs.

    Attributes:
        inputs: what went into each layer, the head included: ``[2, B, width]``.
        sums: what went into each activation: ``[2, B, units]``; only swish needs it.
        actions: ``[B, n]``, watched by autograd, if goals condition the critics.
        watched: what autograd goes back from, ``[2, B, outputs]``, in that case.
    """

    inputs: list[Tensor]
    sums: list[Tensor]
    actions: Tensor | None = None
    watched: Tensor | None = None


class TwinCritic(nn.Module):
    """Observations and continuous actions to ``[2, B, signals, choices]``.

    The encoder is common to both (a picture is read once), and so is a memory behind it, which knows nothing of the
    actions; all layers after these are not. A residual tower is such an encoder, too; of its planes each twin sees some
    of its own, and layers follow them only where there are continuous actions.
    ``choices`` is the number of all choices of all branches, side by side, and 1 without discrete actions.

    Args:
        spec: what the behavior sees and does.
        settings: the network block of the run file.
        signals: number of reward signals.
        generator: where initial weights come from; None is torch's own.

    Raises:
        UserError: the settings ask for something that does not fit the behavior.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, signals: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        initializer = Initializer(settings.initialization, generator)
        self.kind: Activation = settings.activation
        self._activation = activation(self.kind)
        self._axes = spec.action.continuous_size
        self._signals = signals
        self.choices = spec.action.mask_size or 1
        self.encoder: ObservationEncoder | BoardEncoder
        self.neck: TwinNeck | None = None
        if settings.tower is None:
            self.encoder, count = ObservationEncoder(spec.observations, settings, initializer), settings.num_layers
        else:
            self.encoder = BoardEncoder(spec.observations, settings, settings.tower, initializer)
            count = settings.num_layers if self._axes else 0  # what an axis is worth depends on the board, too
            self.neck = TwinNeck(self.encoder.planes, settings.tower.policy_planes, initializer)
        self.memory = (
            Memory(self.encoder.size, settings.memory.memory_size, initializer) if settings.memory is not None else None
        )
        units, goals = settings.hidden_units, self.encoder.goal_size
        count -= bool(goals)
        self._encoded_size = (self.memory or self.neck or self.encoder).size
        inputs = self._encoded_size + self._axes
        widths = [inputs] + [units] * count
        gain = initializer.gains.hidden
        self._layers = tuple(
            TwinLayer(initializer.linear(before, units, gain), initializer.linear(before, units, gain))
            for before in widths[:-1]
        )
        self.layers = nn.ModuleList(self._layers)
        self.conditioned = (
            nn.ModuleList(ConditionedLayer(widths[-1], units, goals, self.kind, initializer) for _ in range(TWINS))
            if goals
            else None
        )
        last = units if goals else widths[-1]
        outputs = signals * self.choices
        self.head = TwinLayer(initializer.value(last, outputs), initializer.value(last, outputs))
        self.encoder_learns = any(parameter.requires_grad for parameter in self._before_layers())

    def forward(
        self, observations: Sequence[Tensor], actions: Tensor | None, batch_sizes: Tensor | None = None
    ) -> Tensor:
        """Computes values ``[2, B, signals, choices]``.

        Args:
            observations: ``[B, *shape]`` each, in wire types.
            actions: ``[B, n]`` in [-1, 1], or None without continuous actions.
            batch_sizes: see `encode`.
        """
        return self.values(self.encode(observations, batch_sizes), actions)

    def encode(self, observations: Sequence[Tensor], batch_sizes: Tensor | None = None) -> Encoded:
        """Encodes ``[B, *shape]`` of each observation.

        Args:
            observations: in wire types; packed sequences with a memory, before which nothing is remembered.
            batch_sizes: ``[L]`` int64 on the CPU, sequences that have a row at each place; needed with a memory only.

        Returns:
            ``[B, size]``; ``[2, B, size]`` behind a tower, of which each twin sees another part.
        """
        encoded = self.encoder.encode(list(observations))
        if self.neck is not None:
            return encoded._replace(values=self.neck(encoded.values))
        if self.memory is None:
            return encoded
        if batch_sizes is None:
            raise ValueError("critics with a memory were called without sequences")
        nothing = encoded.values.new_zeros(int(batch_sizes[0]), self.memory.memory_size)
        hidden, _ = self.memory.unroll(encoded.values, Unrolled(batch_sizes, nothing))
        return encoded._replace(values=hidden)

    def values(self, encoded: Encoded, actions: Tensor | None) -> Tensor:
        """Computes values ``[2, B, signals, choices]`` of what `encode` made."""
        values = self._first(encoded.values, actions)
        for layer in self._layers:
            values = self._activation(layer(values))
        if self.conditioned is not None and encoded.goals is not None:
            goals = encoded.goals
            values = torch.stack([layer(part, goals) for layer, part in zip(self.conditioned, values, strict=True)])
        return self._shaped(self.head(values))

    def record(self, encoded: Encoded, actions: Tensor | None) -> tuple[Tensor, TwinRecord]:
        """Computes the same as `values`, and what `backward` and `to_actions` need; under ``torch.no_grad``."""
        if self.conditioned is not None:
            with torch.enable_grad():
                leaf = None if actions is None else actions.detach().requires_grad_()
                watched = self.values(encoded, leaf)
            return watched.detach(), TwinRecord([], [], leaf, watched)
        values = self._first(encoded.values, actions)
        inputs, sums = [values], []
        # As in `learner.networks.dense`: on a CPU tanh(x) = 2 sigmoid(2 x) - 1 is four times as fast as tanh.
        by_sigmoid = self.kind == "tanh" and values.device.type == "cpu"
        scale = 2 if by_sigmoid else 1
        for layer in self._layers:
            before = torch.baddbmm(layer.bias, values, layer.weight, beta=scale, alpha=scale)
            sums.append(before)
            values = before.sigmoid().mul_(2.0).sub_(1.0) if by_sigmoid else self._activation(before)
            inputs.append(values)
        return self._shaped(self.head(values)), TwinRecord(inputs, sums)

    def backward(self, record: TwinRecord, encoded: Encoded, outer: Tensor) -> None:
        """Writes the gradient of every parameter, of encoder and memory, too.

        Args:
            record: of `record`.
            encoded: what it was given; made under autograd if `encoder_learns`.
            outer: the loss's derivative with respect to the values, ``[2, B, signals, choices]``.
        """
        if record.watched is not None:
            _write(record.watched, list(self.parameters()), outer)
            return
        inner = self._through(record, self._flat(outer), writes=True)
        if not self.encoder_learns:
            return
        to_encoded = self._to_inputs_of_first(inner, slice(None, self._encoded_size))
        _write(encoded.values, self._before_layers(), to_encoded.sum(0) if self.neck is None else to_encoded)

    def to_actions(self, record: TwinRecord, outer: Tensor) -> Tensor:
        """Returns the derivative with respect to the actions ``[B, n]``; writes nothing.

        Args:
            record: of `record`.
            outer: the loss's derivative with respect to the values, ``[2, B, signals, choices]``.
        """
        if record.watched is not None and record.actions is not None:
            (found,) = torch.autograd.grad(record.watched, [record.actions], outer)
            return found
        inner = self._through(record, self._flat(outer), writes=False)
        return self._to_inputs_of_first(inner, slice(self._encoded_size, None)).sum(0)

    def vector_encoders(self) -> list[tuple[int, VectorEncoder]]:
        """Returns every encoder that normalizes, with the position of its observation."""
        return list(self.encoder.normalizing.items())

    def _before_layers(self) -> list[nn.Parameter]:
        """Returns what autograd goes back to: the parameters of encoder, neck and memory."""
        parts = (self.encoder, self.neck, self.memory)
        return [parameter for part in parts if part is not None for parameter in part.parameters()]

    def _first(self, encoded: Tensor, actions: Tensor | None) -> Tensor:
        if self.neck is not None:
            return encoded if actions is None else torch.cat((encoded, actions.expand(TWINS, -1, -1)), dim=2)
        values = encoded if actions is None else torch.cat((encoded, actions), dim=1)
        return values.expand(TWINS, -1, -1)

    def _shaped(self, outputs: Tensor) -> Tensor:
        return outputs.view(TWINS, -1, self._signals, self.choices)

    def _flat(self, outer: Tensor) -> Tensor:
        return outer.reshape(TWINS, -1, self._signals * self.choices)

    def _through(self, record: TwinRecord, outer: Tensor, *, writes: bool) -> Tensor:
        """Goes back to what came out of the first layer before its activation (of the head, if there is no layer)."""
        layers = (*self._layers, self.head)
        for index in range(len(layers) - 1, 0, -1):
            if writes:
                layers[index].write_gradients(record.inputs[index], outer)
            outer = self._inner(record, index - 1, layers[index].to_inputs(outer))
        if writes:
            layers[0].write_gradients(record.inputs[0], outer)
        return outer

    def _inner(self, record: TwinRecord, index: int, outer: Tensor) -> Tensor:
        """Goes back through the activation behind layer ``index``."""
        if self.kind == "swish":
            found: Tensor = torch.ops.aten.silu_backward(outer, record.sums[index])
        elif self.kind == "relu":
            found = torch.ops.aten.threshold_backward(outer, record.inputs[index + 1], 0.0)
        else:
            found = torch.ops.aten.tanh_backward(outer, record.inputs[index + 1])
        return found

    def _to_inputs_of_first(self, outer: Tensor, part: slice) -> Tensor:
        """Goes back to a part of what each twin was given, ``[2, B, width of the part]``."""
        first = self._layers[0] if self._layers else self.head
        return torch.bmm(outer, first.weight[:, part].transpose(1, 2))


def _write(watched: Tensor, parameters: list[nn.Parameter], outer: Tensor) -> None:
    """Writes gradients that autograd finds."""
    for parameter, gradient in zip(parameters, torch.autograd.grad(watched, parameters, outer), strict=True):
        if parameter.grad is not None:
            parameter.grad.copy_(gradient)
