"""The items that a kept response was asked with, as ``GET /v1/responses/{id}/input_items`` lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse import InvalidRequest

_USUAL, _MOST = 20, 100
_ORDERS: Final = ("asc", "desc")


def page_of(id: str, items: Sequence[msgspec.Raw], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the ``items`` of the response ``id``: ``query`` has ``limit``, ``order`` and ``after``.

    The latest come first unless ``order`` is ``asc``. Raises ``InvalidRequest``.
    """
    listed = [_listed(id, place, msgspec.json.decode(item)) for place, item in enumerate(items)]
    order = query.get("order", "desc")
    if order not in _ORDERS:
        raise InvalidRequest(f"'order' is 'asc' or 'desc', not '{order}'", param="order")
    if order == "desc":
        listed.reverse()
    begin = 0
    if (after := query.get("after")) is not None:
        places = [place for place, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise InvalidRequest(f"The response has no item '{after}'", param="after")
        begin = places[0] + 1
    end = begin + _limit(query.get("limit"))
    data = listed[begin:end]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": end < len(listed),
    }


def _limit(asked: str | None) -> int:
    if asked is None:
        return _USUAL
    if not asked.isdecimal() or not 1 <= int(asked[:4]) <= _MOST:
        raise InvalidRequest(f"'limit' is a number from 1 to {_MOST}, not '{asked}'", param="limit")
    return int(asked)


def _listed(id: str, place: int, item: dict[str, Any]) -> dict[str, Any]:
    """An item with an id, and a message with a list of parts, as OpenAI lists them."""
    kind = item.setdefault("type", "message")
    if not item.get("id"):
        item["id"] = f"{'msg' if kind == 'message' else 'item'}_{id.removeprefix('resp_')}_{place}"
    if kind == "message":
        item.setdefault("role", "user")
        item.setdefault("status", "completed")
        if isinstance(content := item.get("content"), str):
            of = "output_text" if item["role"] == "assistant" else "input_text"
            more: dict[str, Any] = {"annotations": []} if of == "output_text" else {}
            item["content"] = [{"type": of, "text": content, **more}]
    return item
