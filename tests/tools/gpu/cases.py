"""The trainings on both devices: each trainer with each kind of network, on recorded chunks."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.enums import GroupEnd, ImageLayout, ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk

from learner.training.trainers import registry
from learner.training.trainers.base import Trainer
from tests.learner.training.networks.specs import entities, goal, image, vector
from tests.learner.training.rewards.recorded import demonstrate
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.recurrent import CUT, TERMINATED, TRUNCATED, Played, RecurrentActor
from tests.learner.training.trainers.synthetic import SyntheticActor
from tests.tools.gpu.check import Setup
from tests.tools.gpu.devices import CPU
from tests.tools.gpu.host_random import HostRandom

ON_POLICY = ("ppo", "appo", "impala", "poca")
TRAINERS = (*ON_POLICY, "sac")
_DEMONSTRATIONS = "{demonstrations}"
_PIECE = ObservationSpec("piece", np.dtype(np.int32), (2,), ObservationKind.CATEGORICAL, categories=(3, 4))
_BOARD = ObservationSpec("board", np.dtype(np.float32), (4, 3, 5), ObservationKind.IMAGE, layout=ImageLayout.CHW)
_LENGTHS = (20, 20, 13, 20)
_PLAYED: tuple[Sequence[Played], ...] = (
    ((0, 20, CUT), (1, 20, TERMINATED), (2, 13, CUT), (3, 20, TRUNCATED)),
    ((2, 20, CUT), (1, 7, CUT), (0, 20, CUT), (3, 20, CUT)),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of network.

    Attributes:
        spec: What is seen and done.
        network: Of the run file.
        more: Other settings of the behavior.
        masked: Whether choices are forbidden at random.
        remembers: Whether the policy has a memory.
    """

    spec: BehaviorSpec
    network: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    masked: bool = False
    remembers: bool = False


_GAIL = {"gamma": 0.99, "strength": 0.1, "demo_path": _DEMONSTRATIONS, "use_actions": True, "use_vail": True}
_EXPLORES = {"gamma": 0.99, "strength": 0.1}
KINDS: Mapping[str, Kind] = {
    "vector": Kind(
        BehaviorSpec("Vector", (vector(size=5), _PIECE), ActionSpec(2, (3, 2))), {"normalize": True}, masked=True
    ),
    "pictures": Kind(
        BehaviorSpec("Pictures", (image(shape=(36, 40, 3)), vector()), ActionSpec(discrete_branches=(4,))),
        {"vis_encode_type": "nature_cnn"},
    ),
    "entities": Kind(BehaviorSpec("Entities", (entities(), vector(), goal()), ActionSpec(1, (2, 3)))),
    "memory": Kind(
        BehaviorSpec("Memory", (vector(size=5),), ActionSpec(2, (3,))),
        {"memory": {"memory_size": 8, "sequence_length": 4}, "normalize": True},
        remembers=True,
    ),
    "tower": Kind(
        BehaviorSpec("Tower", (_BOARD,), ActionSpec(discrete_branches=(16,))),
        {"tower": {"depth": 2, "width": 6}},
        masked=True,
    ),
    "signals": Kind(
        BehaviorSpec("Signals", (vector(size=5),), ActionSpec(1, (3,))),
        {"normalize": True},
        {
            "reward_signals": {"extrinsic": {}, "curiosity": _EXPLORES, "rnd": _EXPLORES, "gail": _GAIL},
            "behavioral_cloning": {"demo_path": _DEMONSTRATIONS, "steps": 10_000, "strength": 0.5},
        },
    ),
}
"""By name."""


