"""Exports an opponent for the scripted players' duel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.shared.settings.network import NetworkSettings
from learner.training.export.unity import render_unity
from learner.training.networks.policy import PolicyNetwork


def rival(folder: Path) -> str:
    """Exports an untrained policy of the duel and returns the path of the file."""
    spec = BehaviorSpec("Duel", (ObservationSpec("state", np.dtype("float32"), (8,)),), ActionSpec(2))
    path = folder / "rival.onnx"
    path.write_bytes(render_unity(PolicyNetwork(spec, NetworkSettings(hidden_units=8))))
    return str(path)
