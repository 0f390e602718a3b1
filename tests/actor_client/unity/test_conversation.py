"""Tests the conversation with one player."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto, UnityOutputProto

from actor_client.unity import conversation, replies
from actor_client.unity.conversation import Conversation, Phase
from actor_client.unity.mailbox import BadPlayerData, Kind, Mailbox, Post
from tests.actor_client.scripted import wait_until
from tests.actor_client.unity.harness import ball, hello, id_of, ready

FAREWELL = replies.farewell().SerializeToString()


class Agents:
    """A reader that counts agents and refuses negative ids."""

    def read(self, output: UnityOutputProto) -> int:
        """Returns how many agents there are."""
        agents = [info for infos in output.rl_output.agentInfos.values() for info in infos.value]
        if any(info.id < 0 for info in agents):
            raise BadPlayerData("agent -1 cannot be")
        return len(agents)


class Talk:
    """A conversation whose messages a test answers."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.conversation = Conversation(0, self.mailbox, clock=map(float, itertools.count(1)).__next__)
        self.threads = ThreadPoolExecutor(4)
        self.peer = "ipv4:127.0.0.1:40000"

    def say(self, message: UnityMessageProto) -> Post:
        """Sends a message and returns what became of it."""
        self.coming = self.threads.submit(self.conversation.exchange, message.SerializeToString(), self.peer)
        taken: list[Post] = []

        def came() -> bool:
            taken.extend(self.mailbox.take())
            return bool(taken)

        wait_until(came)
        return taken[-1]

    def begin(self) -> None:
        """Makes the first two exchanges."""
        greeting = self.say(hello())
        self.conversation.reader = Agents()
        greeting.answer(replies.greeting(greeting.content, 1, 1))
        self.coming.result()
        self.say(ready()).answer(replies.reset(b""))
        self.coming.result()


@pytest.fixture(name="talk")
def _talk() -> Iterator[Talk]:
    talk = Talk()
    yield talk
    talk.conversation.close()
    talk.threads.shutdown()


def step(identity: int = 0) -> UnityMessageProto:
    """Returns a message with one agent."""
    message = ready()
    message.unity_output.rl_output.agentInfos[id_of("Ball")].value.append(ball(identity))
    return message


def test_phases_follow_the_exchanges_and_time_counts_for_who_owes(talk: Talk) -> None:
    """Waiting time counts from the last answer, and not while the player waits."""
    conversation = talk.conversation
    assert (conversation.phase, conversation.waiting_since) == (Phase.WAITING, 1.0)
    greeting = talk.say(hello())
    assert (conversation.phase, conversation.waiting_since) == (Phase.GREETED, None)
    greeting.answer(replies.greeting(greeting.content, 1, 1))
    talk.coming.result()
    assert conversation.waiting_since is not None
    talk.say(ready()).answer(replies.reset(b""))
    talk.coming.result()
    assert conversation.phase is Phase.RUNNING
    assert conversation.counts.exchanges == 2


