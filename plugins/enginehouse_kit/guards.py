"""Guards: may refuse or change requests, and watch their answers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from enginehouse_kit.interceptors import Change, Refuse

__all__ = ["Guard", "GuardAnswer", "GuardRequest"]


class GuardRequest(msgspec.Struct, frozen=True):
    """A client's request, as guards see it. Other protocols are translated to OpenAI's before."""

    path: str
    model: str
    headers: Mapping[str, str]
    """By lower-case names, without those that carry secrets."""
    body: bytes
    """As the client sent it: JSON may write each character as an escape, so search ``texts``."""

    def texts(self) -> list[str]:
        """All texts of the body, decoded, also those in the arguments of tool calls; none if it is not JSON."""
        return texts_of(self.body)


class GuardAnswer(msgspec.Struct, frozen=True):
    """A whole answer of an engine. ``request``: as the engine got it."""

    request: GuardRequest
    caller: str | None
    status: int
    body: bytes

    def texts(self) -> list[str]:
        """All texts of the body, decoded, as ``GuardRequest.texts``."""
        return texts_of(self.body)


def texts_of(body: bytes) -> list[str]:
    """All texts in a JSON body. One that is JSON itself, as the arguments of tool calls are, is there decoded too."""
    found: list[str] = []
    left: list[Any] = [body]  # no recursion: what is nested too deeply must not be left out
    while left:
        value = left.pop()
        if isinstance(value, bytes):
            with suppress(msgspec.DecodeError, RecursionError):
                left.append(msgspec.json.decode(value))
        elif isinstance(value, str):
            found.append(value)
            if "\\" in value and value.lstrip().startswith(("{", "[")):
                left.append(value.encode())
        elif isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            left += value
    return found


class Guard(ABC):  # noqa: B024 - each method is optional
    """Chosen by ``guards``, in that order: each sees what the one before has changed.

    A guard serves all requests at the same time, so it keeps no state of any of them. Without guards, nothing of this
    costs anything. ``guards`` also says how long ``before`` and ``after`` may take, and what follows if they fail.
    """

    look_back: ClassVar[int] = 0
    """The characters at the end of a stream's text that are held back, and given to ``on_text`` again together with
    what follows: as many as the longest thing it looks for, less one."""

    async def before(self, request: GuardRequest, caller: str | None) -> Refuse | Change | None:
        """Decide about a request before it is routed. ``caller``: the name of its key. ``None`` lets it go on."""
        return None

    async def after(self, answer: GuardAnswer) -> Refuse | Change | None:
        """Decide about a whole answer with status 200, before the client gets it. Streams are not held for this."""
        return None

    def on_text(self, piece: str) -> str | Refuse | None:
        """Look at the next text of a stream: of one choice, without its thoughts and tool calls. Must return at once.

        Return the text that takes its place, ``None`` to leave it, or ``Refuse`` to end the stream with an error.
        """
        return None
