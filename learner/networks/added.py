"""Encoders of pictures that installed packages bring, by the name of an entry point."""

from __future__ import annotations

import numpy as np
import torch
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.common.exits import ExitCode, UserError
from learner.common.plugins import make
from learner.networks.initializers import Initializer
from learner.settings.extensions import ENCODERS, load

_SETTING = "network_settings.vis_encode_type"


class AddedEncoder(nn.Module):
    """What a package makes of a picture: ``[B, *shape]``, as on the wire, to ``[B, size]``.

    The entry point is called with the observation's spec, the width that is wanted and an `Initializer`, and returns a
    module. It becomes part of ONNX files: what it does must be expressible there.

    Args:
        spec: the observation.
        kind: the name of the entry point.
        size: width of the result.
        initializer: where initial weights come from.

    Raises:
        UserError: it cannot be imported or made, or makes something else.
    """

    def __init__(self, spec: ObservationSpec, kind: str, size: int, initializer: Initializer) -> None:
        super().__init__()
        self.size = size
        factory = load(_SETTING, kind, ENCODERS)
        self.encoder = make(_SETTING, kind, lambda: factory(spec, size, initializer))
        if not isinstance(self.encoder, nn.Module):
            raise UserError(ExitCode.RUN_FILE, f"{_SETTING} names {kind!r}, which makes no torch.nn.Module")
        example = torch.zeros(2, *spec.shape, dtype=torch.from_numpy(np.zeros(0, spec.dtype)).dtype)
        with torch.no_grad():
            made = tuple(make(_SETTING, kind, lambda: self.encoder(example)).shape)
        if made != (2, size):
            raise UserError(
                ExitCode.RUN_FILE,
                f"{_SETTING} names {kind!r}, which makes {list(made)} of {list(example.shape)}: it must be [2, {size}]",
            )

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, *shape]`` of the wire's type to ``[B, size]`` float32."""
        encoded: Tensor = self.encoder(observation)
        return encoded
