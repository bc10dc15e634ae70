"""What a client makes of a stream of a chat or a completion."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class SeenStream(NamedTuple):
    """``heads``: the ids, times and models of its events. ``error``: the error object that it ends with."""

    text: str
    finish: str | None
    usage: Any
    ids: list[int]
    heads: set[str]
    roles: int
    ended: bool
    error: Any = None

    @property
    def answer(self) -> tuple[str, str | None, list[int], int, bool]:
        """What must be the same wherever the events come from."""
        return self.text, self.finish, self.ids, self.roles, self.ended

    @property
    def counts(self) -> Any:
        """The usage without its details."""
        return self.usage and {name: value for name, value in self.usage.items() if name.endswith("_tokens")}


def read_stream(wire: bytes) -> SeenStream:
    """Read the events, and check that there is one finish reason at most, and nothing after ``[DONE]``."""
    ids: list[int] = []
    heads: set[str] = set()
    text, finish, usage, roles, ended, error = "", None, None, 0, False, None
    for event in wire.split(b"\n\n")[:-1]:
        assert not ended
        if event.startswith(b":"):
            continue
        data = event.removeprefix(b"event: error\n").removeprefix(b"data: ")
        if data == b"[DONE]":
            ended = True
            continue
        chunk = msgspec.json.decode(data)
        if "error" in chunk:
            error, ended = chunk["error"], True
            continue
        heads.add(f"{chunk['id']} {chunk['created']} {chunk['model']} {chunk['object']}")
        usage = chunk.get("usage", usage)
        for choice in chunk["choices"]:
            assert finish is None
            delta = choice.get("delta", {})
            roles += "role" in delta
            text += choice.get("text") or delta.get("content") or ""
            finish = choice["finish_reason"]
            ids += choice.get("token_ids") or []
    return SeenStream(text, finish, usage, ids, heads, roles, ended and error is None, error)
