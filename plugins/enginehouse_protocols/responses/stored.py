"""Responses that later requests continue."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse import InvalidRequest, NotFound
from enginehouse_protocols.responses.request import Item

_items = msgspec.json.Decoder(list[Item]).decode


class StoredResponses:
    """The responses that were used last, with their conversations, in ``most`` bytes of JSON together.

    Their ids are random: who knows one may use it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._kept: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()

    def keep(self, response: dict[str, Any], asked: Sequence[Item]) -> None:
        """Keep a whole ``response`` to the conversation ``asked``."""
        entry = msgspec.json.encode(response), msgspec.json.encode([*asked, *response["output"]])
        self._kept[response["id"]] = entry
        self._size += _size(entry)
        while self._size > self._most:
            self._size -= _size(self._kept.popitem(last=False)[1])

    def conversation(self, id: str) -> list[Item]:
        """All items up to the end of a response. Raises ``InvalidRequest`` for one that is not kept."""
        if not self._most:
            raise InvalidRequest(
                "The gateway keeps no responses: send the whole conversation in 'input', or set "
                "plugins.responses.stored",
                param="previous_response_id",
            )
        entry = self._kept.get(id)
        if entry is None:
            raise InvalidRequest(
                f"The gateway does not keep the response '{id}' (any more): send the whole conversation in 'input'",
                param="previous_response_id",
            )
        self._kept.move_to_end(id)
        return _items(entry[1])

    def response(self, id: str) -> bytes:
        """The JSON of a response. Raises ``NotFound``."""
        return self._entry(id)[0]

    def delete(self, id: str) -> None:
        """Forget a response. Raises ``NotFound``."""
        self._size -= _size(self._entry(id))
        del self._kept[id]

    def _entry(self, id: str) -> tuple[bytes, bytes]:
        entry = self._kept.get(id)
        if entry is None:
            raise NotFound(f"The gateway keeps no response '{id}'")
        return entry


def _size(entry: tuple[bytes, bytes]) -> int:
    return len(entry[0]) + len(entry[1])
