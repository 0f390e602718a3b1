"""Replay memory beside checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.buffers.replay_file import FILE_NAME
from learner.checkpoints.documents import CheckpointFailed
from learner.checkpoints.runfolder import open_run_folder
from tests.learner.starts import Start, opened
from tests.learner.trainers.sac.started import feed, make
from tests.learner.trainers.synthetic import SyntheticActor


@pytest.mark.parametrize("saves", [False, True])
def test_it_is_saved_where_the_run_file_says_so(tmp_path: Path, *, saves: bool) -> None:
    """With the checkpoint of its behavior, in that behavior's folder; a new run in the same folder has none of it."""
    bench, trainer = make(hyper={"save_replay_buffer": saves})
    feed(bench, SyntheticActor(bench), trainer, 2)
    with opened(tmp_path) as folder:
        start = Start(folder, 1)
        start.keeper.save_behavior(trainer)
        start.keeper.save_run_state({})
        kept = folder.behavior("Continuous") / FILE_NAME
        assert kept.exists() is saves
    with open_run_folder(tmp_path, "run", force=True):
        assert not kept.exists()


def test_a_memory_that_cannot_be_written_costs_the_checkpoint_and_not_the_run(tmp_path: Path) -> None:
    """As every other file of a checkpoint: said, counted, and tried again at the next one."""
    bench, trainer = make(hyper={"save_replay_buffer": True})
    feed(bench, SyntheticActor(bench), trainer, 2)
    with opened(tmp_path) as folder:
        start = Start(folder, 1)
        (folder.behavior("Continuous") / FILE_NAME).mkdir()
        with pytest.raises(CheckpointFailed, match=FILE_NAME):
            start.keeper.save_behavior(trainer)
        start.keeper.save(trainer)
        assert start.run_status.last_error is not None
