"""The door for clients with gRPC: one stream of `rollcast.v1.ClientService.Play` is one conversation."""

import asyncio
from typing import Final

import grpc
from rollcast.addresses import join_address, split_address
from rollcast.channels import server_options
from rollcast.v1 import client_pb2

from actor_client.clients.doors import DoorSettings, cannot_listen
from actor_client.clients.gateway import Gateway
from actor_client.clients.messages import BadClientData, parsed

SERVICE: Final = "rollcast.v1.ClientService"
GRACE_SECONDS: Final = 1.0
"""Seconds for the last answers to be sent."""

Context = grpc.aio.ServicerContext[bytes, bytes]


class GrpcDoor:
    """Listens for clients with gRPC.

    Args:
        address: The address, ``host:port``; port 0 takes any free one.
        settings: What all doors have in common.
    """

    def __init__(self, address: str, settings: DoorSettings) -> None:
        self._address = address
        self._settings = settings
        self._gateway: Gateway
        self._server: grpc.aio.Server | None = None

    async def open(self, gateway: Gateway) -> str:
        """Begins to listen; see `Door`.

        Raises:
            ActorError: The address cannot be used (PORT_IN_USE).
        """
        self._gateway = gateway
        settings = self._settings
        server = grpc.aio.server(
            options=server_options(
                settings.max_message_bytes,
                max_connections=settings.max_connections,
                max_streams=settings.max_connections,
            )
        )
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._play)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Play": handler}),))
        try:
            if settings.security is None:
                port = server.add_insecure_port(self._address)
            else:
                port = server.add_secure_port(self._address, settings.security.credentials())
        except RuntimeError:
            raise cannot_listen(self._address, "--listen") from None
        await server.start()
        self._server = server
        return join_address(split_address(self._address)[0], port)

    async def close(self) -> None:
        """Stops listening."""
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)

    async def _play(self, _: object, context: Context) -> None:
        """Has one conversation."""
        conversation = self._gateway.accept("grpc", context.peer())
        task = asyncio.current_task()
        if task is not None:
            conversation.hang_up = task.cancel
        most = self._settings.max_message_bytes
        try:
            if conversation.is_over:
                await context.write(client_pb2.PlayResponse(goodbye=conversation.goodbye).SerializeToString())
                return
            while isinstance(data := await context.read(), bytes):  # otherwise the client has closed its side
                if len(data) > most:
                    fault = f"a message has {len(data)} bytes; at most {most} are allowed (--max-message-bytes)"
                    conversation.refuse(fault)
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, fault)
                try:
                    request = parsed(data)
                except BadClientData as error:
                    conversation.refuse(str(error))
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                answer = await conversation.exchange(request)
                await context.write(answer.SerializeToString())
                if answer.goodbye:
                    return
        except asyncio.CancelledError:
            if conversation.is_over:  # hung up here: gRPC sends no status by itself
                await context.abort(grpc.StatusCode.CANCELLED, conversation.goodbye)
            raise
        finally:
            conversation.leave("its stream ended")
