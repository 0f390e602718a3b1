"""What is the same in every trainer of this family, whatever its loss."""

from __future__ import annotations

import pytest

from tests.learner.trainers.started import KINDS, make_kind


@pytest.mark.parametrize("name", KINDS)
def test_the_run_file_says_whether_the_critic_is_a_head_of_the_policy(name: str) -> None:
    """``shared_critic: true`` leaves one body, and without a word the critic has one of its own, in every trainer."""
    _, apart = make_kind(KINDS[name], name)
    assert not apart.shares_critic
    assert apart.network.critic_body is not apart.policy.body
    _, shared = make_kind(KINDS[name], name, hyper={"shared_critic": True})
    assert shared.shares_critic
    assert shared.network.critic_body is shared.policy.body
