"""The model that a body names, and whether it is the only one."""

from __future__ import annotations

import msgspec

from enginehouse.domain.errors import InvalidRequest
from enginehouse.routing.body.read import unreadable
from enginehouse.routing.body.replace_model import model_values, surely_one_key

_KEY = "model"
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _ModelNamed(msgspec.Struct):
    model: str = ""


_named = msgspec.json.Decoder(_ModelNamed).decode


def model_named(raw: bytes) -> str | None:
    """The model that a body names, perhaps an empty one; ``None`` if nobody can read the body."""
    try:
        return _named(raw).model
    except (ValueError, RecursionError):
        return None


def check_one_model(raw: bytes) -> None:
    """Raise ``InvalidRequest`` for a second ``model`` key in the object ``raw``, or one such as ``Model``.

    Parsers differ in which of two equal keys they take, and some match keys without case, as Go's ``encoding/json``
    does. So an engine might serve another model than the one that was checked. ``raw`` must have passed
    ``read_request``.
    """
    try:
        variants = sum(key.casefold() == _KEY for key in _keys(raw))
        several = variants > 1 or not (surely_one_key(raw) or sum(1 for _ in model_values(raw)) == 1)
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None
    if several:
        raise InvalidRequest(
            "The body has several 'model' keys, and your API key may not use every model: name one model, once",
            param=_KEY,
        )
