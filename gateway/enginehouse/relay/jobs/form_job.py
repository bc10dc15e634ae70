"""Requests to an inference endpoint whose bodies are forms."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from enginehouse.domain.replica import Route
from enginehouse.domain.request import Body, Headers
from enginehouse.domain.requirements import InferenceRequest, Requirements
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.relay.upstream.upload import Upload
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.form import FormModel, FormReader


class FormJob(InferenceJob):
    """A ``POST`` of a whole form. It is routed by its model; nothing else of it is read or changed."""

    def __init__(self, context: RelayContext, path: str, headers: Headers, request_id: bytes) -> None:
        super().__init__(context, path, headers, request_id)
        if self.trace is not None:
            self.trace.captured = None  # a recording or an image is no message

    def _needs(self, caller: AdmittedCaller | None) -> Requirements:
        self._model = model = self._find_model()
        body = Body(model=model.name)
        request = InferenceRequest(self.path, self.headers, msgspec.json.encode({"model": model.name}), body)
        return self.context.router.requirements(request)

    def _find_model(self) -> FormModel:
        form = FormReader(self.headers)
        form.feed(self.body)
        return form.found()

    def body_for(self, route: Route) -> bytes:
        """The form with the name that the engine has for the model."""
        return self._model.replaced(self.body, route.chosen.name_there or route.chosen.model)


class UploadJob(FormJob):
    """A ``POST`` of a form that may be too large to be kept. Its beginning, up to its model, is the ``body``.

    The rest follows as ``upload``. An engine that fails has read a part that the gateway no longer has, so the form is
    sent to no other one.
    """

    repeatable = False
    retry_statuses: ClassVar[frozenset[int]] = frozenset()

    def __init__(
        self, context: RelayContext, path: str, headers: Headers, request_id: bytes, reader: FormReader, upload: Upload
    ) -> None:
        super().__init__(context, path, headers, request_id)
        self._reader = reader
        self._framed, self._length = upload.framed, upload.length
        self.upload = upload

    def _find_model(self) -> FormModel:
        return self._reader.found()

    def request(self, upstream: Upstream, body: bytes, path: str = "") -> bytes:
        """The request as far as ``body`` goes, whose model may have another length than the client's."""
        framing = b"transfer-encoding: chunked\r\n"
        if self._length is not None:
            framing = b"content-length: %d\r\n" % (self._length + len(body) - len(self.body))
        asked = "POST", self.path, self.engine_headers, self.request_id
        return upstream.head(*asked, framing, self.caller_lines(upstream)) + self._framed(body)
