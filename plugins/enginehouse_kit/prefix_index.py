"""The chunks of prompts that each engine probably has in its prefix cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

__all__ = ["PrefixIndex"]


class PrefixIndex:
    """Remembers the chunks that were sent to each engine last. It may be wrong, because it does not ask engines."""

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[int, None]] = {}

    def __deepcopy__(self, memo: object) -> PrefixIndex:
        """Return an index with the same chunks. A strategy is copied to explain its pick."""
        copied = PrefixIndex()
        copied._sent = {engine: sent.copy() for engine, sent in self._sent.items()}
        return copied

    def leading(self, engine: str, chunks: Sequence[int]) -> int:
        """Return how many of the first ``chunks`` the engine has without a gap."""
        sent = self._sent.get(engine, ())
        for place, chunk in enumerate(chunks):
            if chunk not in sent:
                return place
        return len(chunks)

    def note(self, engine: str, chunks: Sequence[int], most: int) -> None:
        """Remember that ``chunks`` were sent there; keep at most ``most`` chunks in all.

        Forgets the last chunks of a prompt first, as engines do, because they are useless without its beginning.
        """
        sent = self._sent.setdefault(engine, OrderedDict())
        for chunk in reversed(chunks):
            sent[chunk] = None
            sent.move_to_end(chunk)
        while len(sent) > most:
            sent.popitem(last=False)

    def forget(self, engine: str) -> None:
        """Drop an engine that has ended: when it is launched again, its cache is empty."""
        self._sent.pop(engine, None)

    def keep_only(self, engines: Collection[str]) -> None:
        """Drop all other engines."""
        self._sent = {name: sent for name, sent in self._sent.items() if name in engines}
