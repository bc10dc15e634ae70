"""External processing over gRPC: the endpoint picker protocol of the Gateway API Inference Extension."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import grpc

from enginehouse import Headers, RequestError
from enginehouse.picking import Pick, Picked, Picker
from enginehouse_envoy import envoy_pb2 as pb
from enginehouse_envoy.access_log import HEADER, OpenPicks
from enginehouse_envoy.addresses import Addresses, split
from enginehouse_envoy.messages import (
    destined,
    error_refusal,
    inference_path,
    pieces,
    read_headers,
    read_lines,
    refusal,
    returned,
    sender_in,
    served_in,
    subset_in,
)

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
_MODE = pb.ProcessingMode
_LINGER_S: Final = 1.0
_CANNOT_READ = "Set request_body_mode of Envoy's ext_proc filter to BUFFERED or FULL_DUPLEX_STREAMED, not to {}"


class _Ended(Exception):
    """The stream has ended: Envoy needs no further answer."""


@dataclass(frozen=True)
class PickerService:
    """Serves one stream for each of Envoy's requests.

    ``watches``: it stays in the stream until the answer has ended. ``fallbacks``: how many further engines it names.
    ``priorities``: of objectives (``sender_in``).
    """

    picker: Picker
    picks: OpenPicks
    addresses: Addresses
    _: KW_ONLY
    watches: bool
    fallbacks: int
    priorities: Mapping[str, int]

    async def process(self, messages: Any, context: Any) -> None:
        """Serve one stream."""
        stream = _Stream(self, context)
        try:
            await stream.serve()
        except _Ended:
            pass
        finally:
            stream.close()

    def handler(self) -> grpc.GenericRpcHandler:
        """For a gRPC server."""
        method = grpc.stream_stream_rpc_method_handler(
            self.process,
            request_deserializer=pb.ProcessingRequest.FromString,
            response_serializer=pb.ProcessingResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Process": method})


class _Decision:
    """Waits for the gateway's decision: a ``PickClient``."""

    def __init__(self) -> None:
        self.made: asyncio.Future[Picked | pb.ProcessingResponse] = asyncio.get_running_loop().create_future()

    def picked(self, choice: Picked) -> None:
        if not self.made.done():
            self.made.set_result(choice)

    def refused(self, status: int, lines: bytes, body: bytes) -> None:
        if not self.made.done():
            self.made.set_result(refusal(status, lines, body))


