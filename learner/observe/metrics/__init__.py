"""What Prometheus reads from a learner: events counted where they happen, state read at each scrape.

`LearnerMetrics` holds the events, in parts that are handed to whoever causes them. `LearnerMetrics.watch` adds the
state: one `MetricsSnapshot` a scrape, so that numbers which belong together are of one moment. Nothing is shared between
two instances. The reference of all metrics is deploy/METRICS.md.
"""

from learner.observe.metrics.behaviors import BehaviorMetrics, LossNumbers, ReplayNumbers
from learner.observe.metrics.learner import (
    CheckpointMetrics,
    IntakeMetrics,
    LearnerMetrics,
    PolicyMetrics,
    SessionMetrics,
    unobserved,
)
from learner.observe.metrics.state import BehaviorNumbers, GpuMemory, MetricsSnapshot, Spread

__all__ = [
    "BehaviorMetrics",
    "BehaviorNumbers",
    "CheckpointMetrics",
    "GpuMemory",
    "IntakeMetrics",
    "LearnerMetrics",
    "LossNumbers",
    "MetricsSnapshot",
    "PolicyMetrics",
    "ReplayNumbers",
    "SessionMetrics",
    "Spread",
    "unobserved",
]
