"""Buckets of histograms and values of labels. All label values are known in advance, except behavior names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollcast.enums import HoldReason
from rollcast.errors import BY_REASON, Unexpected

PREFIX: Final = "rollcast_learner_"
TRAINER_PREFIX: Final = "rollcast_trainer_"
"""Prefix of numbers from a trainer's own fields, so that no package's name can clash with the learner's."""

KIB: Final = 1024
CHUNK_BYTES: Final = tuple(4.0 * KIB * 4**power for power in range(6))
ACK_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
WAIT_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
UPDATE_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
LOOP_LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CALL_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
CHECKPOINT_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
LAG_VERSIONS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
EPISODE_STEPS: Final = (*(float(digit * 10**power) for power in range(5) for digit in (1, 2, 5)), 100000.0)
_POSITIVE: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
EPISODE_RETURN: Final = (*(-bound for bound in reversed(_POSITIVE)), 0.0, *sorted((*_POSITIVE, 300.0, 400.0)))
"""Default bounds; `return_buckets` of the run file replaces them."""

OTHER: Final = "other"
"""Label of reasons missing from this list, so that a reason cannot create a time series."""
MALFORMED: Final = "malformed"
CREDIT_EXCEEDED: Final = "credit_exceeded"
REJECT_REASONS: Final = (
    "generation",
    "not_finite",
    "bad_action",
    "bad_observation",
    "not_training",
    "opponent",
    MALFORMED,
    CREDIT_EXCEEDED,
    OTHER,
)
LEFT_OUT_REASONS: Final = ("late", "too_large")
"""Why an actor is left out of lock-step rounds."""
EPISODE_REASONS: Final = ("without_rows",)
DROP_REASONS: Final = (
    *("bad_action", "bad_observation", "generation", "lockstep", "mate", "not_finite", "not_finite_update"),
    *("not_for_training", "not_training", "opponent", "reset", "stale", "too_long", OTHER),
)
LOSE_EVENTS: Final = ("restart", "rollback")
BOUNDS: Final = ("request_bytes", "chunk_fields", "entries", "loop_time", "calls", "unopened", "slow")
"""What a client may cost: see `rollcast_learner_bounds_total` in deploy/METRICS.md."""
OPEN_OUTCOMES: Final = ("ok", "resumed", "fenced", "full", "draining", "quarantined", "refused")
DECLARE_OUTCOMES: Final = ("ok", "refused")
SEND_OUTCOMES: Final = ("ok", "replaced", "aborted")
SAVE_OUTCOMES: Final = ("ok", "failed")
EVALUATION_OUTCOMES: Final = ("complete", "cut_short")
SKIP_REASONS: Final = ("not_finite",)
BOTTLENECKS: Final = ("learner", "actors", "network", "none")
HOLD_REASONS: Final[Mapping[HoldReason, str]] = MappingProxyType(
    {reason: reason.name.lower() for reason in HoldReason if reason is not HoldReason.UNSPECIFIED}
)

INTERNAL: Final = "internal"
"""Label of an unforeseen error; on the wire it is UNEXPECTED."""
ERROR_REASONS: Final = (
    *sorted(reason.lower() for reason in BY_REASON if reason != Unexpected.default_reason),
    INTERNAL,
)
