"""The ends of streams and the errors, in the form of each endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from enginehouse.domain.errors import ContextLengthExceeded
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.protocols import ClientProtocol
from enginehouse.telemetry.counted_answers import WholeChoice
from enginehouse.telemetry.plugin_failures import log_plugin_failure

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Chunk(msgspec.Struct, gc=False):
    """An event of a stream whose events have no type. Errors of some engines have a message or a detail at once."""

    error: None = None
    message: None = None
    detail: None = None
    choices: list[WholeChoice] = []


class _OfMessage(msgspec.Struct, gc=False):
    type: Literal["message_start", "content_block_start", "ping", "content_block_delta", "content_block_stop"]
    error: None = None


class _OfResponse(msgspec.Struct, gc=False):
    """The frequent types. Events of other types are rare, so they may take longer to read."""

    type: Literal[
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
    ]
    error: None = None


class _AnyEvent(msgspec.Struct):
    """The fields read from any other event, or an answer. The decoder checks that the rest is JSON."""

    error: Any = None
    type: Any = None
    response: Any = None
    choices: Any = msgspec.UNSET
    message: Any = None
    detail: Any = None

    @property
    def is_error(self) -> bool:
        """Whether it is nothing but an error, as vLLM's ``{"object": "error", "message"}`` and FastAPI's ``detail``."""
        bare = self.choices is msgspec.UNSET and not (isinstance(self.type, str) and "." in self.type)
        return bare and (isinstance(self.message, str) or self.detail is not None)

    @property
    def broken_off(self) -> str:
        """The reason with which the engine ends a choice that is not whole; empty if it does not.

        vLLM, for one, aborts all requests when it is stopped, put to sleep or made smaller, and then ends their streams
        as if they were whole (https://github.com/vllm-project/vllm/issues/57082).
        """
        choices = self.choices if isinstance(self.choices, list) else ()
        reasons = [each.get("finish_reason") for each in choices if isinstance(each, dict)]
        return next((each for each in reasons if isinstance(each, str) and each in _BREAKS), "")


_BREAKS: Final = frozenset({"abort", "error", "insufficient_system_resource"})
decode_event = msgspec.json.Decoder(_AnyEvent).decode


PING: Final = b": ping\n\n"
"""The comment that keeps the connection of a silent stream alive."""


class StreamForm(NamedTuple):
    """The form of an endpoint's streams and errors.

    ``last``: the values of ``type`` in an event that may be the last one. ``ends_as_done``: ``[DONE]`` is the last one.
    ``is_checked``: a stream must end with one of them. ``failed``: the values of ``type`` in an engine's own error
    event. ``error`` makes the error object of a status and OpenAI's envelope; ``event`` that of an error event, if it
    differs; ``before_error`` makes what comes before it, given whether the stream has begun. ``plain`` decodes events
    that are surely neither the last one nor an error, and raises ``ValueError`` for any others. ``ping``: what clients
    pass over.
    """

    error: Callable[[int, dict[str, Any]], object]
    event: Callable[[int, dict[str, Any]], object]
    last: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    ends_as_done: bool = False
    plain: Callable[[bytes], object] = msgspec.json.Decoder(_Chunk).decode
    is_checked: bool = True
    before_error: Callable[[int, dict[str, Any], bool], bytes] | None = None
    ping: bytes = PING

    def error_body(self, status: int, envelope: dict[str, Any]) -> bytes:
        """The body of a response that is an error."""
        return msgspec.json.encode(self.error(status, envelope))

    def error_event(self, status: int, envelope: dict[str, Any], *, begun: bool) -> bytes:
        """The end of a stream that failed. ``begun``: its client has an event."""
        error = b"event: error\ndata: %s\n\n" % msgspec.json.encode(self.event(status, envelope))
        return error if self.before_error is None else self.before_error(status, envelope, begun) + error


def _openai(status: int, envelope: dict[str, Any]) -> object:
    return envelope


def _anthropic(status: int, envelope: dict[str, Any]) -> object:
    """Anthropic's error object, with the gateway's other fields beside its own two."""
    error = dict(envelope["error"])
    details = error.get("details") or {}
    if error.get("code") == ContextLengthExceeded.code and "tokens" in details:
        error["message"] = f"prompt is too long: {details['tokens']} tokens > {details['limit']} maximum"
    other = "invalid_request_error" if status < 500 else "api_error"
    return {"type": "error", "error": {**error, "type": _ANTHROPIC_TYPES.get(status, other)}}


def _of_responses(status: int, envelope: dict[str, Any]) -> object:
    """The ``error`` event of OpenAI's Responses. Its ``error`` makes OpenAI's SDK raise, as in other streams."""
    error = envelope["error"]
    event = {"type": "error", "code": error["code"], "message": error["message"], "param": error["param"]}
    return {**event, "sequence_number": 0, "error": error}


def _failed_response(status: int, envelope: dict[str, Any], begun: bool) -> bytes:
    """The other end of OpenAI's Responses: Codex knows no ``error`` event, and OpenAI's SDK no end without a start."""
    error = {"code": str(envelope["error"]["code"]), "message": envelope["error"]["message"]}
    created = b"" if begun else _response_event("created", status="in_progress", error=None)
    return created + _response_event("failed", status="failed", error=error)


def _response_event(type: str, **fields: Any) -> bytes:
    response = {"id": "", "object": "response", "output": [], **fields}
    event = {"type": f"response.{type}", "sequence_number": 0, "response": response}
    return b"event: response.%s\ndata: %s\n\n" % (type.encode(), msgspec.json.encode(event))


CHUNKED: Final = frozenset({"/v1/chat/completions", "/v1/completions"})
"""The endpoints whose streams are OpenAI's chunks, and whose engines tell the usage at the end if they are asked."""
_OTHER = StreamForm(_openai, _openai, is_checked=False)
_COMPLETIONS = StreamForm(_openai, _openai, ends_as_done=True)
_FORMS: Mapping[str, StreamForm] = {
    "/v1/chat/completions": _COMPLETIONS,
    "/v1/completions": _COMPLETIONS,
    "/v1/messages": StreamForm(
        _anthropic,
        _anthropic,
        frozenset({"message_stop"}),
        frozenset({"error"}),
        plain=msgspec.json.Decoder(_OfMessage).decode,
        ping=b'event: ping\ndata: {"type":"ping"}\n\n',
    ),
    "/v1/messages/count_tokens": StreamForm(_anthropic, _anthropic, is_checked=False),
    "/v1/responses": StreamForm(
        _openai,
        _of_responses,
        frozenset({"response.completed", "response.incomplete"}),
        frozenset({"error", "response.failed"}),
        plain=msgspec.json.Decoder(_OfResponse).decode,
        before_error=_failed_response,
    ),
}


class _Forms(dict[str, StreamForm]):
    def __missing__(self, path: str) -> StreamForm:
        return _OTHER


stream_form: Final = _Forms(_FORMS).__getitem__
"""The form of the endpoint at a path."""


def form_of_protocol(path: str, protocol: ClientProtocol) -> StreamForm:
    """The form of the endpoint at ``path``, with the errors of the ``protocol`` whose path it is."""
    form = stream_form(path)

    def error(status: int, envelope: dict[str, Any]) -> object:
        try:
            return msgspec.Raw(protocol.error(status, envelope))
        except BaseException as failure:
            log_plugin_failure(PluginId("protocol", protocol.name), "failed to tell an error", failure)
            return form.error(status, envelope)

    return form._replace(error=error)


def forms_with(protocols: Mapping[str, ClientProtocol]) -> Callable[[str], StreamForm]:
    """Finds the form of the endpoint at a path, with the errors of the protocol that has it."""
    owned = {path: form_of_protocol(path, protocol) for path, protocol in protocols.items()}
    return _Forms({**_FORMS, **owned}).__getitem__
