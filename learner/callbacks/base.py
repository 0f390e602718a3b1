"""What a callback is told, and what it looks like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A learner has started, and listens.

    Attributes:
        run_id: the run's name.
        folder: of the run.
        generation: how many times its learner was started.
        resumed: it goes on from a checkpoint.
        seed: of the run.
        address: where actors connect.
    """

    run_id: str
    folder: Path
    generation: int
    resumed: bool
    seed: int
    address: str


@dataclass(frozen=True, slots=True)
class PolicyUpdated:
    """An update is complete and its policy published.

    Attributes:
        behavior: whose.
        version: completed updates.
        env_steps_trained: steps in them.
        episodes: finished training episodes.
        mean_return: over the newest of them, None before the first.
        mean_lag: versions between acting and learning, over the rows of the update.
        log_prob_error_max: largest difference between recorded and own log-probability on its fresh rows.
    """

    behavior: str
    version: int
    env_steps_trained: int
    episodes: int
    mean_return: float | None
    mean_lag: float
    log_prob_error_max: float


@dataclass(frozen=True, slots=True)
class EpisodesFinished:
    """Training episodes have ended, since this was told last.

    Attributes:
        behavior: whose.
        episodes: finished training episodes, all of the run.
        finished: those of them that are new.
        returns: theirs, oldest first; of very many, the newest (``rollcast.reward_buffer_episodes``).
    """

    behavior: str
    episodes: int
    finished: int
    returns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on the disk.

    Attributes:
        behavior: whose; empty for the run state, from which a restarted learner goes on.
        step: of the trainer; of the run state, the steps trained by all.
        path: the file.
    """

    behavior: str
    step: int
    path: Path


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run has ended, and everything of it is on the disk.

    Attributes:
        reason: ``target_return``, ``max_steps``, ``max_wall_seconds``, ``signal``, ``operator``, ``trainer_failed``, or
            ``error`` where the learner ended by an error of another kind.
        error: that, in one line; empty if there was none.
        folder: of the run; ``summary.json`` in it says what the run came to.
    """

    reason: str
    error: str
    folder: Path


Event = RunStarted | PolicyUpdated | EpisodesFinished | CheckpointSaved | RunEnded


class Callback:
    """What hears of a run; override what you want to hear. Any object with some of these methods will do.

    Each callback has a thread of its own and hears one thing after another, so it needs no locks, and what takes long
    delays neither training nor others. What waits is bounded: if a callback is too slow, it misses the oldest updates
    and episodes. What it raises is logged; after ten calls in a row that raised it is switched off.
    """

    def on_start(self, event: RunStarted) -> None:
        """Hears that the learner listens."""

    def on_update(self, event: PolicyUpdated) -> None:
        """Hears of an update."""

    def on_episode(self, event: EpisodesFinished) -> None:
        """Hears of episodes that ended, several at a time."""

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Hears of a checkpoint."""

    def on_end(self, event: RunEnded) -> None:
        """Hears that the run has ended; the learner waits ten seconds for this."""


METHODS: dict[type, str] = {
    RunStarted: "on_start",
    PolicyUpdated: "on_update",
    EpisodesFinished: "on_episode",
    CheckpointSaved: "on_checkpoint",
    RunEnded: "on_end",
}
"""Which method hears of which event."""
