"""The vocabulary of answers: what the chat of an engine can say, and the blocks that become of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from enginehouse.errors import UpstreamError

_MARKS: Final = re.compile(r'["\\{}\[\]]')
_MOST_HELD = 16 << 20
"""Characters of later blocks that are held for one that is open."""


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


_SPEECH: Final = (Text, Thinking, Refusal)
Kind = type[Text] | type[Thinking] | type[Refusal] | type[Call]


class Block:
    """A block of an answer: text, thinking, a refusal, or the ``call`` of a tool.

    ``size``: the characters of it that have come.
    """

    __slots__ = ("_pieces", "call", "kind", "size")

    def __init__(self, kind: Kind, call: Call | None = None) -> None:
        self.kind = kind
        self.call = call
        self.size = 0
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """What it says, as far as it has come and is kept."""
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        """Keep more of what it says."""
        self._pieces.append(text)

    def take(self) -> str:
        """Return what it says, and keep it no more."""
        text, self._pieces = self.text, []
        return text


class BlockWriter:
    """Writes blocks in the form of a dialect; this one writes nothing."""

    def begin_block(self, block: Block) -> bytes:
        """Return what says that a block begins."""
        return b""

    def add_to_block(self, block: Block, text: str) -> bytes:
        """Return what adds ``text``."""
        return b""

    def end_block(self, block: Block) -> bytes:
        """Return what says that a block ends."""
        return b""


class Blocks:
    """The blocks of one answer, as far as they have come. ``finish`` and ``usage`` are the last that were said.

    A dialect has one open block at a time. Text after text, or a piece of the same call, goes on in the open one; all
    else ends it. A call whose arguments are not whole stays open until they are, or the answer ends: what belongs to
    later blocks is held meanwhile. ``keeps_text``: blocks keep their text once it is written; calls have their
    arguments anyway.
    """

    def __init__(self, *, keeps_text: bool) -> None:
        self.all: list[Block] = []
        self._keeps_text = keeps_text
        self.finish = Finish("")
        self.usage = Usage()
        self._open: Block | None = None
        self._held: list[Block] = []
        self._size = 0

    @property
    def calls(self) -> bool:
        """Whether a tool is called."""
        return any(block.call is not None for block in self.all)

    @property
    def refuses(self) -> bool:
        """Whether the model refuses to answer."""
        return any(block.kind is Refusal for block in self.all)

    def take(self, said: Iterable[Said], writer: BlockWriter, out: list[bytes]) -> None:
        """Add to ``out`` what ``writer`` makes of what is said next. Raises ``UpstreamError`` for too much to hold."""
        for each in said:
            if isinstance(each, _SPEECH):
                self._say(type(each), None, each.text, writer, out)
            elif isinstance(each, CallGoesOn):
                self._say(Call, each.call, each.text, writer, out)
            elif isinstance(each, CallBegins):
                self._say(Call, each.call, "", writer, out)
            elif isinstance(each, Counted):
                self.usage = each.usage
            else:
                self.finish = each

    def end(self, writer: BlockWriter, out: list[bytes]) -> None:
        """Add what is missing at the end of the answer."""
        self._close(writer, out)
        while self._held:
            self._begin(self._held.pop(0), writer, out)
            self._close(writer, out)

    def _say(self, kind: Kind, call: Call | None, text: str, writer: BlockWriter, out: list[bytes]) -> None:
        open = self._open
        if open is not None and open.kind is kind and open.call is call:
            if text:
                open.size += len(text)
                if self._keeps_text and call is None:
                    open.add(text)
                out.append(writer.add_to_block(open, text))
        elif self._waits():
            self._hold(kind, call, text)
        else:
            self._close(writer, out)
            block = Block(kind, call)
            block.size = len(text)
            block.add(text)
            self._begin(block, writer, out)
        while self._held and not self._waits():
            self._close(writer, out)
            self._begin(self._held.pop(0), writer, out)

    def _waits(self) -> bool:
        """Whether the open block is a call of which more is to come."""
        block = self._open
        if block is None or (call := block.call) is None:
            return False
        return block.size < call.size or not call.is_whole

    def _hold(self, kind: Kind, call: Call | None, text: str) -> None:
        self._size += len(text)
        if self._size > _MOST_HELD:
            raise UpstreamError("The engine's answer cannot be read: a call of a tool does not end")
        last = self._held[-1:] if call is None else [block for block in self._held if block.call is call]
        if not last or last[0].kind is not kind:
            last = [Block(kind, call)]
            self._held += last
        last[0].size += len(text)
        last[0].add(text)

    def _begin(self, block: Block, writer: BlockWriter, out: list[bytes]) -> None:
        self._open = block
        self.all.append(block)
        out.append(writer.begin_block(block))
        if text := block.text if self._keeps_text else block.take():
            out.append(writer.add_to_block(block, text))

    def _close(self, writer: BlockWriter, out: list[bytes]) -> None:
        block, self._open = self._open, None
        if block is not None:
            out.append(writer.end_block(block))


def whole(said: Iterable[Said]) -> Blocks:
    """The blocks of a whole answer."""
    blocks, writer = Blocks(keeps_text=True), BlockWriter()
    nothing: list[bytes] = []
    blocks.take(said, writer, nothing)
    blocks.end(writer, nothing)
    return blocks