@dataclass(frozen=True, slots=True)
class Case:
    """A trainer with a kind of network."""

    trainer: str
    kind: str

    @property
    def name(self) -> str:
        """Returns both names."""
        return f"{self.trainer}-{self.kind}"

    def settings(self, folder: Path) -> dict[str, Any]:
        """Returns those of the behavior; demonstrations are recorded into a folder if it needs some."""
        kind = KINDS[self.kind]
        # At 1e-3 rounding grows tenfold per update in the norms of poca's attention, and per nine updates of sac's pictures.
        learning_rate = {"poca": 3e-5, "sac": 1e-4}.get(self.trainer, 1e-3)
        hyper = {"batch_size": 16, "buffer_size": 64, "learning_rate": learning_rate}
        if self.trainer in ON_POLICY:
            hyper["num_epoch"] = 2
        else:
            hyper |= {"buffer_size": 160, "steps_per_update": 8, "reward_signal_steps_per_update": 8}
        settings = {
            "trainer_type": self.trainer,
            "hyperparameters": hyper,
            "network_settings": {"hidden_units": 24, "num_layers": 2, **kind.network},
            "time_horizon": 20,
            "max_steps": 100_000,
            **kind.more,
        }
        text = json.dumps(settings)
        if _DEMONSTRATIONS in text:
            path = folder / f"{self.name}.demo"
            if not path.exists():
                demonstrate(path, kind.spec, lengths=(30, 25))
            text = text.replace(_DEMONSTRATIONS, str(path))
        made: dict[str, Any] = json.loads(text)
        return made


def cases(setup: Setup) -> list[Case]:
    """Returns all cases; of a short run those of ppo and sac, whose code the others share, and of poca's own code."""
    if setup.shrinks:
        return [*(Case(trainer, kind) for trainer in ("ppo", "sac") for kind in KINDS), Case("poca", "memory")]
    return [Case(trainer, kind) for trainer in TRAINERS for kind in KINDS]


@dataclass(frozen=True, slots=True)
class Started:
    """A started trainer and its surroundings."""

    case: Case
    bench: Bench
    trainer: Trainer

    def feed(self, chunk: Chunk) -> None:
        """Feeds a chunk and runs the trainer until it waits."""
        self.bench.put(chunk)
        while self.trainer.advance():
            pass


def start(case: Case, device: torch.device, folder: Path, **context: Any) -> Started:
    """Builds and starts the trainer of a case as a learner does, but for the service."""
    bench = make_bench(case.settings(folder), KINDS[case.kind].spec)
    trainer = registry.build(bench.context(device=device, **context))
    trainer.start()
    return Started(case, bench, trainer)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A training on the CPU."""

    chunks: list[Chunk]
    begun: Mapping[str, Any]
    trainer: Trainer


def record(case: Case, folder: Path, chunks: int) -> Recorded:
    """Trains on the CPU, with the random numbers that `train` draws, too.

    Args:
        case: What is trained.
        folder: For demonstrations.
        chunks: How many; each makes an on-policy trainer update once, and sac nine times.
    """
    started, kind = start(case, CPU, folder), KINDS[case.kind]
    begun = copy.deepcopy(started.trainer.state_dict()["model"])
    recorded: list[Chunk] = []
    remembering = RecurrentActor(started.bench, masked=kind.masked)
    actor = remembering if kind.remembers else SyntheticActor(started.bench, masked=kind.masked)
    with HostRandom():
        for number in range(chunks):
            played = list(_PLAYED[number % len(_PLAYED)])
            lengths = [steps for _, steps, _ in played] if kind.remembers else list(_LENGTHS)
            columns = group_columns(lengths) if case.trainer == "poca" else {}
            chunk = (
                remembering.play(played, columns=columns) if kind.remembers else actor.chunk(lengths, columns=columns)
            )
            recorded.append(replace(chunk, columns=dict(chunk.columns)))
            started.feed(chunk)
    return Recorded(recorded, begun, started.trainer)


def group_columns(lengths: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Returns the columns of a group of all segments but the last, whose agent is alone; the third one joins late."""
    firsts = [0, 0, 4, 0]
    groups = np.array([7, 7, 7, 8], np.uint64)
    return {
        "group": groups,
        "group_episode": groups,
        "group_end": np.full(len(lengths), GroupEnd.CONTINUES, np.uint8),
        "group_step": np.concatenate(
            [first + np.arange(steps) for first, steps in zip(firsts, lengths, strict=True)]
        ).astype(np.int32),
        "group_reward": np.ones(sum(lengths), np.float32),
    }


def train(case: Case, device: torch.device, folder: Path, chunks: Sequence[Chunk]) -> Started:
    """Trains on recorded chunks, with the random numbers that the host draws."""
    started = start(case, device, folder)
    with HostRandom():
        for chunk in chunks:
            started.feed(chunk)
    return started
