"""What the page shows of a learner, put together from its real parts."""

from __future__ import annotations

from rollcast.enums import HoldReason

from learner.ingest.session import PolicyState
from learner.ingest.times import ActorTimes
from learner.observe.metrics.behaviors import LossNumbers
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.view import Bottleneck, RunState, RunView
from learner.status.run_status import RunStatus, TrainerStats
from learner.web.learner_hooks import RunHooks
from tests.learner.ingest.parts import NAME, Parts, make_options, report


class Control:
    """The operator's side of a learner that has no trainers."""

    def __init__(self, run_status: RunStatus) -> None:
        self.calls: list[str] = []
        self._run_status = run_status

    def status(self) -> RunView:
        """Returns the status."""
        return self._run_status.run_view(RunState.TRAINING, "127.0.0.1:1")

    def pause(self) -> None:
        """Notes the call."""
        self.calls.append("pause")

    def resume(self) -> None:
        """Notes the call."""
        self.calls.append("resume")

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Notes the call."""
        self.calls.append(f"save {timeout_seconds:g}")
        return "/there"

    def drain(self, *, final: bool) -> None:
        """Nothing on the page does it."""
        raise AssertionError(HoldReason.DRAINING)


class Rig:
    """A learner with one behavior, in version 3, and its hooks."""

    def __init__(self) -> None:
        self.parts = parts = Parts(generation=2)
        service = make_options().rollcast
        self.run_status = RunStatus(
            parts.behaviors, parts.sessions, parts.ledger, service, run_id="run", generation=2, clock=lambda: parts.now
        )
        self.run_status.bottleneck = Bottleneck("actors", "they are slow")
        self.control = Control(self.run_status)
        self.metrics = LearnerMetrics()
        losses = LossNumbers(0.5, 0.25, -0.25, *[0.0] * 7)
        self.metrics.behavior(NAME).note_losses(losses)
        self.hooks = RunHooks(
            self.control,
            parts.behaviors,
            parts.sessions,
            self.metrics,
            is_serving=lambda: True,
            history=self.run_status.history,
            version="1.0",
        )
        self.session = parts.open("rig").session
        parts.declared(self.session)
        self.run_status.note_trainer(
            parts.behaviors.all()[0], TrainerStats(version=3, env_steps_trained=40, episodes=2)
        )


def test_an_actor() -> None:
    """Its books, its lag behind the newest version, and what keeps its policy from acting."""
    rig = Rig()
    parts, session = rig.parts, rig.session
    books = report(produced=10, open=2, unacked=3, acked=4, discarded={"env_error": 1})
    policies = [PolicyState(0, generation=2, version=1, error="<b>broken</b>")]
    parts.sessions.renew(session, [books])
    session.note_policies(policies, lambda _: 3, 2)
    parts.now += 2.5
    status = rig.hooks.status()
    (actor,) = status.actors
    assert (actor.name, actor.index, actor.connected, actor.last_seen_seconds) == ("rig", 0, False, 2.5)
    assert (actor.lag, actor.error) == (2, "<b>broken</b>")
    assert actor.books.balanced
    assert (actor.books.produced, actor.books.discarded) == (10, {"env_error": 1})
    assert status.run.bottleneck.name == "actors"
    assert (status.version, status.run.run_id) == ("1.0", "run")


def test_where_its_time_goes() -> None:
    """Its waits and its round trip stand beside its books, once it has said them twice."""
    rig = Rig()
    assert rig.hooks.status().actors[0].wait_share is None
    for wall, waited in ((1.0, 0.0), (5.0, 1.0)):
        waits = {**ActorTimes(0.0).wait_seconds, "credit": waited}
        rig.session.times.add(ActorTimes(wall, waits, round_trip_seconds=0.02), rig.parts.now)
    (actor,) = rig.hooks.status().actors
    assert (actor.wait_share, actor.waits_for, actor.round_trip_seconds) == (0.25, "credit", 0.02)


def test_a_policy_of_another_start_has_no_lag() -> None:
    """Versions compare only within one generation."""
    rig = Rig()
    rig.session.note_policies([PolicyState(0, generation=1, version=900)], lambda _: 3, 2)
    assert rig.hooks.status().actors[0].lag is None


def test_actors_are_in_the_order_of_their_places() -> None:
    """The table does not jump when one comes back."""
    rig = Rig()
    for name in ("c", "b", "a"):
        rig.parts.open(name)
    assert [actor.index for actor in rig.hooks.status().actors] == [0, 1, 2, 3]


def test_samples_become_curves() -> None:
    """Counters, rates and the figures of the last update stand in one point."""
    rig = Rig()
    assert rig.hooks.history(NAME, 0.0) is None
    for _ in range(3):
        rig.parts.now += 1.0
        rig.hooks.sample()
    view = rig.hooks.history(NAME, 1.5)
    assert view is not None
    assert view.columns["t"] == [2.0, 3.0]
    assert view.columns["loss"] == [0.5, 0.5]
    assert view.columns["env_steps_trained"] == [40.0, 40.0]
    assert view.columns["mean_return"] == [None, None]


def test_the_speed_of_an_actor() -> None:
    """It is measured between two samples."""
    rig = Rig()
    for steps in (0, 100, 200):
        rig.parts.sessions.renew(rig.session, [report(produced=steps, acked=steps)])
        rig.hooks.sample()
        rig.parts.now += 1.0
    assert rig.hooks.status().actors[0].steps_per_second == 100.0


def test_what_operators_may_do() -> None:
    """It goes to the learner as it is."""
    rig = Rig()
    rig.hooks.pause()
    rig.hooks.resume()
    assert rig.hooks.save_checkpoint(5.0) == "/there"
    assert rig.control.calls == ["pause", "resume", "save 5"]
    assert rig.hooks.is_serving()
    assert b"rollcast_learner_loss" in rig.hooks.metrics()
