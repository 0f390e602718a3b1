"""Tests the store of policy versions."""

from __future__ import annotations

import pytest
from rollcast.errors import VersionEvicted

from learner.service.policies.store import PolicyStore, VersionOrderError
from tests.learner.service.calls.samples import NAME, make_policy


def test_the_newest_version_is_the_latest() -> None:
    """`latest` returns the newest version of its behavior."""
    store = PolicyStore()
    assert store.latest(NAME) is None
    policy = make_policy(0)
    store.publish(policy)
    store.publish(make_policy(3, name="Walker"))
    assert store.latest(NAME) is policy
    assert store.behaviors() == (NAME, "Walker")


def test_versions_only_grow() -> None:
    """The same or an older version is refused; a newer generation may start at 0."""
    store = PolicyStore()
    store.publish(make_policy(5))
    for version in (4, 5):
        with pytest.raises(VersionOrderError, match=f"version {version}"):
            store.publish(make_policy(version))
    store.publish(make_policy(0, generation=2))
    with pytest.raises(VersionOrderError):
        store.publish(make_policy(9, generation=1))


def test_a_few_versions_can_be_asked_for() -> None:
    """The last versions are held, and the error for an older one lists them."""
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


@pytest.mark.parametrize("is_new", [True, False])
def test_a_kept_version_outlives_the_ring(is_new: bool) -> None:
    """A kept version stays until it is released."""
    store = PolicyStore(kept_versions=2)
    kept = make_policy(1)
    if not is_new:
        store.publish(kept)
    store.publish(kept, keep=True)
    for version in range(2, 6):
        store.publish(make_policy(version))
    assert store.get(NAME, version=1) is kept
    assert store.latest(NAME) == store.get(NAME, version=5)
    store.release(NAME)
    with pytest.raises(VersionEvicted):
        store.get(NAME, version=1)


def test_only_the_newest_version_can_be_kept_once_more() -> None:
    """Only the newest version can be kept again."""
    store = PolicyStore()
    for version in (1, 2):
        store.publish(make_policy(version))
    for policy in (make_policy(1), make_policy(2, size=7)):
        with pytest.raises(VersionOrderError):
            store.publish(policy, keep=True)