@pytest.mark.parametrize("version", ["0.5.0", "2.0.0", "", "one", "1", "1.x.0", "9" * 100])
def test_a_version_that_does_not_fit_is_refused_in_one_line(
    talk: Talk, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names both versions and the next step, and ends the conversation."""
    answer = talk.conversation.exchange(hello(version).SerializeToString())
    assert answer == FAREWELL
    assert "1.5.0" in talk.conversation.fault
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("version", ["1.0.0", "1.4", "1.5.0", "1.99.7", "1.5.0-exp.1"])
def test_every_version_with_our_first_number_is_welcome(talk: Talk, version: str) -> None:
    """Versions with the same major number are accepted."""
    assert talk.say(hello(version)).kind is Kind.HELLO


@pytest.mark.parametrize(
    ("package", "told"), [("1.0.8", "0.20.0"), ("1.9.1-preview", "0.20.0"), ("", "0.20.0"), ("2.0.1", "1.1.0")]
)
def test_old_packages_hear_of_an_old_trainer(talk: Talk, package: str, told: str) -> None:
    """Old packages get a version of the trainer that they accept."""
    greeting = talk.say(hello("1.0.0", package))
    answer = replies.greeting(greeting.content, 1, 1).unity_input.rl_initialization_input
    assert answer.package_version == told
    assert answer.HasField("capabilities")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_of_strangers_end_their_own_call_alone(data: bytes) -> None:
    """Random bytes at a waiting port are answered and raise nothing."""
    mailbox = Mailbox()

    def end_all() -> None:
        for post in mailbox.take():
            post.answer(replies.farewell())

    mailbox.ring = end_all
    assert Conversation(0, mailbox).exchange(data) == FAREWELL


def test_stray_calls_leave_the_player_alone(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    """Garbage, concurrent calls and calls out of turn are refused with one line; the player continues."""
    talk.begin()
    capsys.readouterr()
    pending = talk.say(step())
    player = talk.coming
    draw = random.Random(1)
    strange = [draw.randbytes(50), b"", step().SerializeToString(), ready().SerializeToString(), b"\xff" * 9]
    for data in strange:
        assert talk.conversation.exchange(data) == FAREWELL
    pending.answer(replies.step())
    assert player.result() != FAREWELL
    assert talk.conversation.fault == ""
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_player_that_was_started_before_the_gateway_is_turned_away(talk: Talk) -> None:
    """A player that reports agents without a greeting is refused."""
    assert talk.conversation.exchange(step().SerializeToString()) == FAREWELL
    assert talk.conversation.phase is Phase.WAITING


def test_agents_that_cannot_be_read_end_the_player(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    """Unreadable agents end the player, and the gateway is notified with the reason."""
    talk.begin()
    capsys.readouterr()
    assert talk.conversation.exchange(step(-1).SerializeToString()) == FAREWELL
    assert (talk.conversation.phase, talk.conversation.fault) == (Phase.CLOSED, "agent -1 cannot be")
    assert [post.kind for post in talk.mailbox.take()] == [Kind.LEFT]
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_player_says_that_it_leaves(talk: Talk) -> None:
    """A last message with status 400 ends the conversation; the player may start again."""
    talk.begin()
    leaving = UnityMessageProto()
    leaving.header.status = 400
    assert talk.conversation.exchange(leaving.SerializeToString()) == FAREWELL
    assert talk.conversation.phase is Phase.CLOSED
    assert [post.kind for post in talk.mailbox.take()] == [Kind.LEFT]
    assert talk.say(hello()).kind is Kind.HELLO


def test_beginning_again_ends_what_waits(talk: Talk) -> None:
    """A new greeting ends the pending call; the gateway gets the end before the start."""
    talk.begin()
    talk.say(step())
    before = talk.coming
    kinds: list[Kind] = []
    after = talk.threads.submit(talk.conversation.exchange, hello().SerializeToString())

    def both() -> bool:
        kinds.extend(post.kind for post in talk.mailbox.take())
        return len(kinds) == 2

    wait_until(both)
    assert kinds == [Kind.LEFT, Kind.HELLO]
    assert before.result() == FAREWELL
    assert not after.done()


def test_whose_place_another_took_has_no_say(talk: Talk) -> None:
    """Calls of a replaced player are refused."""
    talk.begin()
    old, talk.peer = talk.peer, "ipv4:127.0.0.1:40001"
    talk.begin()
    leaving = ready()
    leaving.header.status = 400
    for message in (step(), ready(), leaving):
        assert talk.conversation.exchange(message.SerializeToString(), old) == FAREWELL
    assert talk.conversation.phase is Phase.RUNNING
    assert talk.say(step()).content == 1
    talk.peer = old
    talk.conversation.forget()
    talk.begin()
    assert talk.say(step()).content == 1


def test_a_client_may_call_from_another_address(talk: Talk) -> None:
    """A client may continue from another address after a pause."""
    talk.begin()
    talk.peer = "ipv4:127.0.0.1:40002"
    assert talk.say(step()).content == 1


def test_closing_ends_what_waits_and_what_comes(talk: Talk) -> None:
    """After closing, pending and later calls get status 400."""
    talk.begin()
    pending = talk.say(step())
    talk.conversation.close()
    assert talk.coming.result() == FAREWELL
    assert not pending.answer(replies.step())
    assert talk.conversation.exchange(hello().SerializeToString()) == FAREWELL


def test_forgetting_makes_room_for_the_next_process(talk: Talk) -> None:
    """Forgetting ends a pending call and waits for a first message."""
    talk.begin()
    talk.say(step())
    talk.conversation.forget()
    assert talk.coming.result() == FAREWELL
    assert talk.conversation.phase is Phase.WAITING
    assert talk.conversation.waiting_since is not None
    assert talk.say(hello()).kind is Kind.HELLO


def test_an_answer_that_players_cannot_take_ends_the_player_in_one_line(talk: Talk) -> None:
    """An answer above four megabytes ends the player with one line."""
    talk.begin()
    talk.say(step()).answer(replies.reset(bytes(5_000_000)))
    assert talk.coming.result() == FAREWELL
    assert "5000" in talk.conversation.fault


def test_very_many_fields_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of very many empty fields is turned away before it takes a hundred times its size in memory."""

    def parse(data: bytes) -> UnityMessageProto:
        raise AssertionError(len(data))

    bomb = b"\x0a\x00" * 1001
    talk = Talk()
    with monkeypatch.context() as patched:
        patched.setattr(conversation, "MAX_FIELDS", 1000)
        patched.setattr(
            conversation,
            "UnityMessageProto",
            SimpleNamespace(DESCRIPTOR=UnityMessageProto.DESCRIPTOR, FromString=parse),
        )
        assert talk.conversation.exchange(bomb, talk.peer) == FAREWELL
    assert talk.conversation.phase is Phase.WAITING
