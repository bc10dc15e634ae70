"""The check of a request's head, before its body is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from enginehouse.aio.write_batch import WriteBatch
from enginehouse.api.authentication import Authentication
from enginehouse.api.body_memory import BodyMemory
from enginehouse.api.cross_origin import CrossOriginProtection
from enginehouse.api.date_line import DateLine
from enginehouse.domain.errors import BodyTooLarge
from enginehouse.domain.request import Headers
from enginehouse.interfaces import protocols
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.engine_job import EngineCall
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter
from enginehouse.relay.upstream.upload import Upload
from enginehouse.relay.web_sockets.web_socket import WebSocket
from enginehouse.routing.body.form import FormReader

INFERENCE_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/rerank",
    "/v1/reranking",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/audio/speech",
    "/v1/audio/voices",
    "/v1/images/generations",
    "/v1/score",
    "/rerank",
    "/reranking",
    "/score",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/completion",
    "/infill",
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
)
"""The endpoints whose ``POST`` is relayed to an engine: JSON with a ``model``."""

FORM_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations")
"""The endpoints whose ``POST`` is relayed to an engine: a form with a ``model``."""

_CHECKED: Final = frozenset({b"content-length", b"origin"})


class OpensRequests(Protocol):
    """The relay, as connections and pages see it; its methods say more.

    An interface, because compiled code takes no substitute for a compiled class.
    """

    context: RelayContext

    def check_open(self) -> None: ...

    def request_id(self, headers: Headers) -> bytes: ...

    def open(self, writer: ResponseWriter, path: str, headers: Headers) -> OpenExchange: ...

    def open_translated(
        self, writer: ResponseWriter, path: str, headers: Headers, protocol: protocols.Protocol
    ) -> OpenExchange: ...

    def open_form(self, writer: ResponseWriter, path: str, headers: Headers) -> OpenExchange: ...

    def open_upload(
        self,
        writer: ResponseWriter,
        path: str,
        headers: Headers,
        reader: FormReader,
        upload: Upload,
        length: int | None,
    ) -> OpenExchange: ...

    def pass_through(self, writer: ResponseWriter, path: str, headers: Headers, call: EngineCall) -> OpenExchange: ...

    def web_socket(self, path: str, headers: Headers, call: EngineCall, largest: int) -> WebSocket: ...


class Admission:
    """Admits requests by their heads: the gateway is open, the key is known, there is room for the body.

    If no keys are set, it refuses web pages of other origins. ``client_timeout``: the seconds for which a client may
    leave answers unread; 0 means no limit. ``paths``: those whose ``POST`` is relayed.
    ``writes``: those to all clients. ``date``: a header of every answer.
    """

    def __init__(
        self,
        relay: OpensRequests,
        authentication: Authentication,
        cross_origin: CrossOriginProtection,
        *,
        max_body: int,
        paths: Sequence[str] = INFERENCE_PATHS,
        body_memory: BodyMemory,
        writes: WriteBatch,
        date: DateLine,
        client_timeout: float = 0.0,
    ) -> None:
        self.relay = relay
        self.authentication = authentication
        self.cross_origin = cross_origin
        self.max_body = max_body
        self.body_memory = body_memory
        self.writes = writes
        self.date = date
        self.client_timeout = client_timeout
        self.hot_paths = {path.encode(): path for path in paths}

    def admit(self, headers: Headers) -> AdmittedCaller | None:
        """Return the caller, or ``None`` if no keys are set.

        Raises ``Unauthorized``, ``Forbidden``, ``BodyTooLarge``, ``Overloaded`` or ``ShuttingDown``.
        """
        caller = self.caller(headers)
        for name, value in headers:
            if name in _CHECKED:
                if name == b"content-length":
                    size = int(value)
                    if size > self.max_body:
                        raise self.too_large()
                    self.body_memory.check(size)
                elif caller is None:
                    self.cross_origin.check_origin(headers)
        return caller

    def caller(self, headers: Headers) -> AdmittedCaller | None:
        """As ``admit``, without a check of the origin and of the body's size."""
        self.relay.check_open()
        return self.authentication.caller(headers)

    def admit_direct(self, headers: Headers) -> AdmittedCaller | None:
        """Admit a request for an engine itself. Also raises ``Forbidden`` for a key with a token limit.

        If no keys are set, operators' rules apply, because the request may be for a page that controls the engine.
        """
        caller = self.admit(headers)
        if caller is None:
            self.cross_origin.check(headers)
        else:
            caller.check_uncounted()
        return caller

    def admit_web_socket(self, headers: Headers) -> AdmittedCaller | None:
        """Admit a WebSocket to an engine itself."""
        caller = self.admit_direct(headers)
        if caller is not None:
            self.cross_origin.check_web_socket(headers)
        return caller

    def admit_operator(self, headers: Headers) -> str:
        """Admit a request for operators' pages. Returns the name of its key; empty if no keys are set.

        Raises ``Unauthorized`` or ``Forbidden``.
        """
        return self._named(self.authentication.admin(headers), headers)

    def admit_caller(self, headers: Headers) -> str:
        """As ``admit_operator``, for pages that every key may read."""
        return self._named(self.authentication.caller(headers), headers)

    def _named(self, caller: AdmittedCaller | None, headers: Headers) -> str:
        if caller is None:
            self.cross_origin.check(headers)
            return ""
        return caller.name

    def too_large(self) -> BodyTooLarge:
        """The error for a body of more than ``server.max_body``."""
        return BodyTooLarge(f"The request body is larger than {self.max_body} bytes (server.max_body)")
