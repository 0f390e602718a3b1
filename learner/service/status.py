"""What ControlService.Status answers, so made that nothing an actor reports can keep it from being built or sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.v1 import control_pb2

from learner.ingest.session import MAX_ERROR_CHARACTERS, Session, reasons_to, shown
from learner.observe.view import BehaviorView, LedgerNumbers, LessonView, LockstepView, RunView, Verdict

MAX_BYTES: Final = MAX_CHUNK_BYTES
"""Of an answer: what operators' channels take."""
_FIELD_BYTES: Final = 8
"""Tag and length around one actor in the list."""
BOTTLENECKS: Final = {
    "none": control_pb2.BOTTLENECK_UNSPECIFIED,
    "learner": control_pb2.BOTTLENECK_LEARNER,
    "actors": control_pb2.BOTTLENECK_ACTORS,
    "network": control_pb2.BOTTLENECK_NETWORK,
}


def status_response(
    view: RunView,
    sessions: Iterable[Session],
    *,
    server_version: str,
    now: float,
    rate_of: Callable[[Session], float],
) -> control_pb2.StatusResponse:
    """Builds the answer. Counts beyond the wire's are shown as the largest it holds.

    A run with very many actors, or with actors that report very much, may pass the size of a message: books and
    policies of the last actors are then left out, and if that is not enough the last actors.

    Args:
        view: the state of the run.
        sessions: its actors; nobody changes them meanwhile.
        server_version: of the learner.
        now: monotonic seconds.
        rate_of: steps a second of an actor.
    """
    response = control_pb2.StatusResponse(
        run_id=view.run_id,
        generation=view.generation,
        state=control_pb2.RunState.Value(f"RUN_STATE_{view.state.name}"),
        uptime_seconds=view.uptime_seconds,
        behaviors=[_behavior(behavior) for behavior in view.behaviors],
        last_error=view.last_error[:MAX_ERROR_CHARACTERS],
        server_version=server_version,
        verdict=_verdict(view.verdict),
        lessons=[_lesson(lesson) for lesson in view.lessons],
        lockstep=None if view.lockstep is None else _lockstep(view.lockstep),
    )
    room = MAX_BYTES - response.ByteSize()
    fitting: list[tuple[Session, control_pb2.ActorStatus]] = []
    for session in sessions:
        actor = _actor(session, now, rate_of(session))
        room -= actor.ByteSize() + _FIELD_BYTES
        if room < 0:
            break
        fitting.append((session, actor))
    for session, actor in fitting:
        details = _details(session)
        if details.ByteSize() <= room:
            room -= details.ByteSize()
            actor.MergeFrom(details)
        response.actors.append(actor)
    return response


def _actor(session: Session, now: float, rate: float) -> control_pb2.ActorStatus:
    credit_steps = sum(max(0, account.granted_steps - account.produced_steps) for account in session.accounts.values())
    return control_pb2.ActorStatus(
        actor_name=session.actor_name,
        actor_index=session.actor_index,
        session_id=session.session_id,
        connected=session.is_connected,
        last_seen_ms=shown(round((now - session.last_seen) * 1000)),
        env_steps_per_second=rate,
        credit_steps=shown(credit_steps),
        wait_ratio=session.times.wait_share,
        waits_for=session.times.waits_for,
        round_trip_seconds=session.times.round_trip_seconds,
        lag_versions=None if session.policy_lag is None else shown(session.policy_lag),
    )


def _details(session: Session) -> control_pb2.ActorStatus:
    reports = [account.counters for account in session.accounts.values() if account.counters is not None]
    return control_pb2.ActorStatus(
        books=[counters.to_message() for counters in reports],
        policies=[policy.to_message() for policy in session.policies],
    )


def _verdict(verdict: Verdict) -> control_pb2.Verdict:
    return control_pb2.Verdict(
        bottleneck=BOTTLENECKS[verdict.name],
        text=verdict.text,
        learner_busy_ratio=verdict.learner_busy,
        actor_busy_ratio=verdict.actor_busy,
        network_ratio=verdict.network_share,
    )


def _lesson(view: LessonView) -> control_pb2.LessonStatus:
    return control_pb2.LessonStatus(
        parameter=view.parameter, number=view.number, lessons=view.lessons, name=view.name[:MAX_ERROR_CHARACTERS]
    )


def _lockstep(view: LockstepView) -> control_pb2.LockstepStatus:
    return control_pb2.LockstepStatus(
        actors=view.actors,
        joined=view.joined,
        round=view.round,
        checkpoint_round=view.checkpoint_round,
        quota_steps=view.quota_steps,
        reproducible=view.is_reproducible,
        reason=view.reason[:MAX_ERROR_CHARACTERS],
    )


def _behavior(view: BehaviorView) -> control_pb2.BehaviorStatus:
    return control_pb2.BehaviorStatus(
        behavior=view.name,
        version=shown(view.version),
        env_steps_trained=shown(view.env_steps_trained),
        max_steps=shown(view.max_steps),
        env_steps_taken=shown(view.env_steps_taken),
        episodes=shown(view.episodes),
        mean_return_100=view.mean_return_100,
        mean_lag=view.mean_lag,
        books=_books(view.books),
        queued_bytes=shown(view.queued_bytes),
        env_steps_per_second=view.steps_per_second,
        log_prob_error_max=view.log_prob_error_max,
        evaluation_return_mean=view.evaluation_return_mean,
        best_return=view.best_return,
        best_step=shown(view.best_step),
    )


def _books(books: LedgerNumbers) -> control_pb2.LearnerBooks:
    return control_pb2.LearnerBooks(
        received=shown(books["received"]),
        trained=shown(books["trained"]),
        dropped=reasons_to(books["dropped"]),
        queued=shown(books["queued"]),
        lost=reasons_to(books["lost"]),
        duplicate=shown(books["duplicate"]),
        unknown_sessions=shown(books["unknown"]),
    )
