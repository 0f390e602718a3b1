"""From a trainer's state to the store."""

from __future__ import annotations

import numpy as np
import pytest
from rollcast.enums import Squash
from rollcast.policies import PolicyAssembler, frames
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.networks.policy import PolicyNetwork
from learner.publish.check import open_session
from learner.publish.describe import Progress
from learner.publish.publisher import PolicyPublisher
from learner.publish.store import PolicyStore, VersionOrderError
from learner.settings.network import NetworkSettings


@pytest.fixture
def network() -> PolicyNetwork:
    """A small network."""
    spec = BehaviorSpec("Walker", (ObservationSpec("vector", np.dtype("float32"), (5,)),), ActionSpec(2))
    return PolicyNetwork(spec, NetworkSettings(hidden_units=8))


def test_a_published_version_crosses_the_wire_and_acts(network: PolicyNetwork) -> None:
    """What the store holds passes header, frames and digest, and runs."""
    store = PolicyStore()
    publisher = PolicyPublisher(network, store, behavior_index=3, generation=7, deterministic=True, squash=Squash.NONE)
    publisher.publish(network.state_dict(), Progress(5, 40, 4000))
    stored = store.latest("Walker")
    assert stored is not None
    assembler = PolicyAssembler()
    assembler.begin(stored.description.to_message())
    (*_, last) = [assembler.add(frame) for frame in frames(stored.payload)]
    assert last is not None
    description, payload = last
    assert (description.behavior_index, description.generation, description.version) == (3, 7, 5)
    assert (description.optimizer_steps, description.env_steps_trained) == (40, 4000)
    assert description.deterministic
    assert description.action_transform.squash is Squash.NONE
    outputs = open_session(payload).run(list(description.outputs), {"obs_0": np.zeros((4, 5), np.float32)})
    assert [output.shape for output in outputs] == [(4, 2), (4, 2)]
    store.wakeup.close()


def test_order_is_kept(network: PolicyNetwork) -> None:
    """No version is published twice."""
    store = PolicyStore()
    publisher = PolicyPublisher(network, store, behavior_index=0, generation=1)
    publisher.publish(network.state_dict(), Progress(0, 40, 4000))
    with pytest.raises(VersionOrderError):
        publisher.publish(network.state_dict(), Progress(0, 40, 4000))
    store.wakeup.close()
