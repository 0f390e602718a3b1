"""Checks all outputs of a device (published policies, models for Unity, checkpoints) against those of a CPU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from learner.link.to_front import Policy, ToFront
from learner.shared.runfolder.documents import encode_document, read_document
from learner.training.export.check import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE, open_session, random_inputs
from learner.training.export.describe import Progress, describe, output_names
from learner.training.export.graph import call
from learner.training.export.publisher import PolicyPublisher
from learner.training.export.unity import render_unity
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.base import Publisher, Trainer
from tests.tools.gpu.agreement import numbers
from tests.tools.gpu.cases import Case, Started, cases, record, start, train
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import CPU, float32

_ROWS: Final = 32
_KIND: Final = "gpu"


class Published:
    """Opens real publishers, and finds what they published last."""

    def __init__(self) -> None:
        self._newest: dict[str, bytes] = {}

    def open(self, network: PolicyNetwork) -> Publisher:
        """Exports and verifies a network's graph."""
        stride = 4 if network.memory_size else 0
        return PolicyPublisher(
            network, self._take, describe(network, behavior_index=0, generation=1, memory_stride=stride)
        )

    def _take(self, message: ToFront) -> None:
        if isinstance(message, Policy):
            self._newest[message.stored.description.behavior] = message.stored.payload

    def payload(self, behavior: str) -> bytes:
        """Returns the newest file of a behavior."""
        return self._newest[behavior]


def check(setup: Setup) -> Outcome:
    """Publishes trained policies from the device, and runs them as actors do."""
    apart, faults = 0.0, []
    chosen = cases(setup)
    for case in chosen:
        with float32():
            found, fault = _published(case, setup)
        apart = max(apart, found)
        if fault:
            faults.append(f"{case.name}: {fault}")
    text = f"outputs are {apart:.1e} apart at most, {len(chosen)} policies; files are those that a CPU writes"
    return Outcome(not faults, "; ".join(faults) or text, {"apart": apart})


def _published(case: Case, setup: Setup) -> tuple[float, str]:
    """Returns how far the published policy is from the network on the device, and what is wrong with it."""
    chunks = record(case, setup.folder, 2).chunks
    published = Published()
    started = start(case, setup.device, setup.folder, open_publisher=published.open)
    for chunk in chunks:
        started.feed(chunk)
    started.trainer.publish_present()
    behavior = started.trainer.brain_name
    policy, payload = started.trainer.policies[behavior], published.payload(behavior)
    names = output_names(policy.spec, policy.memory_size)
    feed = random_inputs(policy.spec, policy.memory_size, _ROWS, np.random.default_rng(1))
    with torch.no_grad():
        ours = call(policy, [torch.from_numpy(value).to(setup.device) for value in feed.values()])
    apart, faults = 0.0, []
    for name, one, other in zip(names, ours, open_session(payload).run(list(names), feed), strict=True):
        values = one.detach().cpu().numpy()
        apart = max(apart, float(np.abs(values - other).max()))
        if not np.allclose(values, other, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE):
            faults.append(f"{name} is {np.abs(values - other).max():.1e} apart")
    if payload != _published_on_cpu(started, setup):
        faults.append("the file is not the one that a CPU writes")
    return apart, ", ".join(faults)


def _published_on_cpu(started: Started, setup: Setup) -> bytes:
    """Returns the file of the same weights and the same version, published from the CPU."""
    published = Published()
    other = start(started.case, CPU, setup.folder).trainer
    other.load_state_dict(started.trainer.state_dict())
    state = {name: value.cpu() for name, value in started.trainer.policies[other.brain_name].state_dict().items()}
    publisher = published.open(other.policies[other.brain_name])
    publisher.publish(state, Progress(other.version, 0, other.steps_trained))
    return published.payload(other.brain_name)


def check_checkpoints(setup: Setup) -> Outcome:
    """Takes the state of each trainer from the device into a file, to the CPU, and back; exports both for Unity."""
    faults = []
    chosen = cases(setup)
    for case in chosen:
        first = train(case, setup.device, setup.folder, record(case, setup.folder, 2).chunks).trainer
        on_host = _carried(first, start(case, CPU, setup.folder, seed=2).trainer, setup.folder)
        back = _carried(on_host, start(case, setup.device, setup.folder, seed=3).trainer, setup.folder)
        wrong = [
            where
            for where, other in (("on the CPU", on_host), ("back on the device", back))
            if not _are_equal(first.state_dict(), other.state_dict()) or _model(first) != _model(other)
        ]
        if wrong:
            faults.append(f"{case.name} differs {' and '.join(wrong)}")
    text = f"{len(chosen)} states and models for Unity are equal on the CPU and back on the device"
    return Outcome(not faults, "; ".join(faults) or text, {"states": float(len(chosen))})


def _carried(trainer: Trainer, target: Trainer, folder: Path) -> Trainer:
    """Saves a trainer's state to a file and loads it into another one, which it returns."""
    path = folder / "state.pt"
    path.write_bytes(encode_document(_KIND, {"state": trainer.state_dict()}))
    target.load_state_dict(read_document(path, _KIND)["state"])
    return target


def _are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    ours, theirs = dict(numbers(one)), dict(numbers(other))
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in ours.items())


def _model(trainer: Trainer) -> bytes:
    """Returns the model for Unity."""
    return render_unity(trainer.policies[trainer.brain_name])
