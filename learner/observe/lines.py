"""Progress as log lines: for people, or with every number for machines."""

from __future__ import annotations

import structlog

from learner.observe import text
from learner.observe.view import BehaviorView, RunState, RunView

log = structlog.get_logger(__name__)


class LineSurface:
    """Logs one ``progress`` event per behavior: a line for people or a JSON object, as the log lines are.

    Args:
        for_machines: every number under its full name, instead of short words for people.
    """

    def __init__(self, *, for_machines: bool) -> None:
        self._fields = fields_for_machines if for_machines else fields_for_people

    def show(self, view: RunView) -> None:
        """Logs a view."""
        if not view.behaviors and view.state is RunState.WAITING:
            log.info("waiting_for_actors", state=view.state.value, address=view.address, actors=view.actors)
        for behavior in view.behaviors:
            log.info("progress", **self._fields(view, behavior))

    def close(self) -> None:
        """Does nothing: lines leave nothing behind."""


def fields_for_machines(view: RunView, behavior: BehaviorView) -> dict[str, object]:
    """Returns the fields of a ``progress`` object; units are in the names."""
    return {
        "run_id": view.run_id,
        "generation": view.generation,
        "state": view.state.value,
        "actors": view.actors,
        "behavior": behavior.name,
        "version": behavior.version,
        "env_steps_taken": behavior.env_steps_taken,
        "env_steps_trained": behavior.env_steps_trained,
        "max_steps": behavior.max_steps,
        "env_steps_per_second": round(behavior.steps_per_second, 1),
        "episodes": behavior.episodes,
        "mean_return_100": behavior.mean_return_100,
        "target_return": behavior.target_return,
        "mean_lag": behavior.mean_lag,
        "queued_steps": behavior.queued_steps,
        "queued_bytes": behavior.queued_bytes,
        "log_prob_error_max": behavior.log_prob_error_max,
        "evaluation_return_mean": behavior.evaluation_return_mean,
        "best_return": behavior.best_return,
        "best_step": behavior.best_step,
        "bottleneck": view.verdict.name,
        "learner_busy": round(view.verdict.learner_busy, 3),
        "actor_busy": round(view.verdict.actor_busy, 3),
        "network_share": round(view.verdict.network_share, 3),
        "ledger": behavior.books,
    }


def fields_for_people(view: RunView, behavior: BehaviorView) -> dict[str, object]:
    """Returns the fields of a ``progress`` line that fits a wide terminal; what is zero or as usual is left out."""
    target = "" if behavior.target_return is None else f"/{behavior.target_return:g}"
    fields: dict[str, object] = {
        "behavior": behavior.name,
        "steps": f"{behavior.env_steps_trained}/{behavior.max_steps}",
        "rate": f"{text.speed(behavior.steps_per_second)}/s",
        "return": f"{text.number(behavior.mean_return_100)}{target}",
        "episodes": behavior.episodes,
        "version": behavior.version,
        "lag": round(behavior.mean_lag, 2),
        "queue": f"{behavior.queue_fill:.0%}",
        "actors": view.actors,
    }
    dropped = sum(behavior.books["dropped"].values())
    if dropped:
        fields["dropped"] = dropped
    if view.verdict.name != "none":
        fields["bottleneck"] = view.verdict.name
    if view.state is not RunState.TRAINING:
        fields["state"] = view.state.value
    return fields
