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
        self._reader = FormReader(inbound.headers)
        self._upload = Upload(content_length(inbound.headers))

    def open(self, writer: ResponseWriter, path: str, headers: Headers) -> OpenExchange:
        """Make the exchange."""
        kind = partial(UploadJob, reader=self._reader, upload=self._upload)
        return self._admission.relay.open_job(kind, writer, path, headers)

    def begin(self, exchange: OpenExchange) -> None:
        """Read the form and pass it on, in a task."""
        if self._inbound.expects:
            self._inbound.ask_for_body()
        self._stream.reader = task = asyncio.get_running_loop().create_task(self._read(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, exchange: OpenExchange) -> None:
        """Pass the form on as fast as the engine takes it, once its beginning has named the model."""
        reader, upload, memory = self._reader, self._upload, self._admission.body_memory
        beginning, rest = BodyShare(memory), BodyShare(memory)
        pieces: list[bytes] = []
        begun = False
        try:
            # ``None`` comes when the client has its answer, or leaves: until then, what is held counts
            while (received := await self._stream.read()) is not None:
                piece, more = received
                reader.feed(piece)
                if begun:
                    rest.take(len(piece))
                    upload.add(piece)
                else:
                    beginning.take(len(piece))
                    pieces.append(piece)
                    if begun := reader.model is not None or not more:
                        exchange.begin(b"".join(pieces), self._inbound.caller)
                if not more:
                    upload.end()
                if upload.begun or memory.is_scarce:
                    await upload.room()
                if not upload.held:
                    rest.give_back()
        except RequestError as error:
            exchange.cancel(error)
        finally:
            beginning.give_back()
            rest.give_back()
