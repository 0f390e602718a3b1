"""Views as JSON documents. What is not a number is null: JSON knows no NaN."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from learner.observe.history import HistoryView
from learner.observe.view import ActorView, BehaviorView
from learner.web.hooks import StatusView


def status_document(status: StatusView) -> dict[str, Any]:
    """Returns the document of ``GET /api/status``. It holds nothing that lets its reader do anything."""
    run = status.run
    return {
        "run_id": run.run_id,
        "state": run.state.value,
        "generation": run.generation,
        "uptime_seconds": run.uptime_seconds,
        "address": run.address,
        "version": status.version,
        "last_error": run.last_error,
        "verdict": asdict(status.verdict),
        "behaviors": [_behavior(view) for view in run.behaviors],
        "lessons": [asdict(lesson) for lesson in run.lessons],
        "lockstep": None if run.lockstep is None else asdict(run.lockstep),
        "actors": [_actor(view) for view in status.actors],
    }


def history_document(view: HistoryView) -> dict[str, Any]:
    """Returns the document of ``GET /api/history``."""
    return {"behavior": view.behavior, "interval_seconds": view.interval_seconds, "columns": dict(view.columns)}


def to_json(document: dict[str, Any]) -> bytes:
    """Returns a document as JSON, without NaN and infinities."""
    return json.dumps(_finite(document), allow_nan=False, separators=(",", ":")).encode("ascii")


def _behavior(view: BehaviorView) -> dict[str, Any]:
    return {
        "name": view.name,
        "version": view.version,
        "env_steps_taken": view.env_steps_taken,
        "env_steps_trained": view.env_steps_trained,
        "max_steps": view.max_steps,
        "steps_per_second": view.steps_per_second,
        "episodes": view.episodes,
        "mean_return": view.mean_return_100,
        "mean_lag": view.mean_lag,
        "queued_steps": view.queued_steps,
        "queued_bytes": view.queued_bytes,
        "queue_capacity_bytes": view.queue_capacity_bytes,
        "log_prob_error_max": view.log_prob_error_max,
        "target_return": view.target_return,
        "evaluation_return_mean": view.evaluation_return_mean,
        "best_return": view.best_return,
        "best_step": view.best_step,
        "books": {**view.books, "balanced": view.is_balanced},
    }


def _actor(view: ActorView) -> dict[str, Any]:
    return {**asdict(view), "books": {**asdict(view.books), "balanced": view.books.balanced}}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
