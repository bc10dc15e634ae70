"""How one engine hands a prompt over to another one: ``kv_transfer_params``, as vLLM's connectors read them."""

from __future__ import annotations

import msgspec

_FIELD = "kv_transfer_params"
_KEEP = b'{"do_remote_decode":true,"do_remote_prefill":false}'


_OF_STREAMS = frozenset({"stream_options", "min_tokens", "max_completion_tokens"})
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _PromptAnswer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


def add_field(body: bytes, name: str, value: bytes) -> bytes:
    """Return ``body`` with one more field, or unchanged if it may already have that field. ``value`` is JSON."""
    if b'"%s"' % name.encode() in body:
        return body
    end = body.rindex(b"}")
    comma = b"" if body[:end].rstrip().endswith(b"{") else b","
    return b'%s%s"%s":%s}' % (body[:end], comma, name.encode(), value)


def one_token(body: bytes) -> bytes:
    """Return ``body`` as a request for one token, so that its engine reads the prompt."""
    fields: dict[str, object] = {name: value for name, value in _fields(body).items() if name not in _OF_STREAMS}
    return msgspec.json.encode({**fields, "max_tokens": 1, "stream": False})


def prompt_request(body: bytes) -> bytes:
    """Return a request for one token whose engine keeps the KV cache of the prompt for another engine."""
    return add_field(body, _FIELD, _KEEP)


def handed_over(answer: bytes) -> msgspec.Raw | None:
    """Return the parameters for the decoding engine from the answer to ``prompt_request``; ``None`` without any."""
    try:
        parameters = msgspec.json.decode(answer, type=_PromptAnswer).kv_transfer_params
    except (ValueError, RecursionError):
        return None
    return None if bytes(parameters) == b"null" else parameters.copy()


def take_over(body: bytes, parameters: msgspec.Raw) -> bytes:
    """Return ``body`` for the decoding engine, which fetches the KV cache that ``parameters`` name."""
    return add_field(body, _FIELD, bytes(parameters))