class _Stream:
    """One request."""

    def __init__(self, service: PickerService, context: Any) -> None:
        self._service = service
        self._context = context
        self._pick: Pick | None = None
        self._among: Collection[str] | None = None
        self._mode = pb.ProtocolConfiguration()
        self._status = 0

    async def serve(self) -> None:
        """Decide, then watch the answer if that is wanted."""
        first = await self._read()
        if first.WhichOneof("request") != "request_headers":
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be request_headers")
        self._mode = first.protocol_config
        self._hear_subset(first)
        headers, pseudo = read_headers(first.request_headers)
        path = inference_path(pseudo.get(":path", "/").partition("?")[0])
        mode = self._mode.request_body_mode
        if first.request_headers.end_of_stream or mode == _MODE.NONE:
            await self._choose_any(headers)
        elif mode == _MODE.BUFFERED:
            await self._decide_buffered(headers, path)
        elif mode == _MODE.FULL_DUPLEX_STREAMED:
            await self._decide_streamed(headers, path)
        else:
            name = _MODE.BodySendMode.Name(mode)
            await self._refuse_with(RequestError(_CANNOT_READ.format(name)))
        if self._service.watches:
            await self._watch()
        await self._linger()

    def close(self) -> None:
        """End what is still open: the client has left."""
        if self._pick is not None:
            self._pick.client_left()

    # --- the request

    async def _decide_buffered(self, headers: Headers, path: str) -> None:
        """The body comes whole, after an answer to the headers."""
        decision = self._open(headers, path)
        if decision.made.done():
            await self._refuse(decision)
        await self._write(pb.ProcessingResponse(request_headers=pb.HeadersResponse()))
        message = await self._read()
        self._hear_subset(message)
        body = message.request_body.body
        choice, text = await self._decided(decision, headers, path, body)
        response, metadata = self._destined(choice, text, headers)
        if choice.body is not body:
            response.body_mutation.body = choice.body
        answer = pb.ProcessingResponse(request_body=pb.BodyResponse(response=response), dynamic_metadata=metadata)
        await self._write(answer)

    async def _decide_streamed(self, headers: Headers, path: str) -> None:
        """The body comes in pieces, and goes back in pieces, after the answer to the headers."""
        decision = self._open(headers, path)
        if decision.made.done():
            await self._refuse(decision)
        received, trailers = bytearray(), False
        while True:
            message = await self._read()
            self._hear_subset(message)
            if message.WhichOneof("request") == "request_trailers":
                trailers = True
                break
            received += message.request_body.body
            if len(received) > self._service.picker.max_body:
                await self._refuse_with(self._service.picker.too_large())
            if message.request_body.end_of_stream:
                break
        body = bytes(received)
        choice, text = await self._decided(decision, headers, path, body)
        response, metadata = self._destined(choice, text, headers)
        answer = pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=response), dynamic_metadata=metadata)
        await self._write(answer)
        for piece in pieces(choice.body):
            if trailers:
                piece.request_body.response.body_mutation.streamed_response.end_of_stream = False
            await self._write(piece)
        if trailers:
            await self._write(pb.ProcessingResponse(request_trailers=pb.TrailersResponse()))

    async def _choose_any(self, headers: Headers) -> None:
        """A request without a body names no model: any engine will do."""
        service = self._service
        among = None if self._among is None else service.addresses.names(self._among)
        try:
            at = service.picker.pick_any(headers, among)
            text = service.addresses.text([at]) or await service.addresses.looked_up([at])
        except RequestError as error:
            await self._refuse_with(error)
        response, metadata = destined(text, (), ())
        answer = pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=response), dynamic_metadata=metadata)
        await self._write(answer)

    def _open(self, headers: Headers, path: str) -> _Decision:
        """Begin the request, so that it may be refused before its body comes."""
        decision, service = _Decision(), self._service
        address, on_behalf = sender_in(headers, service.priorities)
        self._pick = service.picker.pick(decision, path, headers, service.fallbacks, address, on_behalf)
        return decision

    async def _decided(self, decision: _Decision, headers: Headers, path: str, body: bytes) -> tuple[Picked, str]:
        """The decision and the addresses. Raises ``_Ended`` after a refusal."""
        assert self._pick is not None
        if self._among is not None:
            self._pick.limit(self._service.addresses.names(self._among))
        self._pick.begin(body)
        made = await decision.made
        if not isinstance(made, Picked):
            await self._refuse(decision)
            raise _Ended
        try:
            addresses = self._service.addresses
            return made, addresses.text(made.addresses) or await addresses.looked_up(made.addresses)
        except RequestError as error:
            self._pick.fail(error)
            await self._refuse_with(error)
            raise _Ended from None

    def _destined(self, choice: Picked, text: str, headers: Headers) -> Any:
        """The changes of a request for which there is a decision."""
        assert self._pick is not None
        lines = list(read_lines(choice.lines))
        if not self._service.watches:  # Envoy may reset the stream as soon as it has what it needs
            lines.append((HEADER, self._service.picks.keep(self._pick).encode()))
            self._pick = None
        if any(header == b"content-length" for header, _ in headers):
            lines.append(("content-length", b"%d" % len(choice.body)))
        replaced = {header.encode() for header, _ in lines}
        return destined(text, lines, sorted({header for header, _ in headers} & choice.withheld - replaced))

    # --- the answer

    async def _watch(self) -> None:
        """Count the answer, and let all of it pass as it is."""
        while True:
            message = await self._read()
            kind = message.WhichOneof("request")
            if kind == "response_headers":
                self._answered(message)
                await self._write(pb.ProcessingResponse(response_headers=pb.HeadersResponse()))
            elif kind == "response_body":
                await self._pass_on(message.response_body)
            elif kind == "response_trailers":
                self._end()
                await self._write(pb.ProcessingResponse(response_trailers=pb.TrailersResponse()))

    def _answered(self, message: pb.ProcessingRequest) -> None:
        headers, pseudo = read_headers(message.response_headers)
        self._status = int(pseudo.get(":status", "200"))
        if self._pick is None:
            return
        if served := served_in(message):
            host, port = split(served)
            self._pick.served_by(host, int(port or 0))
        stream = any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)
        self._pick.answered(self._status, stream=stream)
        if message.response_headers.end_of_stream:
            self._end()

    async def _pass_on(self, body: pb.HttpBody) -> None:
        if self._pick is not None:
            self._pick.piece(body.body)
        if body.end_of_stream:  # before the last write, after which Envoy may reset the stream
            self._end()
        if self._mode.response_body_mode == _MODE.FULL_DUPLEX_STREAMED:
            await self._write(returned(body))
        else:
            await self._write(pb.ProcessingResponse(response_body=pb.BodyResponse()))

    def _end(self) -> None:
        if self._pick is not None:
            self._pick.ended(self._status)

    # --- the stream

    async def _read(self) -> pb.ProcessingRequest:
        """The next message. Raises ``_Ended`` when there is none: without a body to watch, the answer is whole then."""
        message = await self._context.read()
        if isinstance(message, pb.ProcessingRequest):
            return message
        if self._status and self._mode.response_body_mode == _MODE.NONE:
            self._end()
        raise _Ended

    async def _write(self, message: pb.ProcessingResponse) -> None:
        await self._context.write(message)

    async def _refuse(self, decision: _Decision) -> None:
        """Send the refusal. Raises ``_Ended``."""
        made = decision.made.result()
        assert isinstance(made, pb.ProcessingResponse)
        await self._end_with(made)

    async def _refuse_with(self, error: RequestError) -> None:
        """Send an error. Raises ``_Ended``."""
        await self._end_with(error_refusal(error))

    async def _end_with(self, message: pb.ProcessingResponse) -> None:
        """Send the last message. Raises ``_Ended``."""
        await self._write(message)
        await self._linger()

    async def _linger(self) -> None:
        """Let Envoy end the stream, if it does so soon: our end may cross its own messages. Raises ``_Ended``."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._context.read(), _LINGER_S)
        raise _Ended

    def _hear_subset(self, message: pb.ProcessingRequest) -> None:
        """Note a subset hint, which comes with the headers or with the body."""
        hint = subset_in(message)
        if hint is not None:
            self._among = hint
