"""Tests the checks of a learner: ours keeps every rule, and each rule finds a learner that breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from rollcast.v1 import policy_pb2, session_pb2, trajectory_pb2

from actor_client.cli import main
from actor_client.conform.app import Verdict, verdicts
from actor_client.conform.rules import RULES
from actor_client.exits import ExitCode
from actor_client.settings.conform import ConformSettings
from actor_client.settings.loading import load
from tests.actor_client.real_learner import RealLearner
from tests.learner.service.calls.samples import make_policy
from tests.ports import reserve_ports

README = Path(__file__).resolve().parents[3] / "protos" / "README.md"


@pytest.fixture(scope="module")
def learner() -> Iterator[RealLearner]:
    """Runs a learner with a policy."""
    with RealLearner() as started:
        started.run(published(started))
        yield started


async def published(learner: RealLearner) -> None:
    """Publishes a policy in the learner's thread."""
    learner.publish(make_policy(3))


def tried(address: str) -> dict[str, Verdict]:
    """Returns what became of each rule."""
    return {verdict.rule.number: verdict for verdict in verdicts(load(ConformSettings, {"learner": address}))}


def test_the_learner_keeps_every_rule(learner: RealLearner, capsys: pytest.CaptureFixture[str]) -> None:
    """Each rule passes, and the command says so."""
    assert main(["conform", "--learner", learner.address]) == ExitCode.OK
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[rule.number, "pass"] for rule in RULES]
    assert last.startswith(f"{len(RULES)} rules; ")


MESSAGES: dict[str, type[Any]] = {
    "OpenSession": session_pb2.OpenSessionResponse,
    "DeclareBehavior": session_pb2.DeclareBehaviorResponse,
    "RenewSession": session_pb2.RenewSessionResponse,
    "CloseSession": session_pb2.CloseSessionResponse,
    "Upload": trajectory_pb2.UploadResponse,
    "Subscribe": policy_pb2.SubscribeResponse,
    "GetPolicy": policy_pb2.GetPolicyResponse,
}


class Bending(grpc.GenericRpcHandler):
    """Passes calls on to a learner, and bends what it answers.

    Args:
        channel: To the learner.
        bend: Changes an answer, by its method.
        bend_error: Returns an error in place of one, or an answer.
    """

    def __init__(
        self,
        channel: Any,
        bend: Callable[[str, Any], None] = lambda _, answer: None,
        bend_error: Callable[[str, Any], Any] = lambda _, error: error,
    ) -> None:
        self._channel, self._bend, self._bend_error = channel, bend, bend_error

    def service(self, handler_call_details: Any) -> Any:
        """Returns the handler of a call."""
        method = handler_call_details.method
        name = method.rpartition("/")[2]

        def bent(content: bytes) -> bytes:
            answer = MESSAGES[name].FromString(content)
            self._bend(name, answer)
            return bytes(answer.SerializeToString())

        def fail(error: Any, context: Any) -> bytes:
            found = self._bend_error(name, error)
            if not isinstance(found, grpc.RpcError):
                return bytes(found.SerializeToString())
            context.set_trailing_metadata(error.trailing_metadata() if found is error else ())
            context.abort(error.code(), error.details())
            raise AssertionError

        def one(request: bytes, context: Any) -> bytes:
            try:
                return bent(self._channel.unary_unary(method)(request))
            except grpc.RpcError as error:
                return fail(error, context)

        def many(requests: Any, context: Any) -> Iterator[bytes]:
            is_upload = name == "Upload"
            start = self._channel.stream_stream(method) if is_upload else self._channel.unary_stream(method)
            call = start(requests)
            context.add_callback(call.cancel)
            try:
                for content in call:
                    yield bent(content)
            except grpc.RpcError as error:
                fail(error, context)

        if name == "Upload":
            return grpc.stream_stream_rpc_method_handler(many)
        if name in {"Subscribe", "GetPolicy"}:
            return grpc.unary_stream_rpc_method_handler(many)
        return grpc.unary_unary_rpc_method_handler(one)


