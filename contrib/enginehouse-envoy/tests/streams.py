"""A processing stream, as Envoy opens one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
from enginehouse_envoy import envoy_pb2 as pb
from enginehouse_envoy.ext_proc import SERVICE
from running import BODY

MODE = pb.ProcessingMode
DESTINATION = "x-gateway-destination-endpoint"
POST = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test on an event loop of its own."""
    asyncio.run(asyncio.wait_for(test(), 60))


class Stream:
    """One request. Use it as an asynchronous context manager."""

    def __init__(
        self,
        port: int,
        mode: pb.ProcessingMode.BodySendMode = MODE.FULL_DUPLEX_STREAMED,
        *,
        response_mode: pb.ProcessingMode.BodySendMode = MODE.NONE,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        address = f"127.0.0.1:{port}"
        self._channel = (
            grpc.aio.secure_channel(address, credentials, [("grpc.ssl_target_name_override", "enginehouse")])
            if credentials
            else grpc.aio.insecure_channel(address)
        )
        self._config = pb.ProtocolConfiguration(request_body_mode=mode, response_body_mode=response_mode)
        self._first = True

    async def __aenter__(self) -> Stream:
        self.call = self._channel.stream_stream(
            f"/{SERVICE}/Process",
            request_serializer=pb.ProcessingRequest.SerializeToString,
            response_deserializer=pb.ProcessingResponse.FromString,
        )()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.call.cancel()
        await self._channel.close()

    async def send(self, metadata: dict[str, Any] | None = None, **parts: Any) -> None:
        """Send one message. ``metadata``: by namespace."""
        message = pb.ProcessingRequest(**parts)
        if self._first:
            self._first = False
            message.protocol_config.CopyFrom(self._config)
        for namespace, fields in (metadata or {}).items():
            message.metadata_context.filter_metadata[namespace].update(fields)
        await self.call.write(message)

    async def head(
        self, headers: dict[str, str] = POST, *, ends: bool = False, metadata: dict[str, Any] | None = None
    ) -> None:
        await self.send(metadata, request_headers=http_headers(headers, ends))

    async def body(self, body: bytes = b"", *, ends: bool = True, metadata: dict[str, Any] | None = None) -> None:
        await self.send(metadata, request_body=pb.HttpBody(body=body or json.dumps(BODY).encode(), end_of_stream=ends))

    async def read(self) -> pb.ProcessingResponse:
        message = await self.call.read()
        assert isinstance(message, pb.ProcessingResponse), "the stream has ended"
        return message

    async def has_ended(self) -> bool:
        return bool(await self.call.read() is grpc.aio.EOF)


def http_headers(headers: dict[str, str], ends: bool = False) -> pb.HttpHeaders:
    message = pb.HttpHeaders(end_of_stream=ends)
    for name, value in headers.items():
        message.headers.headers.add(key=name, raw_value=value.encode())
    return message


def set_by(response: pb.CommonResponse) -> dict[str, str]:
    return {each.header.key: each.header.raw_value.decode() for each in response.header_mutation.set_headers}


def destination(answer: pb.ProcessingResponse) -> str:
    """Where the request goes, which the header and the metadata tell alike."""
    kind = answer.WhichOneof("response")
    assert kind in ("request_headers", "request_body"), answer
    response = getattr(answer, str(kind)).response
    told: str = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields[DESTINATION].string_value
    assert set_by(response)[DESTINATION] == told
    assert response.clear_route_cache
    return told


def subset(*addresses: str) -> dict[str, Any]:
    return {"envoy.lb.subset_hint": {"x-gateway-destination-endpoint-subset": list(addresses)}}
