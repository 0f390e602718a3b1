"""Measures the updates of ranks, each pinned to a core: `python -m tests.tools.bench.limits.ranks KIND RANKS SECONDS`.

Every rank has `ROWS` rows of each minibatch. It prints one line of JSON: rows that all ranks trained together in a second, and the share
of an update in which they waited for each other.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.link.mesh import Mesh
from learner.training.optimizers.ranks import RankGroup, end_rank, join_ranks
from learner.training.optimizers.reduce import Reduce, SingleLearner
from learner.training.trainers.registry import build
from tests.learner.training.optimizers.rank_updates import pairs
from tests.learner.training.trainers.in_process import CARTPOLE, make_bench
from tests.learner.training.trainers.synthetic import SyntheticActor

ROWS: Final = 256
MINIBATCHES: Final = 4
EPOCHS: Final = 3
_SEGMENT_STEPS: Final = 64
_COLLECTIVE_SECONDS: Final = 60.0
_JOIN_SECONDS: Final = 600.0

_PIXELS: Final = ObservationSpec(
    "pixels", np.dtype(np.uint8), (84, 84, 4), ObservationKind.IMAGE, layout=ImageLayout.HWC, scale=255.0
)
KINDS: Final[dict[str, tuple[BehaviorSpec, dict[str, Any]]]] = {
    "nature_cnn": (
        BehaviorSpec("Pixels", (_PIXELS,), ActionSpec(discrete_branches=(4,))),
        {"vis_encode_type": "nature_cnn", "hidden_units": 256, "num_layers": 1},
    ),
    "mlp": (CARTPOLE, {"hidden_units": 64, "num_layers": 2}),
}
"""Behavior and network of each kind."""


def rows_per_second(reduce: Reduce, kind: str, seconds: float) -> dict[str, float]:
    """Returns the figures of updates for some seconds, after one that does not count."""
    spec, network = KINDS[kind]
    batch = ROWS * reduce.ranks
    rows = batch * MINIBATCHES
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": batch, "buffer_size": rows, "num_epoch": EPOCHS},
        "network_settings": network,
        "time_horizon": _SEGMENT_STEPS,
    }
    bench = make_bench(settings, spec)
    trainer = build(bench.context(reduce=reduce))
    trainer.start()
    actor = SyntheticActor(bench)
    segments = rows // _SEGMENT_STEPS
    own = {"env": np.arange(segments, dtype=np.uint32), "agent": np.zeros(segments, np.uint64)}
    spent = waited = 0.0
    updates = -1
    while spent < seconds:
        bench.put(actor.chunk([_SEGMENT_STEPS] * segments, columns=own))
        wait = reduce.wait_seconds if isinstance(reduce, RankGroup) else 0.0
        # All ranks count the time of the slowest, so that they make equally many updates.
        began = time.perf_counter()
        trainer.advance()
        took = float(reduce.gather(torch.tensor([time.perf_counter() - began], dtype=torch.float64)).max())
        updates += 1
        if updates:
            spent += took
            waited += (reduce.wait_seconds if isinstance(reduce, RankGroup) else 0.0) - wait
    return {"rows_per_second": updates * rows * EPOCHS / spent, "wait_share": waited / spent}


def _run(folder: Path, rank: int, peers: dict[int, socket.socket], kind: str, seconds: float) -> None:
    ranks = len(peers) + 1
    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[rank]])
    torch.set_num_threads(1)
    if ranks == 1:
        reduce: Reduce = SingleLearner()
    else:
        reduce = join_ranks(torch.device("cpu"), _COLLECTIVE_SECONDS, Mesh(rank, peers))
    found = rows_per_second(reduce, kind, seconds)
    if not rank:
        (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    if ranks > 1:
        end_rank(0)


def main(kind: str, ranks: int, seconds: float) -> None:
    """Measures once."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        peers = pairs(ranks)
        processes = [
            context.Process(target=_run, args=(folder, rank, peers[rank], kind, seconds)) for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(_JOIN_SECONDS)
        if any(process.exitcode for process in processes):
            raise SystemExit("a rank failed")
        sys.stdout.write((folder / "found.json").read_text(encoding="utf-8") + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
