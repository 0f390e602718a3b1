"""Measures the decisions per second that the learner alone trains on, and the load of device and host.

Nothing here passes or fails. A decision is one step of experience that went through a whole update: staged, valued, and
learned from in all epochs. Chunks are available; no actor and no service takes part.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk

from learner.training.trainers import registry
from learner.training.trainers.base import Trainer
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.synthetic import SyntheticActor
from tests.tools.bench.measurement import Spread
from tests.tools.bench.table import cell
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import CPU, finish, float32
from tests.tools.gpu.occupancy import Occupancy

_HORIZON: Final = 64


@dataclass(frozen=True, slots=True)
class Load:
    """A training to measure."""

    title: str
    spec: BehaviorSpec
    network: Mapping[str, Any] = field(default_factory=dict)
    buffer_steps: int = 8192
    batch_steps: int = 1024
    epochs: int = 4


_STATE: Final = ObservationSpec("state", np.dtype(np.float32), (24,), ObservationKind.VECTOR)
_FRAMES: Final = ObservationSpec(
    "frames", np.dtype(np.uint8), (84, 84, 4), ObservationKind.IMAGE, layout=ImageLayout.HWC, scale=255.0
)
LOADS: Final[Mapping[str, Load]] = {
    "mlp": Load("2x256, minibatches of 1,024", BehaviorSpec("MLP", (_STATE,), ActionSpec(4)), {"hidden_units": 256}),
    "nature": Load(
        "nature_cnn of 84x84x4, minibatches of 256",
        BehaviorSpec("Nature", (_FRAMES,), ActionSpec(discrete_branches=(6,))),
        {"vis_encode_type": "nature_cnn", "hidden_units": 512, "num_layers": 1},
        buffer_steps=2048,
        batch_steps=256,
        epochs=3,
    ),
}


def check(setup: Setup, name: str) -> Outcome:
    """Measures a load on the device as a learner computes, then with TF32, and on the CPU."""
    load = LOADS[name]
    if setup.shrinks:
        load = Load(load.title, load.spec, load.network, 2 * _HORIZON, _HORIZON, 1)
    chunk = _chunk(load)
    with float32():
        here, occupancy = _measure(load, setup.device, setup, chunk)
    parts = [f"{cell(here, ',.0f')} decisions/s ({load.title})", occupancy.shown()]
    figures = {"decisions_per_second": here.median, **occupancy.figures()}
    if setup.device != CPU:
        (on_cpu, _), (tf32, _) = _measure(load, CPU, setup, chunk), _measure(load, setup.device, setup, chunk)
        figures["over_cpu"] = here.median / on_cpu.median
        figures["tf32_over_float32"] = tf32.median / here.median
        parts += [f"{figures['over_cpu']:.1f} x this CPU", f"with TF32 {figures['tf32_over_float32']:.2f} x"]
    return Outcome(held=True, text=", ".join(parts), figures=figures)


def _measure(load: Load, device: torch.device, setup: Setup, chunk: Chunk) -> tuple[Spread, Occupancy]:
    """Trains for some rounds, after two updates that are not counted."""
    bench, trainer = _start(load, device)
    for _ in range(2):
        _update(bench, trainer, chunk)
    rates = []
    with Occupancy.watched(device) as occupancy:
        for _ in range(setup.rounds):
            begun, steps = time.perf_counter(), trainer.steps_trained
            while time.perf_counter() - begun < setup.seconds:
                _update(bench, trainer, chunk)
            finish(device)
            rates.append((trainer.steps_trained - steps) / (time.perf_counter() - begun))
    return Spread.of(rates), occupancy


def _chunk(load: Load) -> Chunk:
    """Makes the experience of one update."""
    bench, _ = _start(load, CPU)
    return SyntheticActor(bench).chunk([_HORIZON] * (load.buffer_steps // _HORIZON + 1))


def _start(load: Load, device: torch.device) -> tuple[Bench, Trainer]:
    hyper = {"buffer_size": load.buffer_steps, "batch_size": load.batch_steps, "num_epoch": load.epochs}
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {**hyper, "learning_rate": 1e-5, "learning_rate_schedule": "constant"},
        "network_settings": dict(load.network),
        "time_horizon": _HORIZON,
        "max_steps": 2**40,
        "summary_freq": 2**40,
        "threaded": True,
    }
    bench = make_bench(settings, load.spec, max_policy_lag=0)  # the same chunk again and again
    trainer = registry.build(bench.context(device=device))
    trainer.start()
    return bench, trainer


def _update(bench: Bench, trainer: Trainer, chunk: Chunk) -> None:
    bench.put(chunk)
    while trainer.advance():
        pass
