"""The store of policy versions."""

from __future__ import annotations

import pytest
from rollcast.errors import VersionEvicted

from learner.publish.store import PolicyStore, VersionOrderError
from tests.learner.service.samples import NAME, make_policy


def test_the_newest_version_is_kept_and_announced() -> None:
    """A publication wakes the service and is what `latest` returns; behaviors do not mix."""
    store = PolicyStore()
    assert store.latest(NAME) is None
    policy = make_policy(0)
    store.publish(policy)
    store.publish(make_policy(3, name="Walker"))
    assert store.wakeup.wait(0)
    assert store.latest(NAME) is policy
    assert store.behaviors() == (NAME, "Walker")


def test_versions_only_grow() -> None:
    """The same or an older version is refused; a newer generation may begin at 0."""
    store = PolicyStore()
    store.publish(make_policy(5))
    for version in (4, 5):
        with pytest.raises(VersionOrderError, match=f"version {version}"):
            store.publish(make_policy(version))
    store.publish(make_policy(0, generation=2))
    with pytest.raises(VersionOrderError):
        store.publish(make_policy(9, generation=1))


def test_a_few_versions_can_be_asked_for() -> None:
    """The last ones are held; older ones are evicted, and the error says which are held."""
    store = PolicyStore(kept_versions=3)
    for version in range(6):
        store.publish(make_policy(version))
    assert store.get(NAME, 1, 4).description.version == 4
    assert store.get(NAME, version=3).description.version == 3
    assert store.get(NAME).description.version == 5
    for version, generation in ((2, 1), (9, 1), (5, 7), (0, 7)):
        with pytest.raises(VersionEvicted):
            store.get(NAME, generation, version)
    with pytest.raises(VersionEvicted, match="versions 3 to 5"):
        store.get(NAME, 1, 2)
    with pytest.raises(VersionEvicted):
        store.get("Walker")


def test_two_stores_may_share_a_wakeup() -> None:
    """A wakeup can be given, so that one descriptor serves several sources."""
    first = PolicyStore()
    second = PolicyStore(wakeup=first.wakeup)
    second.publish(make_policy(0))
    assert first.wakeup.wait(0)


def test_a_pinned_version_outlives_the_ring() -> None:
    """It can be had until it is let go, however many versions follow; without a version there is nothing to pin."""
    store = PolicyStore(kept_versions=2)
    assert store.pin(NAME) is None
    store.publish(make_policy(1))
    pinned = store.pin(NAME)
    for version in range(2, 6):
        store.publish(make_policy(version))
    assert store.get(NAME, version=1) is pinned
    assert store.latest(NAME) == store.get(NAME, version=5)
    store.unpin(NAME)
    with pytest.raises(VersionEvicted):
        store.get(NAME, version=1)
