"""Checks that a closed trainer leaves no memory on the device, and a finished one no experience."""

from rollcast.trajectories import Chunk

from tests.tools.gpu.cases import Case, cases, record, train
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import allocated_bytes


def check(setup: Setup) -> Outcome:
    """Trains everything twice; the second time nothing may stay that was not there after the first."""
    most, faults = 0, []
    chosen = cases(setup)
    for case in chosen:
        chunks = record(case, setup.folder, 2).chunks
        train(case, setup.device, setup.folder, chunks)  # workspaces of cuBLAS and cuDNN are never freed
        before = allocated_bytes(setup.device)
        used, kept = _life(case, setup, chunks)
        after = allocated_bytes(setup.device)
        most = max(most, used - before)
        if after > before:
            faults.append(f"{case.name} leaves {after - before:,} bytes of {used - before:,}")
        if kept:
            faults.append(f"{case.name} keeps room for {kept:,} steps when it is done")
    text = f"nothing is left of {len(chosen)} trainers, the largest of {most:,} bytes"
    return Outcome(not faults, "; ".join(faults) or text, {"largest_bytes": float(most)})


def _life(case: Case, setup: Setup, chunks: list[Chunk]) -> tuple[int, int]:
    """Trains, and ends training as a learner does at ``max_steps``.

    Returns:
        Bytes in use before that end, and for how many steps the trainer still has room after it.
    """
    started = train(case, setup.device, setup.folder, chunks)
    used = allocated_bytes(setup.device)
    started.trainer.finish()
    return used, started.trainer.ring.capacity_steps
