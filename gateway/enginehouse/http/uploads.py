"""Forms that pass on to their engine while they arrive, such as a long recording to transcribe."""

from __future__ import annotations

import asyncio
from functools import partial

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.http.admission import Admission, BodyShare
from enginehouse.http.body_stream import BodyStream
from enginehouse.http.inbound import Inbound
from enginehouse.http.relayed_paths import content_length
from enginehouse.relay.jobs.form_job import UploadJob
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter
from enginehouse.relay.upstream.upload import Upload
from enginehouse.routing.body.form import FormReader


class UploadedForm:
    """Passes one form on to its engine, once its model has arrived.

    Until then it is kept, so clients should send ``model`` before the file. It is also kept while it waits for a place
    at the engine, as long as there is memory: only by reading can the gateway notice that the client has left.
    Raises ``InvalidRequest`` for a form without a boundary.
    """

    def __init__(
        self, inbound: Inbound, stream: BodyStream, admission: Admission, tasks: set[asyncio.Task[None]]
    ) -> None:
        self._inbound = inbound
        self._stream = stream
        self._admission = admission
        self._tasks = tasks
        self._length = content_length(inbound.headers)
        self._reader = FormReader(inbound.headers)
        self._upload = Upload(chunked=self._length is None)

    def open(self, writer: ResponseWriter, path: str, headers: Headers) -> OpenExchange:
        """Make the exchange."""
        kind = partial(UploadJob, reader=self._reader, upload=self._upload, length=self._length)
        return self._admission.relay.open_job(kind, writer, path, headers)

    def begin(self, exchange: OpenExchange) -> None:
        """Read the form and pass it on, in a task."""
        if self._inbound.expects:
            self._inbound.ask_for_body()
        self._stream.reader = task = asyncio.get_running_loop().create_task(self._read(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, exchange: OpenExchange) -> None:
        beginning, rest = BodyShare(self._admission.body_memory), BodyShare(self._admission.body_memory)
        try:
            if await self._read_model(exchange, beginning):
                await self._pass_on(rest)
            await self._stream.read()  # what is held counts until the client has its answer, or leaves
        except RequestError as error:
            exchange.cancel(error)
        finally:
            beginning.give_back()
            rest.give_back()

    async def _read_model(self, exchange: OpenExchange, share: BodyShare) -> bool:
        """Read up to the model and begin the exchange; whether there is more to read."""
        pieces: list[bytes] = []
        more = True
        while more and self._reader.model is None:
            if (received := await self._stream.read()) is None:
                return False
            piece, more = received
            self._reader.feed(piece)
            share.take(len(piece))
            pieces.append(piece)
        exchange.begin(b"".join(pieces), self._inbound.caller)
        if not more:
            self._upload.end()
        return more

    async def _pass_on(self, share: BodyShare) -> None:
        """Pass on the rest, as fast as the engine takes it."""
        memory = self._admission.body_memory
        more = True
        while more:
            if (received := await self._stream.read()) is None:
                return
            piece, more = received
            self._reader.feed(piece)
            share.take(len(piece))
            self._upload.add(piece)
            if self._upload.begun or memory.is_scarce:
                await self._upload.room()
            if not self._upload.held:
                share.give_back()
        self._upload.end()
