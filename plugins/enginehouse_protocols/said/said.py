"""The vocabulary of answers: what the chat of an engine can say."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

_MARKS: Final = re.compile(r'["\\{}\[\]]')


class Usage(NamedTuple):
    """Tokens of a prompt and of its answer, and how many of them were cached or were reasoning."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


class Call:
    """A call of a tool, with its arguments as far as they have come. ``size``: the characters of those."""

    __slots__ = ("_depth", "_escapes", "_in_text", "_pieces", "_read", "id", "name", "size")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self._pieces: list[str] = []
        self.size = self._read = self._depth = 0
        self._in_text = self._escapes = False

    @property
    def arguments(self) -> str:
        """As JSON text."""
        return "".join(self._pieces)

    def add(self, arguments: str) -> None:
        """A further piece."""
        self._pieces.append(arguments)
        self.size += len(arguments)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are an object that is closed. Each piece is read once, however often this is asked."""
        if not self._pieces or "}" not in self._pieces[-1]:
            return False
        for piece in self._pieces[self._read :]:
            self._follow(piece)
        self._read = len(self._pieces)
        return self._depth <= 0 and not self._in_text

    def _follow(self, piece: str) -> None:
        at, self._escapes = int(self._escapes), False
        while (mark := _MARKS.search(piece, at)) is not None:
            at, sign = mark.end(), mark[0]
            if sign == "\\":
                self._escapes = at == len(piece)
                at += 1
            elif sign == '"':
                self._in_text = not self._in_text
            elif not self._in_text:
                self._depth += 1 if sign in "{[" else -1


class Text(msgspec.Struct, frozen=True, gc=False):
    """A piece of the text."""

    text: str


class Thinking(msgspec.Struct, frozen=True, gc=False):
    """A piece of the reasoning."""

    text: str


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A piece of the refusal."""

    text: str


class CallBegins(msgspec.Struct, frozen=True):
    """A call whose id and name are known."""

    call: Call


class CallGoesOn(msgspec.Struct, frozen=True):
    """A piece of a call's arguments, which the call already has."""

    call: Call
    text: str


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The usage. The last one counts."""

    usage: Usage


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The end of the answer: ``stop``, ``length``, ``tool_calls`` or ``content_filter``.

    ``stopped_at``: the stop sequence that ended it, where the engine says it.
    """

    reason: str
    stopped_at: str = ""


Said = Text | Thinking | Refusal | CallBegins | CallGoesOn | Counted | Finish
