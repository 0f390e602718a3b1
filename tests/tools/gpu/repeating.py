"""Checks that two processes with one seed learn the same in lock-step, bit by bit.

`python -m tests.tools.gpu.repeating DEVICE FOLDER CASE...` trains on recorded chunks with the algorithms that lock-step
takes, and prints one line of JSON: a digest of each state.
"""

import hashlib
import json
import sys
from contextlib import ExitStack
from pathlib import Path

import torch

from learner.training.run.setup import make_deterministic
from tests.tools.bench.processes import Child
from tests.tools.gpu.agreement import numbers
from tests.tools.gpu.cases import Case, cases, record, start
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import quiet

_SECONDS = 600.0


def check(setup: Setup) -> Outcome:
    """Trains everything in two concurrent processes and compares the digests."""
    names = [case.name for case in cases(setup)]
    with ExitStack() as processes:
        children = [processes.enter_context(_process(setup, number, names)) for number in (1, 2)]
        first, second = (_digests(child) for child in children)
    differ = [name for name in names if first[name] != second[name]]
    text = f"{len(names)} trainers and networks end bit-equal in two processes of one seed"
    return Outcome(not differ, f"not repeatable: {', '.join(differ)}" if differ else text, {"cases": float(len(names))})


def _process(setup: Setup, number: int, names: list[str]) -> Child:
    folder = setup.folder / f"process-{number}"
    command = [sys.executable, "-m", "tests.tools.gpu.repeating", str(setup.device), str(folder), *names]
    return Child(f"process {number}", command, setup.folder / f"process-{number}.log")


def _digests(child: Child) -> dict[str, str]:
    child.wait_for_success(_SECONDS)
    found: dict[str, str] = json.loads(child.log().strip().splitlines()[-1])
    return found


def _digest(case: Case, device: torch.device, folder: Path) -> str:
    """Trains a case from its seed, with the device's own random numbers."""
    chunks = record(case, folder, 3).chunks
    started = start(case, device, folder)
    for chunk in chunks:
        started.feed(chunk)
    digest = hashlib.sha256()
    for name, values in numbers(started.trainer.state_dict()["model"]):
        digest.update(name.encode() + values.numpy().tobytes())
    return digest.hexdigest()


def main(device: torch.device, folder: Path, names: list[str]) -> None:
    """Prints the digests."""
    quiet()
    folder.mkdir()
    make_deterministic(device)
    torch.set_num_threads(1)
    chosen = [Case(*name.split("-")) for name in names]
    sys.stdout.write(json.dumps({case.name: _digest(case, device, folder) for case in chosen}) + "\n")


if __name__ == "__main__":
    main(torch.device(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
