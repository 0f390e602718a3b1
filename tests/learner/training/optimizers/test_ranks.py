"""Tests that several ranks compute the update of one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch

from learner.link.mesh import Mesh
from learner.shared.exits import ExitCode
from learner.training.buffers.batches import Share, parts_of
from learner.training.optimizers.ranks import LostRankError, join_ranks
from tests.learner.training.optimizers.rank_updates import UNEQUAL, alone, in_ranks, lose


@pytest.mark.parametrize(("owned", "size"), [([5, 0, 58], 16), ([1, 1], 1), ([100, 100, 3], 64), ([7, 2], 1000)])
def test_minibatches_of_ranks_are_those_of_one(owned: list[int], size: int) -> None:
    """Ranks make as many minibatches as one, of about its size, none of them empty, and lend no row twice."""
    total = sum(owned)
    parts = [parts_of(Share(own, total), size, rank) for rank, own in enumerate(owned)]
    count, whole = max(1, total // size), min(size, total)
    assert [len(each) for each in parts] == [count] * len(owned)
    assert all(sum(each) <= own for each, own in zip(parts, owned, strict=True))
    for sizes in zip(*parts, strict=True):
        assert sum(sizes) > 0
        assert abs(sum(sizes) - whole) <= len(owned)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_compute_the_update_of_one(tmp_path: Path, ranks: int) -> None:
    """After an update of one minibatch with unequal rows, parameters differ by rounding, and between ranks not at all."""
    vector, version, numbers = alone(UNEQUAL)
    found = in_ranks(tmp_path / "ranks", ranks, UNEQUAL)
    for other, its_version, its_numbers in found:
        assert torch.equal(other, found[0][0])
        assert torch.allclose(other, vector, rtol=0.0, atol=1e-5)
        assert its_version == version == 1
        for name in ("loss", "approx_kl", "grad_norm", "mean_lag", "update_steps"):
            assert its_numbers[name] == pytest.approx(numbers[name], rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_a_lost_rank_ends_the_wait_of_the_others(tmp_path: Path) -> None:
    """The others fail with the exit code after which all start again."""
    assert in_ranks(tmp_path / "ranks", 2, UNEQUAL, lose) == [ExitCode.TRAINER_DIED] * 2


def test_ranks_that_come_late_are_told_in_our_words() -> None:
    """Who waits for the others in vain names the setting."""
    ours, theirs = socket.socketpair()
    with (
        theirs,
        pytest.raises(
            LostRankError, match=r"came within 1 s: if they are slow, raise rollcast\.collective_seconds$"
        ) as caught,
    ):
        join_ranks(torch.device("cpu"), 1.0, Mesh(0, {1: ours}))
    ours.close()
    assert caught.value.exit_code is ExitCode.TRAINER_DIED


def test_a_lost_rank_is_told_in_one_sentence() -> None:
    """What torch adds in further lines stays out of the message."""
    text = "NCCL error: unhandled system error\nException raised from ..."
    told = "a rank of the trainers has ended or does not answer: NCCL error: unhandled system error"
    assert LostRankError(RuntimeError(text)).message == told