@contextmanager
def bending(learner: RealLearner, **bend: Any) -> Iterator[str]:
    """Serves a learner's answers, bent, until the block ends; yields the address."""
    with grpc.insecure_channel(learner.address) as channel:
        server = grpc.server(
            futures.ThreadPoolExecutor(8), [Bending(channel, **bend)], options=[("grpc.so_reuseport", 0)]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def put(method: str, **fields: Any) -> Callable[[str, Any], None]:
    """Returns a bend that sets fields of each answer of a method."""

    def bend(name: str, answer: Any) -> None:
        for field, value in fields.items() if name == method else ():
            setattr(answer, field, value)

    return bend


def of_kind(method: str, kind: str, change: Callable[[Any], None]) -> Callable[[str, Any], None]:
    """Returns a bend of one kind of message of a stream."""

    def bend(name: str, answer: Any) -> None:
        if name == method and answer.WhichOneof("message") == kind:
            change(getattr(answer, kind))

    return bend


def spoil(frame: Any) -> None:
    """Changes the bytes of a frame."""
    frame.data = bytes(len(frame.data))


def counting(method: str, field: str) -> Callable[[str, Any], None]:
    """Returns a bend that gives each answer another number."""
    numbers = iter(range(100, 200))
    return lambda name, answer: setattr(answer, field, next(numbers)) if name == method else None


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "R1.1": ({"bend": put("OpenSession", next_sequence=5)}, "a new session begins at 5"),
    "R1.2": ({"bend": counting("DeclareBehavior", "behavior_index")}, "declaring again gave index 101 after 100"),
    "R1.3": (
        {"bend": of_kind("Upload", "opened", lambda _: None), "bend_error": lambda name, error: plain(error)},
        "FAILED_PRECONDITION without a reason",
    ),
    "R1.4": ({"bend": put("RenewSession", lease_ms=0)}, "the lease is 0 ms"),
    "R1.5": ({"bend": put("OpenSession", epoch=1)}, "epoch 1, resumed True"),
    "R1.6": (
        {"bend_error": lambda name, error: session_pb2.RenewSessionResponse()},
        "accepted; SESSION_EXPIRED is needed",
    ),
    "R1.7": ({"bend": put("OpenSession", resumed=True)}, "that the learner does not know was resumed"),
    "R1.9": ({"bend": put("OpenSession", settled_through=0)}, "next_sequence is 2 and settled_through 0"),
    "R2.1": (
        {"bend": lambda name, answer: answer.ack.SetInParent() if name == "Upload" else None},
        "the first response is ack",
    ),
    "R2.2": ({"bend": of_kind("Upload", "opened", lambda opened: setattr(opened, "next_sequence", 9))}, "is 9"),
    "R2.3": ({"bend": of_kind("Upload", "ack", lambda ack: setattr(ack, "acked_through", 4))}, "is 4 after three"),
    "R2.4": (
        {
            "bend": lambda name, answer: (
                getattr(answer, answer.WhichOneof("message")).ClearField("credit")
                if name == "Upload" and answer.WhichOneof("message") in {"opened", "ack"}
                else None
            )
        },
        "no credit came",
    ),
    "R2.18": ({"bend": of_kind("Upload", "ack", lambda ack: ack.ClearField("rejections"))}, "not_finite is needed"),
    "R3.1": ({"bend": of_kind("Subscribe", "frame", spoil)}, "SHA-256"),
    "R3.5": ({"bend": of_kind("GetPolicy", "frame", spoil)}, "SHA-256"),
    "R8.1": ({"bend_error": lambda name, error: plain(error)}, "has no ErrorInfo of the domain rollcast"),
}
"""How a learner breaks each rule, and what is said of it."""


def plain(error: Any) -> grpc.RpcError:
    """Returns another error, which is passed on without its details."""
    return grpc.RpcError()


@pytest.mark.parametrize("number", [rule.number for rule in RULES])
def test_a_broken_rule_is_found(learner: RealLearner, number: str) -> None:
    """The rule fails, with what came and the bytes of the message before."""
    bend, said = BROKEN[number]
    needed = ("R1.6", number) if number == "R8.1" else (number,)
    with bending(learner, **bend) as address:
        settings = load(ConformSettings, {"learner": address})
        *_, verdict = verdicts(settings, [rule for rule in RULES if rule.number in needed])
    assert verdict.outcome == "fail", verdict
    assert said in verdict.why
    assert verdict.sent or number == "R8.1"


def test_rules_have_numbers_that_the_contract_has() -> None:
    """The rules of each section are numbered without a gap, and those that are tried are among them."""
    text = README.read_text(encoding="utf-8")
    found = re.findall(r"^(?:- |\d\. )?\*\*R(\d+)\.(\d+)\b", text, re.MULTILINE)
    for section in {section for section, _ in found}:
        numbers = [int(number) for each, number in found if each == section]
        assert numbers == list(range(1, len(numbers) + 1)), section
    assert {rule.number for rule in RULES} <= {f"R{section}.{number}" for section, number in found}


def test_no_learner_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that listens, another service, and a run without the behavior are named."""
    nowhere = f"127.0.0.1:{reserve_ports()}"
    assert main(["conform", "--learner", nowhere, "--connect-timeout", "1"]) == ExitCode.UNREACHABLE
    assert f"the learner at {nowhere} did not answer within 1 s" in capsys.readouterr().err
