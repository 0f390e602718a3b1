"""Tests the batch of worlds with real servers: what they are asked, and what becomes of their answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from dm_env_rpc.v1.dm_env_rpc_pb2 import DataType, EnvironmentResponse, TensorSpec
from rollcast.auth import Role
from rollcast.enums import SegmentEnd
from rollcast.v1 import policy_pb2

from actor_client.dm_env_rpc import batch as batches
from actor_client.dm_env_rpc.app import DmEnvRpcAdapter
from actor_client.dm_env_rpc.batch import WorldBatch
from actor_client.envs.errors import EnvironmentFailed, UnknownEnvironment, UnsupportedSpace
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.dm_env_rpc import DmEnvRpcSettings
from actor_client.settings.loading import load
from learner.shared.settings.addresses import SERVER_CERT, SERVER_KEY
from tests.actor_client.dm_env_rpc.worlds import Catch, Everything, Worlds, serving, tensor_spec
from tests.learner.service.identity.certificates import Folder
from tests.ports import reserve_ports

ALL_OF_IT = {"reward": "score", "ignore": ["words", "title", "trail"]}


def made(address: str, **flags: Any) -> WorldBatch:
    """Connects to a server."""
    return WorldBatch(load(DmEnvRpcSettings, {"server": address, **flags}))


@contextmanager
def played(worlds: Worlds, **flags: Any) -> Iterator[WorldBatch]:
    """Connects to a server during a block."""
    with serving(worlds) as address:
        batch = made(address, **flags)
        try:
            yield batch
        finally:
            batch.close()


def test_sequences_follow_one_another() -> None:
    """Observations, rewards and ends are those of the game; the step after an end begins the next sequence, and counts as ignored."""
    random = np.random.default_rng(0)
    with played(Worlds(), num_envs="3", seed_setting="seed") as batch:
        games = [Catch(seed, {}) for seed in (11, 12, 13)]
        for game in games:
            game.begin()
        assert batch.spec.action.discrete_branches == (3,)
        assert batch.spec.action.first_choices == (-1,)
        assert [spec.name for spec in batch.spec.observations] == ["field"]
        (fields,) = batch.reset([11, 12, 13])
        is_over = np.zeros(3, np.bool_)
        for _ in range(14):
            for field, game in zip(fields, games, strict=True):
                assert field.tolist() == game.seen()["field"].ravel().tolist()
            choices = random.integers(3, size=(3, 1)).astype(np.int32)
            result = batch.step(None, choices)
            assert is_over.tolist() == (np.zeros(3) if result.ignored is None else result.ignored).tolist()
            for index, game in enumerate(games):
                if is_over[index]:
                    game.begin()
                    assert result.rewards[index] == 0
                else:
                    game.act({"paddle": int(choices[index, 0]) - 1})
                    assert result.rewards[index] == game.seen()["reward"]
            is_over = np.array([game.seen()["discount"] == 0 for game in games])
            assert list(result.ended) == np.flatnonzero(is_over).tolist()
            assert set(result.ends.tolist()) <= {SegmentEnd.TERMINATED}
            (fields,) = result.observations
            if result.final_observations is not None:
                assert result.final_observations[0].tolist() == fields[result.ended].tolist()
        (fields,) = batch.reset([21, 22, 23])
        for field, seed in zip(fields, (21, 22, 23), strict=True):
            game = Catch(seed, {})
            game.begin()
            assert field.tolist() == game.seen()["field"].ravel().tolist()


def test_tensors_of_every_kind_pass() -> None:
    """Fractions become axes, whole numbers and truth values branches, by their names; the server gets its types and bounds."""
    with played(Worlds(Everything), num_envs="2", **ALL_OF_IT) as batch:
        action = batch.spec.action
        assert action.descriptions == ("aim.0", "aim.1", "thrust", "gear", *(f"keys.{n}" for n in range(4)), "lamp")
        assert (action.continuous_low, action.continuous_high) == ((-1, 0, -np.inf), (1, 10, np.inf))
        assert (action.discrete_branches, action.first_choices) == ((3, 2, 2, 3, 4, 2), (3, 0, 0, 0, 0, 0))
        bounds = {spec.name: spec.bounds for spec in batch.spec.observations if spec.bounds}
        assert bounds == {"camera": (0, 255), "lamp": (0, 1)}
        batch.reset([1, 2])
        continuous = np.array([[0.5, 20, 0.25], [-0.5, 2, np.nan]], np.float32)
        discrete = np.array([[2, 0, 1, 2, 3, 1], [0, 1, 0, 0, 0, 0]], np.int32)
        seen = [batch.step(continuous, discrete) for _ in range(3)]
        shown = dict(zip([spec.name for spec in batch.spec.observations], seen[0].observations, strict=True))
        assert shown["aim"].tolist() == [[0.5, 10], [-0.5, 2]]
        assert shown["gear"].tolist() == [[5], [3]]
        assert shown["keys"].tolist() == [[0, 1, 2, 3], [1, 0, 0, 0]]
        assert shown["lamp"].tolist() == [[1], [0]]
        assert shown["thrust"].tolist() == [[0.25], [0]]
        assert shown["camera"].tolist() == np.ones((2, 6, 8, 3)).tolist()
        assert shown["camera"].dtype == np.uint8
        assert [each.rewards.tolist() for each in seen] == [[1, 1], [2, 2], [3, 3]]
        assert (list(seen[2].ended), seen[2].ends.tolist()) == ([0, 1], [SegmentEnd.TRUNCATED] * 2)


def test_observations_are_chosen_by_name() -> None:
    """Those that are named are requested, the discount too, and no others."""
    worlds = Worlds()
    with played(worlds, observe=["discount"]) as batch:
        assert [spec.name for spec in batch.spec.observations] == ["discount"]
        assert batch.reset([1])[0].tolist() == [[1]]
        assert len(worlds.requests[0][-1].step.requested_observations) == 2


def test_settings_and_parameters_reach_the_server() -> None:
    """Worlds are created and joined with settings; each sequence gets the parameters of the run by a reset."""
    worlds = Worlds()
    with played(worlds, num_envs="2", create=["size=4"], join=['player="7"'], seed_setting="seed") as batch:
        assert worlds.created == [{"size": 4}] * 2
        assert worlds.joined == [{"player": "7"}] * 2
        assert batch.reset([5, 6])[0].shape == (2, 16)
        assert sorted(each["seed"] for each in worlds.resets) == [5, 6]
        batch.assign(
            policy_pb2.Assignment(
                settings_revision=1, environment_parameters={"speed": policy_pb2.Sampler(constant=3.0)}
            )
        )
        for _ in range(3):
            batch.step(None, np.zeros((2, 1), np.int32))
        assert len(worlds.resets) == 2
        batch.step(None, np.zeros((2, 1), np.int32))
        assert worlds.resets[2:] == [{"speed": 3}] * 2
        assert list(batch.step(None, np.zeros((2, 1), np.int32)).ended) == [0, 1]


def test_a_server_needs_no_reset_until_one_is_asked_for() -> None:
    """The first sequences begin by a step; a reset in the middle of one that the server refuses is a failure of the world."""

    def refuse(kind: str, answer: Any) -> Any:
        if kind == "reset":
            answer.error.message = "not\nhere"
        return answer

    with played(Worlds(twist=refuse)) as batch:
        batch.reset([1])
        for _ in range(9):
            batch.step(None, np.zeros((1, 1), np.int32))
        with pytest.raises(EnvironmentFailed, match="environment 0 failed: the server refused reset: OK: not here"):
            batch.reset([2])


def test_agents_share_a_world_that_exists() -> None:
    """Those that wait for one another do not block; at the end the world is left, and not destroyed."""
    meeting = threading.Barrier(3, timeout=60)

    def meet(kind: str, answer: Any) -> Any:
        if kind == "step":
            meeting.wait()
        return answer

    worlds = Worlds(twist=meet)
    name = worlds.create({})
    with played(worlds, num_envs="3", world=name) as batch:
        batch.reset([1, 2, 3])
        batch.step(None, np.ones((3, 1), np.int32))
    assert worlds.names == [name]
    kinds = [[request.WhichOneof("payload") for request in requests] for requests in worlds.requests]
    assert kinds == [["join_world", "step", "step", "leave_world"]] * 3


def test_created_worlds_are_destroyed_at_the_end() -> None:
    """A batch leaves nothing on the server, also if it could not be made, and closes twice."""
    worlds = Worlds(Everything)
    with serving(worlds) as address:
        with pytest.raises(UnsupportedSpace, match="observation 'title' has the type STRING"):
            made(address, num_envs="2", reward="score", ignore=["words", "trail"])
        assert worlds.names == []
        batch = made(address, num_envs="2", **ALL_OF_IT)
        assert len(worlds.names) == 2
        batch.close()
        batch.close()
        assert worlds.names == []


def changed(kind: str, change: Callable[[Any], None]) -> Worlds:
    """Returns a server of Catch that changes its answers of one kind; of steps all but the first of each stream."""
    seen: set[int] = set()

    def twist(given: str, answer: Any) -> Any:
        who = threading.get_ident()
        if given == kind and (kind != "step" or who in seen):
            change(getattr(answer, kind))
        if given == "step":
            seen.add(who)
        return answer

    return Worlds(twist=twist)


def uid_of(step: Any, *, is_scalar: bool = False) -> int:
    """Returns the UID of the field, or of the reward, which is a scalar, in the answer to a step."""
    return next(int(uid) for uid, tensor in step.observations.items() if bool(tensor.shape) is not is_scalar)


def reshaped(step: Any) -> None:
    """Gives the field another shape."""
    step.observations[uid_of(step)].shape[:] = [25]


def broadcast(step: Any) -> None:
    """Claims a huge shape for a single number."""
    tensor = step.observations[uid_of(step)]
    tensor.shape[:] = [2**31 - 1] * 8
    tensor.floats.array[:] = [0.0]


def shortened(step: Any) -> None:
    """Leaves out a number."""
    step.observations[uid_of(step)].floats.array.pop()


def retyped(step: Any) -> None:
    """Sends whole numbers in place of fractions."""
    step.observations[uid_of(step)].int32s.array[:] = [0] * 25


def texted(step: Any) -> None:
    """Sends a text as the reward."""
    step.observations[uid_of(step, is_scalar=True)].strings.array[:] = ["\x1b[2J"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (reshaped, r"'field' has 25 numbers of the shape \[25\]; its spec has the shape \[5, 5\]"),
        (broadcast, r"'field' has 1 numbers of the shape \[2147483647"),
        (shortened, r"'field' has 24 numbers"),
        (retyped, "'field' has int32s; its spec has floats"),
        (texted, "'reward' has strings; its spec has floats"),
        (lambda step: step.observations.clear(), "the step has no field, reward"),
        (lambda step: step.observations[uid_of(step)].ClearField("floats"), "'field' has no numbers"),
        (lambda step: setattr(step, "state", 0), "the state INVALID_ENVIRONMENT_STATE to a running sequence"),
        (lambda step: setattr(step, "state", 77), "the state 77 to a running sequence"),
    ],
)
def test_answers_that_break_the_declaration_are_failures(change: Callable[[Any], None], text: str) -> None:
    """The world is named, what it sent and what it declared, in one printable line."""
    with played(changed("step", change), num_envs="2") as batch:
        batch.reset([1, 2])
        with pytest.raises(EnvironmentFailed, match=f"environment 0 failed: .*{text}") as failure:
            batch.step(None, np.zeros((2, 1), np.int32))
        assert failure.value.message.isprintable()


def test_numbers_that_are_none_are_passed_on() -> None:
    """NaN is for the rollout, as with every environment; a number of one value fills its shape."""

    def spoil(step: Any) -> None:
        step.observations[uid_of(step)].floats.array[:] = [float("nan")]

    with played(changed("step", spoil)) as batch:
        batch.reset([1])
        (field,) = batch.step(None, np.zeros((1, 1), np.int32)).observations
        assert np.isnan(field).all()
        assert field.shape == (1, 25)


def only(**specs: Any) -> Callable[[Any], None]:
    """Returns a change of the declared tensors: new ones by kind, with the reward."""

    def change(answer: Any) -> None:
        for kind, found in specs.items():
            field = getattr(answer.specs, kind)
            field.clear()
            for uid, spec in enumerate(found):
                field[uid].CopyFrom(spec)

    return change


REWARD = tensor_spec("reward", DataType.FLOAT)
HALF = TensorSpec(name="go", dtype=DataType.INT32)
HALF.min.int32s.array[:] = [0]
REVERSED = TensorSpec(name="go", dtype=DataType.FLOAT)
REVERSED.min.floats.array[:], REVERSED.max.floats.array[:] = [1.0], [0.0]
NO_NUMBER = TensorSpec(name="go", dtype=DataType.FLOAT)
NO_NUMBER.min.floats.array[:] = [float("nan")]
OTHER_TYPE = TensorSpec(name="go", dtype=DataType.FLOAT)
OTHER_TYPE.min.int32s.array[:] = [1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (only(observations=[]), "the server has no reward for --reward; its observations are none"),
        (only(observations=[REWARD]), "0 observations; 1 to 64 are allowed"),
        (only(actions=[]), "neither continuous nor discrete actions"),
        (only(actions=[tensor_spec("go", DataType.INT32)]), "action 'go' holds whole numbers without both bounds"),
        (only(actions=[HALF]), "action 'go' holds whole numbers without both bounds"),
        (only(actions=[tensor_spec("go", DataType.INT64, low=0, high=2**62)]), "with more than 65536 choices"),
        (only(actions=[REVERSED]), r"action 'go' has min \[1.0\] and max \[0.0\], which are no interval"),
        (only(actions=[NO_NUMBER]), "which are no interval"),
        (only(actions=[OTHER_TYPE]), "action 'go': min has 1 values of int32s; it needs 1 or 1 of floats"),
        (only(actions=[tensor_spec("go", DataType.PROTO)]), "action 'go' has the type PROTO"),
        (only(actions=[TensorSpec(name="go", dtype=99)]), "has the type 99, which dm_env_rpc 1.1 does not know"),
        (only(actions=[tensor_spec("go", DataType.FLOAT, (9999,))]), "at most 4096 numbers"),
        (
            only(observations=[REWARD, tensor_spec("huge", DataType.FLOAT, (2**31 - 1,) * 4)]),
            "observation 'huge' has the shape",
        ),
        (only(observations=[REWARD, tensor_spec("x", DataType.FLOAT, (3, -1))]), "axes of fixed length"),
        (only(observations=[REWARD, tensor_spec("x", DataType.FLOAT, (0,))]), "axes of fixed length"),
        (only(observations=[tensor_spec("reward", DataType.FLOAT, (2,))]), "the reward 'reward' has the shape"),
        (only(observations=[REWARD, REWARD]), "two observations are named 'reward'"),
        (
            only(observations=[REWARD, *(tensor_spec(f"o{n}", DataType.DOUBLE, (2**22,)) for n in range(65))]),
            "65 observations",
        ),
    ],
)
def test_declarations_that_cannot_be_sent_are_refused(change: Callable[[Any], None], text: str) -> None:
    """The tensor is named with its type or shape, in one line, before there is a learner."""
    worlds = changed("join_world", change)
    with serving(worlds) as address:
        with pytest.raises(UnsupportedSpace, match=text) as refusal:
            made(address)
        assert refusal.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT
        assert refusal.value.message.isprintable()
        assert worlds.names == []


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"observe": ["feild"]}, "the server has no feild for --observe; its observations are discount, field, reward"),
        ({"ignore": ["x"]}, "the server has no x for --ignore; .*: discount, field, paddle, reward|paddle"),
        ({"reward": "score"}, "the server has no score for --reward"),
    ],
)
def test_a_wrong_name_is_shown_with_those_that_exist(flags: dict[str, Any], text: str) -> None:
    """A typing error is no world without an observation."""
    with serving(Worlds()) as address, pytest.raises(UnsupportedSpace, match=text):
        made(address, **flags)


def test_worlds_that_differ_are_refused() -> None:
    """The second world, and one after a reset, must declare what the first did; UIDs may differ."""
    joined = iter(range(9))

    def change(answer: Any) -> None:
        if next(joined):
            only(actions=[tensor_spec("paddle", DataType.INT8, low=0, high=1)])(answer)

    said = "its action 'paddle' is declared otherwise than before"
    with serving(changed("join_world", change)) as address, pytest.raises(UnknownEnvironment, match=said):
        made(address, num_envs="2")
    with played(changed("reset", only(observations=[REWARD]))) as batch:
        batch.reset([1])
        with pytest.raises(EnvironmentFailed, match="its observation 'field' is declared otherwise"):
            batch.reset([1])


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"create": ["colour=red"]}, "the server refused create_world: INVALID_ARGUMENT: unknown settings: "),
        ({"join": ["x=1"]}, "the server refused join_world"),
        ({"world": "none"}, "there is no world 'none'"),
    ],
)
def test_a_refusal_of_the_server_is_one_line(flags: dict[str, Any], text: str) -> None:
    """What the server says is shown with its address."""
    with serving(Worlds()) as address:
        with pytest.raises(UnknownEnvironment, match=f"{address}: .*{text}") as refusal:
            made(address, **flags)
        assert refusal.value.message.isprintable()


def test_a_server_that_ends_is_a_failure() -> None:
    """Its stream, or all of it; the batch can still be closed."""

    def end(kind: str, answer: Any) -> Any:
        return None if kind == "reset" else answer

    with played(Worlds(twist=end)) as batch:
        batch.reset([1])
        with pytest.raises(EnvironmentFailed, match="the server ended the stream in place of an answer to reset"):
            batch.reset([1])
    with serving(Worlds()) as address:
        batch = made(address, num_envs="2")
        batch.reset([1, 2])
    with pytest.raises(EnvironmentFailed, match="environment 0 failed: the server gave no answer to step: "):
        batch.step(None, np.zeros((2, 1), np.int32))
    batch.close()


def test_bytes_that_are_no_answer_are_a_failure() -> None:
    """They are named in a line."""
    process: Any = grpc.stream_stream_rpc_method_handler(lambda requests, _: (b"\xff\xff" for _ in requests))
    handler = grpc.method_handlers_generic_handler("dm_env_rpc.v1.Environment", {"Process": process})
    server = grpc.server(futures.ThreadPoolExecutor(1), [handler], options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(UnknownEnvironment, match="no answer to create_world: INTERNAL: Exception deserializing"):
            made(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


def test_an_answer_to_another_request_is_a_failure() -> None:
    """Answers come in the order of the requests."""

    def other(kind: str, answer: Any) -> Any:
        return EnvironmentResponse(leave_world={}) if kind == "step" else answer

    with played(Worlds(twist=other)) as batch, pytest.raises(EnvironmentFailed, match="answered step with leave_world"):
        batch.reset([1])


def test_an_answer_that_is_too_large_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the limit is not read."""
    monkeypatch.setattr(batches, "MAX_MESSAGE_BYTES", 1 << 16)

    def swell(step: Any) -> None:
        step.observations[uid_of(step)].floats.array[:] = [0.0] * 20_000

    with played(changed("step", swell)) as batch:
        batch.reset([1])
        with pytest.raises(EnvironmentFailed, match="RESOURCE_EXHAUSTED"):
            batch.step(None, np.zeros((1, 1), np.int32))


