"""How one engine hands a prompt over to another one: ``kv_transfer_params``, as vLLM's connectors read them."""

from __future__ import annotations

import msgspec

from enginehouse.interfaces.continuing import add_field

_FIELD = "kv_transfer_params"
_KEEP = b'{"do_remote_decode":true,"do_remote_prefill":false}'


class _Answer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


def prompt_request(body: bytes) -> bytes:
    """Return a request for one token whose engine keeps the KV cache of the prompt for another engine."""
    return add_field(body, _FIELD, _KEEP)


def handed_over(answer: bytes) -> msgspec.Raw | None:
    """Return the parameters for the decoding engine from the answer to ``prompt_request``; ``None`` without any."""
    try:
        parameters = msgspec.json.decode(answer, type=_Answer).kv_transfer_params
    except msgspec.DecodeError:
        return None
    return None if bytes(parameters) == b"null" else parameters.copy()


def take_over(body: bytes, parameters: msgspec.Raw) -> bytes:
    """Return ``body`` for the decoding engine, which fetches the KV cache that ``parameters`` name."""
    return add_field(body, _FIELD, bytes(parameters))
