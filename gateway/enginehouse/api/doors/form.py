"""The door for forms: ``multipart/form-data``, such as a recording to transcribe."""

from __future__ import annotations

from functools import partial

from starlette.types import Receive, Scope, Send

from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.asgi import AsgiDoor, disconnected, headers_of, receive_piece
from enginehouse.api.doors.body_memory import BodyShare
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Caller, OpenExchange
from enginehouse.relay.upstream.upload import Upload
from enginehouse.routing.body.form import FormReader, is_form

_SMALL = 1 << 20
"""In bytes. A form up to this size is kept until it is answered, so that it can be sent again."""


class FormDoor:
    """An ASGI application for the endpoints that take forms. It takes JSON too, as some engines do."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        length = next((int(value) for name, value in headers if name == b"content-length"), None)
        if not is_form(headers):
            door = AsgiDoor(self._admission)
        elif length is not None and length <= _SMALL:
            door = AsgiDoor(self._admission, self._admission.relay.open_form)
        else:
            door = _UploadDoor(self._admission, headers, length)
        await door(scope, receive, send)


class _UploadDoor(AsgiDoor):
    """The door for one form, which passes on to the engine while it arrives, once its model has arrived.

    Until then it is kept, so clients should send ``model`` before the file. It is also kept while it waits for a place
    at the engine, as long as there is memory: only by reading can the gateway notice that the client has left.
    """

    def __init__(self, admission: Admission, headers: Headers, length: int | None) -> None:
        self._length = length
        self._reader = reader = FormReader(headers)
        self._upload = upload = Upload(chunked=length is None)
        super().__init__(admission, partial(admission.relay.open_upload, reader=reader, upload=upload, length=length))

    def _admit(self, headers: Headers) -> Caller | None:
        """Admit the form whatever its length, as most of it is not held: only ``max_body`` bounds it."""
        if self._length is not None and self._length > self._admission.max_body:
            raise self._admission.too_large()
        return super()._admit([header for header in headers if header[0] != b"content-length"])

    async def _read(self, exchange: OpenExchange, caller: Caller | None, receive: Receive) -> None:
        memory = self._admission.body_memory
        beginning, rest = BodyShare(memory), BodyShare(memory)
        try:
            if await self._begin(exchange, caller, receive, beginning):
                await self._pass_on(receive, beginning.size, rest)
            await disconnected(receive)
        except RequestError as error:
            exchange.cancel(error)
            await disconnected(receive)
        finally:
            beginning.give_back()
            rest.give_back()

    async def _begin(self, exchange: OpenExchange, caller: Caller | None, receive: Receive, share: BodyShare) -> bool:
        """Read up to the model and begin the exchange; whether there is more to read."""
        pieces: list[bytes] = []
        more = True
        while more and self._reader.model is None:
            if (received := await receive_piece(receive)) is None:
                return False
            piece, more = received
            self._read_piece(piece, share.size)
            share.take(len(piece))
            pieces.append(piece)
        exchange.begin(b"".join(pieces), caller)
        if not more:
            self._upload.end()
        return more

    async def _pass_on(self, receive: Receive, size: int, share: BodyShare) -> None:
        """Pass on the rest, as fast as the engine takes it. ``size``: of the pieces before it, in bytes."""
        memory = self._admission.body_memory
        more = True
        while more:
            if (received := await receive_piece(receive)) is None:
                return
            piece, more = received
            self._read_piece(piece, size)
            size += len(piece)
            share.take(len(piece))
            self._upload.add(piece)
            if self._upload.begun or memory.is_scarce:
                await self._upload.room()
            if not self._upload.held:
                share.give_back()
        self._upload.end()

    def _read_piece(self, piece: bytes, size: int) -> None:
        if size + len(piece) > self._admission.max_body:
            raise self._admission.too_large()
        self._reader.feed(piece)
