"""Checks that a device learns the same as the CPU from equal chunks, except for rounding."""

from collections.abc import Mapping
from typing import Final

from tests.tools.gpu.agreement import deviations
from tests.tools.gpu.cases import KINDS, Case, record, train
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import CPU, float32

TOLERANCES: Final[Mapping[str, float]] = {
    "vector": 1e-4,
    "pictures": 3e-3,
    "entities": 3e-2,
    "memory": 1e-4,
    "tower": 1e-3,
    "signals": 1e-4,
}
"""How far apart parameters, moments and statistics may be, as a share of what the updates changed (`deviations`).

A hundred times, or more, what rounding does: on a CPU, initial weights that differ by one bit in the last place end up to
3e-7 apart (vector, memory), 2e-6 (signals; of poca, 3e-5), 3e-5 (pictures), 1e-5 (tower) and 3e-4 (entities). With poca,
whose steps are smaller, vector and memory are up to 8e-7 apart. Another order of minibatches, or a tensor that is read
before it was written, is apart by a tenth and more.
"""
_OF_CASES: Final[Mapping[str, float]] = {"poca-signals": 3e-3}
"""The same of cases that differ from the others of their network."""
_CHUNKS: Final = 4
"""Of 73 steps: four updates of on-policy trainers, 36 of sac, whose memory of 160 steps then has let most of them go."""


def check(setup: Setup, trainer: str) -> Outcome:
    """Trains each kind of network on the CPU and on the device."""
    found: dict[str, float] = {}
    exceeded: list[str] = []
    for kind in KINDS:
        case = Case(trainer, kind)
        apart = deviation(setup, case)
        part = max(apart, key=lambda name: apart[name])
        found[kind] = apart[part]
        tolerance = 0.0 if setup.device == CPU else tolerated(case)
        if not found[kind] <= tolerance:
            exceeded.append(f"{kind}: {part} is {found[kind]:.1e} apart, tolerated is {tolerance:.0e}")
    worst = max(found, key=lambda kind: found[kind] / tolerated(Case(trainer, kind)))
    limit = tolerated(Case(trainer, worst))
    text = f"apart by {found[worst]:.1e} at most where {limit:.0e} is tolerated ({worst}), {len(found)} networks"
    return Outcome(not exceeded, "; ".join(exceeded) or text, found)


def tolerated(case: Case) -> float:
    """Returns the tolerance of a case."""
    return _OF_CASES.get(case.name, TOLERANCES[case.kind])


def deviation(setup: Setup, case: Case) -> dict[str, float]:
    """Returns how far the device is from the CPU after the same chunks, by part of the saved state."""
    with float32():
        recorded = record(case, setup.folder, _CHUNKS)
        reference = recorded.trainer
        found = train(case, setup.device, setup.folder, recorded.chunks).trainer
        if reference.version != found.version:
            raise ValueError(f"{case.name}: {found.version} updates on the device, {reference.version} on the CPU")
        return deviations(reference.state_dict()["model"], found.state_dict()["model"], recorded.begun)
