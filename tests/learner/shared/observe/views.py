"""Example views for tests of the display."""

from learner.shared.observe.behavior_state import BehaviorState, LedgerNumbers
from learner.shared.observe.view import Bottleneck, RunState, RunView


def behavior(
    name: str = "CartPole", *, mean_return: float | None = 312.4, target: float | None = 475.0
) -> BehaviorState:
    """Returns a behavior in the middle of its training."""
    return BehaviorState(
        name=name,
        version=24,
        env_steps_taken=98_400,
        env_steps_trained=98_304,
        max_steps=200_000,
        steps_per_second=4123.4,
        episodes=480,
        mean_return_100=mean_return,
        queued_steps=1000,
        queued_bytes=128 * 2**20,
        queue_capacity_bytes=256 * 2**20,
        numbers={"mean_lag": 0.4, "log_prob_error_max": 2.3e-7},
        target_return=target,
        books=LedgerNumbers(
            received=98_400,
            trained=98_304,
            dropped={"stale": 90, "bad_action": 6},
            duplicate=0,
            queued=0,
            lost={},
            unknown=0,
        ),
    )


def run_view(*behaviors: BehaviorState, state: RunState = RunState.TRAINING, last_error: str = "") -> RunView:
    """Returns a run with these behaviors."""
    return RunView(
        run_id="cartpole-1",
        state=state,
        generation=3,
        uptime_seconds=83.2,
        address="127.0.0.1:50051",
        actors=2,
        last_error=last_error,
        behaviors=behaviors,
        bottleneck=Bottleneck(
            "learner", "learner-bound: so it is", learner_busy=0.97, actor_busy=0.12, network_share=0.03
        ),
    )
