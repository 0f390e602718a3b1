"""Replays the corpora of the fuzzer without it: each input is accepted or refused, within its limits."""

from __future__ import annotations

import pytest

from tests.tools.fuzz.target import CORPUS, Target, all_targets

TARGETS = all_targets()

targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@targets
def test_seeds_are_accepted(target: Target) -> None:
    """Valid inputs are accepted, so that the fuzzer starts behind the first check."""
    for data in target.seeds().values():
        target.use(data)


@targets
def test_kept_inputs_are_accepted_or_refused(target: Target) -> None:
    """Inputs that reached new code or once found a fault end in an answer or a documented error."""
    for name, data in target.kept().items():
        assert len(data) <= target.max_bytes, name
        target.accepts_within_memory(data)


@targets
def test_cut_and_changed_seeds_are_accepted_or_refused(target: Target) -> None:
    """Valid inputs that are cut off, or have one changed byte, end in an answer or a documented error."""
    seeds = target.seeds().values()
    cuts = min(20, max(2, 60 // len(seeds)))
    for data in seeds:
        step = max(1, len(data) // cuts)
        for at in range(0, len(data), step):
            target.accepts(data[:at])
            target.accepts(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])


def test_every_corpus_has_a_target() -> None:
    """No folder of the corpus is left over from a renamed target."""
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} <= set(TARGETS)
