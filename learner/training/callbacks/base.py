"""The events of a run and the interface of callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunRequests:
    """Requests of a callback to its run. Each call returns at once, from any thread; the run acts between two turns.

    Attributes:
        stop: Ends the run normally, with the reason ``callback``; actors exit.
        save_checkpoint: Saves a checkpoint of each behavior and the run state.
        evaluate: Evaluates the current policies as configured in ``rollcast.evaluation``, even without
            ``interval_steps``; waits for a running evaluation, and for the pause after an abandoned one.
    """

    stop: Callable[[], object]
    save_checkpoint: Callable[[], object]
    evaluate: Callable[[], object]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A learner has started and listens.

    Attributes:
        run_id: Name of the run.
        folder: Folder of the run.
        generation: Number of times its learner was started.
        resumed: Whether the run continues from a checkpoint.
        seed: Seed of the run.
        address: Address for actors.
        requests: Requests to the run.
    """

    run_id: str
    folder: Path
    generation: int
    resumed: bool
    seed: int
    address: str
    requests: RunRequests


@dataclass(frozen=True, slots=True)
class PolicyUpdated:
    """An update is complete and its policy published.

    Attributes:
        behavior: Name of the behavior.
        version: Completed updates.
        env_steps_trained: Steps in these updates.
        episodes: Finished training episodes.
        mean_return: Mean over the newest of these episodes; None before the first.
        numbers: Numbers that the trainer reports for the update, under the names of ``numbers`` in ``rollcast
            status --json``: loss, entropy_nats, mean_lag, log_prob_error_max, ...
    """

    behavior: str
    version: int
    env_steps_trained: int
    episodes: int
    mean_return: float | None
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean_lag(self) -> float:
        """Versions between acting and learning, averaged over the rows of the update."""
        return self.numbers.get("mean_lag", 0.0)

    @property
    def log_prob_error_max(self) -> float:
        """Largest difference between recorded and recomputed log-probability on fresh rows of the update."""
        return self.numbers.get("log_prob_error_max", 0.0)


@dataclass(frozen=True, slots=True)
class EpisodesFinished:
    """Training episodes have ended since the last event of this kind.

    Attributes:
        behavior: Name of the behavior.
        episodes: Finished training episodes of the whole run.
        finished: Number of new episodes.
        returns: Returns of the new episodes, oldest first; if there are very many, only the newest
            (``rollcast.reward_buffer_episodes``).
    """

    behavior: str
    episodes: int
    finished: int
    returns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint was written to disk.

    Attributes:
        behavior: Name of the behavior; empty for the run state, from which a restarted learner continues.
        step: Step of the trainer; for the run state, the steps trained by all trainers.
        path: The file.
    """

    behavior: str
    step: int
    path: Path


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run has ended and is completely written to disk.

    Attributes:
        reason: ``target_return``, ``target_rating``, ``max_steps``, ``max_wall_seconds``, ``signal``, ``operator``, ``callback``,
            ``trainer_failed``, or ``error`` if the learner ended with another error.
        error: The error in one line; empty without one.
        folder: Folder of the run; its ``summary.json`` holds the result.
    """

    reason: str
    error: str
    folder: Path


Event = RunStarted | PolicyUpdated | EpisodesFinished | CheckpointSaved | RunEnded


class Callback:
    """Receives events of a run; override the methods you need. Any object with some of these methods also works.

    Each callback has a separate thread and receives one event after another, so it needs no locks, and slow code delays
    neither training nor other callbacks. The number of waiting events is limited: a callback that is too slow misses
    the oldest updates and episodes. Exceptions are logged; after ten consecutive ones the callback is switched off.
    """

    def on_start(self, event: RunStarted) -> None:
        """Called when the learner listens."""

    def on_update(self, event: PolicyUpdated) -> None:
        """Called after an update."""

    def on_episode(self, event: EpisodesFinished) -> None:
        """Called after episodes have ended, several at a time."""

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Called after a checkpoint was written."""

    def on_end(self, event: RunEnded) -> None:
        """Called when the run has ended; the learner waits ten seconds for this."""


METHODS: dict[type, str] = {
    RunStarted: "on_start",
    PolicyUpdated: "on_update",
    EpisodesFinished: "on_episode",
    CheckpointSaved: "on_checkpoint",
    RunEnded: "on_end",
}
"""Method for each type of event."""