def test_a_server_that_never_lets_go_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends, even if the server does not answer."""
    monkeypatch.setattr(batches, "LEAVE_SECONDS", 1.0)
    released = threading.Event()

    def hold(kind: str, answer: Any) -> Any:
        if kind == "leave_world":
            released.wait(60)
        return answer

    with serving(Worlds(twist=hold)) as address:
        batch = made(address)
        batch.close()
        released.set()


def test_nothing_that_speaks_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port without a server, and one of another service, are named in a line."""
    monkeypatch.setattr(batches, "CONNECT_SECONDS", 1.0)
    nowhere = f"127.0.0.1:{reserve_ports()}"
    with pytest.raises(UnknownEnvironment, match=f"no server accepts connections at {nowhere} within 1 s"):
        made(nowhere)
    server = grpc.server(None, options=[("grpc.so_reuseport", 0)])  # type: ignore[arg-type]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(UnknownEnvironment, match="no answer to create_world: UNIMPLEMENTED"):
            made(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


def test_tls_and_a_token(tmp_path: Path) -> None:
    """A server behind TLS gets the token with each stream."""
    folder = Folder.make(tmp_path, lab=Role.ACTOR)
    got: list[dict[str, str]] = []

    class Guarded(Worlds):
        def Process(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:
            got.append(dict(context.invocation_metadata()))
            yield from super().Process(request_iterator, context)

    credentials = grpc.ssl_server_credentials(
        [((tmp_path / SERVER_KEY).read_bytes(), (tmp_path / SERVER_CERT).read_bytes())]
    )
    with serving(Guarded(), credentials) as address:
        batch = made(address, env_tls_ca=str(folder.ca), env_token_file=str(tmp_path / "lab.token"))
        batch.reset([1])
        batch.close()
        files = {"env_tls_ca": str(folder.ca), "env_token_file": str(tmp_path / "lab.token")}
        adapter = DmEnvRpcAdapter(load(DmEnvRpcSettings, {"server": address, **files}))
        (tmp_path / "lab.token").unlink()
        with pytest.raises(UnknownEnvironment, match=r"lab\.token cannot be read"):
            adapter.make()
    assert got[0]["authorization"] == f"Bearer {folder.tokens['lab']}"


def test_another_machine_needs_tls_or_consent() -> None:
    """Worlds elsewhere are not stepped in plain text by mistake."""
    with pytest.raises(ActorError, match="--env-tls-ca, or pass --insecure"):
        made("10.1.2.3:9000")
