"""The rules that a learner is tried by; their numbers and texts are those of protos/README.md."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rollcast.errors import BY_REASON, PolicyCorrupt, WireError
from rollcast.limits import MAX_CHUNK_BYTES, PROTOCOL_REVISION
from rollcast.policies import PolicyAssembler, PolicyDescription
from rollcast.v1 import policy_pb2, trajectory_pb2

from actor_client.conform.player import Ended, Player, Stream

_NO_VERSION: Final = 2**40


class Broken(Exception):  # noqa: N818 - says what became of a rule
    """Raised if the learner breaks a rule; the message says how."""


class NotTried(Exception):  # noqa: N818 - says what became of a rule
    """Raised if a rule cannot be tried; the message says why."""


@dataclass
class Trial:
    """What the rules share.

    Attributes:
        join: Makes another player, whose session ends with the rule.
        errors: Every error of the rules before.
        version: The newest version that was seen.
    """

    join: Callable[[], Player]
    errors: list[WireError] = field(default_factory=list)
    version: int = 0

    def opened(self) -> Player:
        """Returns a player with an open session."""
        player = self.join()
        player.open()
        return player

    def declared(self) -> Player:
        """Returns a player that has declared its behavior."""
        player = self.opened()
        player.declare()
        return player

    def uploading(self) -> tuple[Player, Stream, trajectory_pb2.UploadOpened]:
        """Returns a player with an open upload, and its first answer."""
        player = self.declared()
        stream = player.upload()
        return player, stream, stream.read().opened


class Rule(NamedTuple):
    """One rule.

    Attributes:
        number: Its number in protos/README.md.
        text: What is tried, in short.
        check: Tries it. Raises `Broken` or `NotTried`.
    """

    number: str
    text: str
    check: Callable[[Trial], None]


def expect(condition: object, text: str) -> None:
    """Checks an answer.

    Raises:
        Broken: The condition does not hold.
    """
    if not condition:
        raise Broken(text)


def expect_refusal(reason: str, act: Callable[[], Any]) -> None:
    """Checks that the learner refuses something with a reason.

    Raises:
        Broken: It accepts it, or has another reason.
    """
    try:
        act()
    except WireError as error:
        found = error.reason or f"{error.code.name} without a reason"
        expect(error.reason == reason, f"refused with {found} ({error.message}); {reason} is needed")
    except Ended:
        raise Broken(f"the stream ended well; {reason} is needed") from None
    else:
        raise Broken(f"accepted; {reason} is needed")


def _read_on(stream: Stream) -> None:
    """Reads until a stream ends."""
    while True:
        stream.read()


def _acks(stream: Stream) -> Iterator[trajectory_pb2.Ack]:
    """Yields the acks of an upload."""
    while True:
        message = stream.read()
        if message.WhichOneof("message") == "ack":
            yield message.ack


def _acked(stream: Stream, through: int) -> list[trajectory_pb2.Ack]:
    """Returns the acks up to the one that settles a chunk.

    Raises:
        Broken: They fall.
    """
    found: list[trajectory_pb2.Ack] = []
    for ack in _acks(stream):
        last = found[-1].acked_through if found else 0
        expect(ack.acked_through >= last, f"acked_through fell from {last} to {ack.acked_through}")
        found.append(ack)
        if ack.acked_through >= through:
            break
    return found


def opening(trial: Trial) -> None:
    """Tries R1.1."""
    player = trial.join()
    opened = player.open()
    expect(opened.protocol_revision == PROTOCOL_REVISION, f"protocol_revision is {opened.protocol_revision}")
    expect(opened.session_id and opened.epoch, f"session {opened.session_id!r} with epoch {opened.epoch}")
    expect(opened.next_sequence == 1 and not opened.resumed, f"a new session begins at {opened.next_sequence}")
    expect(opened.lease_ms, "the lease is 0 ms")
    limit = opened.limits.max_chunk_bytes
    expect(0 < limit <= MAX_CHUNK_BYTES, f"max_chunk_bytes is {limit}; at most {MAX_CHUNK_BYTES} are allowed")
    again = player.open()
    expect(again.session_id, "opening twice with one instance_id gave no session")
    player.renew()


def declaring(trial: Trial) -> None:
    """Tries R1.2."""
    player = trial.opened()
    first, second = player.declare().behavior_index, player.declare().behavior_index
    expect(first == second, f"declaring again gave index {second} after {first}")
    expect_refusal("SPEC_MISMATCH", lambda: player.declare(size=5))


def streaming(trial: Trial) -> None:
    """Tries R1.3."""
    player, old, _ = trial.uploading()
    new = player.upload()
    expect(new.read().HasField("opened"), "the newer upload was not opened")
    expect_refusal("STREAM_SUPERSEDED", lambda: _read_on(old))


def renewing(trial: Trial) -> None:
    """Tries R1.4."""
    player = trial.opened()
    expect(player.renew().lease_ms, "the lease is 0 ms")


def resuming(trial: Trial) -> None:
    """Tries R1.5."""
    player = trial.declared()
    session_id, epoch = player.session_id, player.epoch
    opened = player.resume()
    same = (opened.resumed, opened.session_id, opened.epoch) == (True, session_id, epoch + 1)
    expect(same, f"session {opened.session_id!r}, epoch {opened.epoch}, resumed {opened.resumed}")
    expect_refusal("SESSION_FENCED", lambda: player.renew(epoch=epoch))
    stranger = "00000000-0000-4000-8000-000000000000"
    expect_refusal("SESSION_FENCED", lambda: player.resume(session_id, stranger))


def closing(trial: Trial) -> None:
    """Tries R1.6."""
    player = trial.opened()
    player.close()
    expect_refusal("SESSION_EXPIRED", player.renew)


def returning(trial: Trial) -> None:
    """Tries R1.7."""
    opened = trial.join().resume("unknown")
    expect(
        not opened.resumed and opened.session_id != "unknown", "a session that the learner does not know was resumed"
    )
    expect(opened.next_sequence == 1, f"a new session begins at {opened.next_sequence}")


def settling(trial: Trial) -> None:
    """Tries R1.9."""
    player, stream, _ = trial.uploading()
    stream.send(player.chunk(1, trial.version))
    _acked(stream, 1)
    opened = player.resume()
    found = opened.next_sequence, opened.settled_through
    expect(found == (2, 1), f"after chunk 1, next_sequence is {found[0]} and settled_through {found[1]}")


def ordering(trial: Trial) -> None:
    """Tries R2.1."""
    player = trial.declared()
    first = player.upload().read().WhichOneof("message")
    expect(first == "opened", f"the first response is {first}")
    wrong = player.upload(opens=False)
    wrong.send(player.chunk(1, trial.version))
    expect_refusal("BAD_REQUEST", lambda: _read_on(wrong))


def numbering(trial: Trial) -> None:
    """Tries R2.2."""
    player, stream, opened = trial.uploading()
    expect(opened.next_sequence == 1, f"next_sequence is {opened.next_sequence}")
    for sequence in (1, 1):  # the second is a duplicate
        stream.send(player.chunk(sequence, trial.version))
        expect(_acked(stream, 1)[-1].acked_through == 1, "acked_through is beyond what was sent")
    stream.send(player.chunk(3, trial.version))
    expect_refusal("SEQUENCE_GAP", lambda: _read_on(stream))
    again = player.upload().read().opened
    expect(again.next_sequence == 2, f"next_sequence is {again.next_sequence} after chunk 1")


def acking(trial: Trial) -> None:
    """Tries R2.3."""
    player, stream, _ = trial.uploading()
    for sequence in (1, 2, 3):
        stream.send(player.chunk(sequence, trial.version))
    last = _acked(stream, 3)[-1].acked_through
    expect(last == 3, f"acked_through is {last} after three chunks")


def crediting(trial: Trial) -> None:
    """Tries R2.4."""
    player, stream, opened = trial.uploading()
    granted = [credit for credit in opened.credit if credit.behavior_index == player.index]
    stream.send(player.chunk(1, trial.version))
    granted += [credit for ack in _acked(stream, 1) for credit in ack.credit if credit.behavior_index == player.index]
    expect(granted, "no credit came with the opening or the first ack")
    for name in ("steps_through", "bytes_through"):
        numbers = [getattr(credit, name) for credit in granted]
        expect(numbers == sorted(numbers) and numbers[-1], f"{name} was {', '.join(map(str, numbers))}")


def faulting(trial: Trial) -> None:
    """Tries R2.18."""
    player = trial.opened()
    if not player.declare().training:
        raise NotTried("the behavior is not trained any more")
    stream = player.upload()
    stream.read()
    stream.send(player.chunk(1, trial.version, reward=float("nan")))
    reasons = [rejection.reason for ack in _acked(stream, 1) for rejection in ack.rejections]
    expect(
        reasons == ["not_finite"], f"a reward of NaN was refused with {reasons or 'no reason'}; not_finite is needed"
    )
    malformed = player.chunk(2, trial.version)
    malformed.chunk.rows = 7
    stream.send(malformed)
    expect_refusal("MALFORMED_CHUNK", lambda: _read_on(stream))


def _policy(messages: Iterator[Any]) -> tuple[PolicyDescription, bytes]:
    """Returns the first policy of a stream.

    Raises:
        Broken: It is damaged, or none came.
    """
    assembler = PolicyAssembler()
    try:
        for message in messages:
            kind = message.WhichOneof("message")
            if kind == "header":
                assembler.begin(message.header)
            elif kind == "frame" and (whole := assembler.add(message.frame)) is not None:
                return whole
    except PolicyCorrupt as error:
        raise Broken(error.message) from None
    raise Broken("the stream ended before a policy was complete")


def subscribing(trial: Trial) -> None:
    """Tries R3.1."""
    player = trial.declared()
    policy, _ = _policy(player.subscribe())
    expect(policy.behavior == player.behavior, f"the policy is of {policy.behavior!r}")
    expect(policy.generation == player.generation, f"the policy is of generation {policy.generation}")
    trial.version = policy.version


def pinning(trial: Trial) -> None:
    """Tries R3.5."""
    player = trial.declared()
    newest, content = _policy(player.subscribe())

    def pinned(version: int, sha256: bytes) -> tuple[PolicyDescription, bytes]:
        request = policy_pb2.GetPolicyRequest(
            session_id=player.session_id,
            behavior=player.behavior,
            generation=player.generation,
            version=version,
            sha256=sha256,
        )
        return _policy(player.policies("GetPolicy", request))

    try:
        found, same = pinned(newest.version, newest.sha256)
    except WireError as error:
        if error.reason != "VERSION_EVICTED":
            raise
        raise NotTried(f"version {newest.version} is not kept any more") from None
    expect((found.version, same) == (newest.version, content), f"version {found.version} with other bytes came")
    expect_refusal("VERSION_EVICTED", lambda: pinned(_NO_VERSION, b""))


def erring(trial: Trial) -> None:
    """Tries R8.1: looks at all errors of the rules before."""
    if not trial.errors:
        raise NotTried("nothing was refused")
    for error in trial.errors:
        expect(error.reason, f"{error.code.name} ({error.message}) has no ErrorInfo of the domain rollcast")
        kind = BY_REASON.get(error.reason)
        expect(kind is not None, f"the reason {error.reason} is none of the contract")
        allowed = {kind.default_code} if kind is not None else set()
        expect(error.code in allowed, f"{error.reason} has the code {error.code.name}")


RULES: Final = (
    Rule("R1.1", "an opening gives a session, and twice is harmless", opening),
    Rule("R1.2", "declaring again is harmless, and another spec is refused", declaring),
    Rule("R3.1", "a subscription begins with a whole policy", subscribing),
    Rule("R1.3", "a second upload supersedes the first", streaming),
    Rule("R1.4", "a renewal gives a lease", renewing),
    Rule("R1.5", "a return adds one to the epoch, and fences the older one and other processes", resuming),
    Rule("R1.6", "a closed session is gone", closing),
    Rule("R1.7", "an unknown session is answered with a new one", returning),
    Rule("R1.9", "a return says what was received", settling),
    Rule("R2.1", "an upload begins with open and opened", ordering),
    Rule("R2.2", "a duplicate is acked again, and a gap ends the stream", numbering),
    Rule("R2.3", "acks are cumulative", acking),
    Rule("R2.4", "credit comes, and never falls", crediting),
    Rule("R2.18", "a fault of data is refused in an ack, one of form ends the stream", faulting),
    Rule("R3.5", "a pinned policy is the same, and one that is not held is refused", pinning),
    Rule("R8.1", "errors have a reason of the contract and its code", erring),
)
"""In the order in which they are tried: the version that a subscription shows is that of the rows."""
