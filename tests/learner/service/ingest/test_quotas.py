"""The parts of several actors in an update."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from learner.link.to_front import Pace
from learner.service.ingest.grants import CreditAllocator
from learner.service.ingest.quotas import PATIENCE_SECONDS, RETRY_SECONDS, Quotas, apportion, fitting
from learner.service.ingest.session import ActorSession
from tests.learner.service.ingest.parts import NAME, Parts, report

UPDATE_STEPS = 96


@given(st.integers(0, 10_000), st.lists(st.integers(1, 64), min_size=1, max_size=12))
def test_parts_are_whole_turns_that_add_up(steps: int, sizes: list[int]) -> None:
    """Parts are multiples of their sizes; their sum is at least what was asked for, and less than a turn above it."""
    parts = apportion(steps, sizes)
    assert all(part >= 0 and part % size == 0 for part, size in zip(parts, sizes, strict=True))
    assert steps <= sum(parts) < steps + max(sizes)


@given(st.integers(0, 300), st.integers(1, 12), st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=8))
def test_parts_add_up_exactly_where_they_can(turns: int, unit: int, factors: list[int]) -> None:
    """Sizes with a common divisor add up to each of its multiples that leaves every part some turns."""
    sizes = [unit * factor for factor in factors]
    steps = fitting(3 * sum(sizes) + turns, sizes)
    assert sum(apportion(steps, sizes)) == steps
    assert steps % math.gcd(*sizes) == 0


@pytest.mark.parametrize(
    ("steps", "sizes", "parts"),
    [
        (1024, [8], [1024]),
        (4096, [16], [4096]),
        (1000, [16], [1008]),
        (1024, [8, 8, 8], [344, 344, 336]),
        (1024, [8, 12], [400, 624]),
        (1024, [8, 4, 1], [632, 312, 80]),
        (5, [8, 4], [0, 8]),
        (3, [8, 4], [0, 4]),
        (0, [8, 4], [0, 0]),
    ],
)
def test_parts_are_in_proportion(steps: int, sizes: list[int], parts: list[int]) -> None:
    """Each actor takes as many steps in each of its environments as the others, or one more or less."""
    assert apportion(steps, sizes) == parts


@dataclass
class Player:
    """An actor that obeys its quota."""

    session: ActorSession
    size: int
    produced: int = 0
    sent: int = 0

    @property
    def quota(self) -> int | None:
        """Its quota."""
        return self.session.accounts[0].quota_through

    def step(self, turns: int) -> int:
        """Takes so many turns, and no more than its quota has room for; returns how many it took."""
        taken = 0
        while taken < turns and self.produced < (self.quota or 0):
            self.produced += self.size
            taken += 1
        return taken


class Table:
    """Players of one behavior, and a trainer of updates of `UPDATE_STEPS` steps."""

    def __init__(self, *sizes: int, update_steps: int = UPDATE_STEPS) -> None:
        self.parts = Parts()
        self.update_steps = update_steps
        self.quotas = Quotas(self.parts.behaviors, lambda: self.parts.now)
        self.players = [self._open(size) for size in sizes]
        self.behavior = self.parts.behaviors.all()[0]
        self.idle: set[str] = set()
        self.settle()

    def _open(self, size: int, *, follows: bool = True) -> Player:
        session = self.parts.open(f"actor {len(self.parts.sessions.live())}").session
        behavior = self.parts.declared(session, agents=size)
        self.parts.sessions.declare(session, behavior, 0, size, follows_quota=follows)
        return Player(session, size)

    def join(self, size: int, *, follows: bool = True) -> Player:
        """Adds a player."""
        player = self._open(size, follows=follows)
        self.players.append(player)
        self.assign()
        return player

    def leave(self, player: Player) -> None:
        """Takes a player away with everything that it has not sent."""
        self.players.remove(player)
        self.quotas.forget(player.session)
        self.assign()

    def assign(self) -> list[ActorSession]:
        """Assigns the quotas."""
        return self.quotas.assign(self.behavior, [player.session for player in self.players], self.idle)

    def tick(self) -> list[ActorSession]:
        """Lets a second pass."""
        self.parts.now += 1.0
        return self.quotas.tick(self.behavior, [player.session for player in self.players], self.idle)

    def settle(self, trained: int = 0, pace: Pace | None = None) -> None:
        """Brings results of the trainer."""
        self.parts.trainers.settle(trained=trained, pace=pace or Pace(update_steps=self.update_steps))
        self.assign()

    def send(self, player: Player) -> None:
        """Receives all that a player has produced."""
        account, rows = player.session.accounts[0], player.produced - player.sent
        self.parts.ledger.enqueue(NAME, rows)
        account.received_steps += rows
        player.sent = player.produced
        self.assign()

    @property
    def collected(self) -> int:
        """Steps that wait for the update."""
        return self.parts.ledger.queued(NAME)

    def finish_update(self) -> int:
        """Lets everybody play until there is an update; returns its steps."""
        for _ in range(100):
            for player in list(self.players):
                player.step(10**6)
                self.send(player)
            if self.collected >= self.update_steps:
                break
        steps = self.collected
        self.settle(trained=steps)
        return steps


@pytest.mark.parametrize("sizes", [(8,), (8, 8, 8), (4, 12), (1, 2, 3, 6)])
def test_quotas_add_up_to_each_update(sizes: tuple[int, ...]) -> None:
    """Updates have the steps asked for, one after another, and nothing changes between two chunks of a quota."""
    table = Table(*sizes)
    assert sum(player.quota or 0 for player in table.players) == UPDATE_STEPS
    for _ in range(4):
        assert table.assign() == []
        table.players[0].step(1)
        table.send(table.players[0])
        assert table.assign() == []
        assert table.finish_update() == UPDATE_STEPS


def test_actors_take_turns_if_there_are_not_enough_for_all() -> None:
    """With more environments than steps, others take the steps of the next update."""
    table = Table(8, 8, 8, update_steps=16)
    taken = []
    for _ in range(3):
        before = [player.produced for player in table.players]
        assert table.finish_update() == 16
        taken.append([player.produced - old for player, old in zip(table.players, before, strict=True)])
    assert [sum(each) for each in zip(*taken, strict=True)] == [16, 16, 16]


def test_no_quota_grows_while_an_update_runs() -> None:
    """With all steps there, actors wait, and one that joins waits too."""
    table = Table(8)
    table.players[0].step(10**6)
    table.send(table.players[0])
    assert table.players[0].quota == UPDATE_STEPS
    assert table.join(8).quota == 0


def test_the_others_take_over_from_a_lost_actor() -> None:
    """Steps that an actor will never send are shared out at once; what it had sent is trained."""
    table = Table(8, 8, 8)
    first = table.players[0]
    first.step(1)
    table.send(first)
    first.step(2)
    table.leave(first)
    assert [player.quota for player in table.players] == [48, 40]
    assert table.finish_update() == UPDATE_STEPS


def test_an_actor_that_joins_shares_the_update() -> None:
    """The others get smaller quotas; one that is beyond its new quota sends what it has, and the sum is restored."""
    table = Table(8)
    first = table.players[0]
    first.step(8)
    second = table.join(8)
    assert (first.quota, second.quota) == (48, 48)
    assert first.step(1) == 0
    table.send(first)
    assert (first.quota, second.quota) == (80, 16)
    assert table.finish_update() == UPDATE_STEPS


def test_steps_that_are_given_up_are_taken_again() -> None:
    """An actor that discards steps, or whose steps are refused, leaves the update no smaller."""
    table = Table(8, 8)
    player = table.players[0]
    player.step(2)
    player.session.accounts[0].report(report(produced=16, discarded={"env_error": 16}))
    player.sent = player.produced
    table.tick()
    assert table.finish_update() == UPDATE_STEPS


def test_actors_that_know_no_quota_add_to_the_update() -> None:
    """Their steps count as they come; the others take fewer, and no update waits for them."""
    table = Table(8)
    older = table.join(8, follows=False)
    assert older.quota is None
    older.produced = 32
    table.send(older)
    assert table.players[0].quota == UPDATE_STEPS - 32
    assert table.finish_update() == UPDATE_STEPS
    assert table.finish_update() == UPDATE_STEPS


def test_a_size_that_does_not_fit_is_rounded_up() -> None:
    """Updates have up to a turn more, and a warning names a size that fits, once."""
    with capture_logs() as logs:
        table = Table(16, update_steps=100)
        assert [table.finish_update() for _ in range(3)] == [112] * 3
    (told,) = [each for each in logs if each["event"] == "buffer_size_does_not_fit"]
    assert "set buffer_size to 112" in str(told)


def test_an_idle_actor_has_no_part() -> None:
    """The others take the steps of an actor that evaluates; afterwards it shares again."""
    table = Table(8, 8)
    player = table.players[0]
    table.idle.add(player.session.session_id)
    table.assign()
    assert [each.quota for each in table.players] == [0, UPDATE_STEPS]
    table.idle.clear()
    table.quotas.forget(player.session)
    table.assign()
    assert [each.quota for each in table.players] == [48, 48]


def test_a_late_actor_is_asked_for_what_it_has() -> None:
    """Once the others have waited long enough, it sends its steps, and all share what is missing."""
    table = Table(8, 8)
    slow, fast = table.players
    slow.step(1)
    fast.step(10**6)
    table.send(fast)
    for _ in range(math.ceil(PATIENCE_SECONDS)):
        assert table.tick() == []
    assert table.tick() == [slow.session]
    assert (slow.quota, slow.step(1)) == (0, 0)
    table.send(slow)
    assert (slow.quota, fast.quota) == (0, 48), "no one goes on before the next tick"
    table.tick()
    assert (slow.quota, fast.quota) == (8 + 24, 48 + 16)
    assert table.finish_update() == UPDATE_STEPS


def test_an_actor_that_hangs_is_asked_again_later() -> None:
    """The others take its part from then on; after a while it gets one again, in case it lives."""
    table = Table(8, 8)
    hung, fast = table.players
    fast.step(10**6)
    table.send(fast)
    for _ in range(math.ceil(PATIENCE_SECONDS) + 2):
        table.tick()
    assert (hung.quota, fast.quota) == (0, UPDATE_STEPS)
    fast.step(10**6)
    table.send(fast)
    table.settle(trained=UPDATE_STEPS)
    assert hung.quota == 0
    table.parts.now += RETRY_SECONDS
    table.tick()
    assert hung.quota == 0, "a part of the next update"
    fast.step(10**6)
    table.send(fast)
    table.settle(trained=UPDATE_STEPS)
    assert hung.quota == 48


def test_without_updates_there_are_no_quotas() -> None:
    """Trainers whose actors run ahead, and behaviors that are not trained any more, have none."""
    table = Table(8)
    table.settle(pace=Pace(ahead_limit_steps=100))
    assert table.players[0].quota is None
    table.settle()
    assert table.players[0].quota == UPDATE_STEPS
    table.parts.trainers.finish()
    table.assign()
    assert table.players[0].quota is None


def test_the_quota_is_the_credit() -> None:
    """A grant has the quota as its limit in steps, which never falls, and nothing is granted before the first pace."""
    table = Table(8)
    session = table.players[0].session
    account = session.accounts[0]
    allocator = CreditAllocator(table.parts.behaviors)
    granted = allocator.grant(session, account)
    assert granted is not None
    assert (granted.steps_through, granted.quota_through) == (UPDATE_STEPS, UPDATE_STEPS)
    table.join(8)
    granted = allocator.grant(session, account)
    assert granted is not None
    assert (granted.steps_through, granted.quota_through) == (UPDATE_STEPS, 48)

    parts = Parts()
    early = parts.open().session
    parts.sessions.declare(early, parts.declared(early, agents=8), 0, 8, follows_quota=True)
    granted = CreditAllocator(parts.behaviors).grant(early, early.accounts[0])
    assert granted is not None
    assert (granted.steps_through, granted.quota_through) == (0, None)


@given(st.data())
@settings(max_examples=25)
def test_every_update_is_completed_whatever_happens(data: st.DataObject) -> None:
    """Actors play, send, discard, join and leave in any order: updates come, with the steps asked for or more."""
    table = Table(*data.draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3)))
    for _ in range(data.draw(st.integers(1, 20))):
        player = data.draw(st.sampled_from(table.players))
        match data.draw(st.sampled_from(["step", "send", "discard", "join", "leave", "tick"])):
            case "step":
                player.step(data.draw(st.integers(1, 8)))
            case "send":
                table.send(player)
            case "discard":
                counted = player.session.accounts[0].discarded_steps + player.produced - player.sent
                player.session.accounts[0].report(report(produced=player.produced, discarded={"reset": counted}))
                player.sent = player.produced
                table.assign()
            case "join" if len(table.players) < 5:
                table.join(data.draw(st.sampled_from([1, 2, 4, 8])))
            case "leave" if len(table.players) > 1:
                table.leave(player)
            case "tick":
                table.tick()
        assert table.collected + sum(_open(player) for player in table.players) >= UPDATE_STEPS
    table.finish_update()
    table.finish_update()
    assert UPDATE_STEPS <= table.finish_update() < UPDATE_STEPS + 8


def _open(player: Player) -> int:
    account = player.session.accounts[0]
    return max(0, (account.quota_through or 0) - account.step_share.settled)


@pytest.mark.parametrize("claimed", [4, 5, 2**20])
def test_no_principal_takes_more_than_half_of_an_update(claimed: int) -> None:
    """However many agents another principal claims, half of each update is left."""
    table = Table(2, 2, update_steps=4096)
    other = table.join(4)
    other.session.principal = "other"
    other.session.accounts[0].agents = claimed
    for player in table.players:
        player.session.accounts[0].quota_through = None
    table.assign()
    quotas = [player.quota or 0 for player in table.players]
    assert quotas[0] + quotas[1] == 2048
    assert quotas[2] <= 2048 + 2, "in whole turns"
