"""Tests the server: addresses, health, reflection, drain and stop."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from rollcast.v1 import session_pb2

from learner.shared.exits import ExitCode, UserError
from tests.learner.service.calls.harness import SECONDS, Actor, Learner, eventually, failure, running
from tests.learner.service.calls.samples import NAME, make_chunk, make_options


async def health_of(learner: Learner, service: str = "") -> int:
    """Returns the status that a health check answers."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{learner.server.port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(response.status)


async def test_a_port_in_use_is_an_error_for_the_user() -> None:
    """A taken port is PORT_IN_USE with the next step, and the first learner continues."""
    async with running() as first:
        address = f"127.0.0.1:{first.server.port}"
        second = Learner(make_options(), address=address)
        with pytest.raises(UserError) as caught:
            await second.server.start()
        await second.server.stop()
        assert caught.value.exit_code is ExitCode.PORT_IN_USE
        assert address in caught.value.message
        assert "--address (rollcast.address in the run file)" in caught.value.message
        assert "127.0.0.1:0" in caught.value.message
        assert await health_of(first) == health_pb2.HealthCheckResponse.SERVING


async def test_health_has_a_name_for_each_service() -> None:
    """The process and each service are SERVING, and an unknown name is NOT_FOUND."""
    async with running() as learner:
        kind = health_pb2.HealthCheckResponse
        for service in ("", "rollcast.v1.SessionService", "rollcast.v1.TrajectoryService", "rollcast.v1.PolicyService"):
            assert await health_of(learner, service) == kind.SERVING
        assert (await failure(health_of(learner, "nothing"))).code is grpc.StatusCode.NOT_FOUND


async def services_of(learner: Learner) -> set[str]:
    """Returns what reflection lists."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{learner.server.port}") as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[no-untyped-call]
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for response in stub.ServerReflectionInfo(iter([request])):
            return {service.name for service in response.list_services_response.service}
    return set()


async def test_reflection_is_on_only_if_asked_for() -> None:
    """Reflection exists only with rollcast.reflection."""
    async with running(make_options(reflection=True)) as learner:
        names = await services_of(learner)
        assert "rollcast.v1.TrajectoryService" in names
    async with running() as learner:
        assert (await failure(services_of(learner))).code is grpc.StatusCode.UNIMPLEMENTED


async def test_garbage_is_a_bad_request() -> None:
    """Bytes that are no message are refused with a reason."""
    async with running() as learner, Actor(learner.server.port) as actor:
        call: Any = actor.channel.unary_unary("/rollcast.v1.SessionService/OpenSession")
        error = await failure(call(b"\xff\xff\xff"))
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")


async def test_a_final_drain_waits_for_the_actors() -> None:
    """A final drain says why, and waits until actors have sent their chunks and closed."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        draining = asyncio.create_task(learner.server.drain(final=True, seconds=20, reason="max_steps"))
        farewell = await upload.until("drain")
        assert (farewell.final, farewell.message) == (True, "the run has ended: max_steps")
        assert await health_of(learner) == health_pb2.HealthCheckResponse.NOT_SERVING
        async with Actor(learner.server.port) as late:
            error = await failure(late.open())
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert error.retry_after_seconds is not None
        ack = await upload.deliver(make_chunk(4))
        assert not ack.credit
        await upload.finish()
        await actor.close(books=[session_pb2.ActorBooks(produced_steps=4, acked_steps=4)])
        await draining
        assert learner.ledger.books(NAME).queued == 4
        assert not learner.sessions.live()


@pytest.mark.parametrize("has_failed", [False, True])
async def test_a_drain_that_is_not_final_waits_for_the_streams_only(*, has_failed: bool) -> None:
    """A drain that is not final waits only for the uploads to end; a learner that failed does not promise to be back."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        draining = asyncio.create_task(learner.server.drain(final=False, seconds=SECONDS, has_failed=has_failed))
        farewell = await upload.until("drain")
        assert not farewell.final
        assert ("the learner failed" in farewell.message) is has_failed
        assert farewell.retry_after_ms > 0
        upload.call.cancel()
        await draining
        assert len(learner.sessions.live()) == 1


async def test_a_drain_does_not_wait_for_ever() -> None:
    """Actors that ignore a drain are closed with DRAINING after the timeout."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        call = actor.subscribe()
        await eventually(lambda: bool(learner.server._router._subscriptions))
        await learner.server.drain(final=True, seconds=0.1)
        assert (await upload.failure()).reason == "DRAINING"
        assert (await failure(call.read())).reason == "DRAINING"
