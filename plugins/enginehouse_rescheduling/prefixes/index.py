"""Which chunks of prompts each instance has in its prefix cache, as far as this gateway knows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence


class PrefixIndex:
    """Remembers the chunks that were sent to each instance last. Engines are not asked, so it may be wrong."""

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[int, None]] = {}

    def leading(self, instance: str, chunks: Sequence[int]) -> int:
        """How many of the first ``chunks`` the instance has without a gap."""
        sent = self._sent.get(instance, ())
        for place, chunk in enumerate(chunks):
            if chunk not in sent:
                return place
        return len(chunks)

    def note(self, instance: str, chunks: Sequence[int], most: int) -> None:
        """Remember that ``chunks`` were sent there, and at most ``most`` in all.

        The last chunks of a prompt are forgotten first, as engines do.
        """
        sent = self._sent.setdefault(instance, OrderedDict())
        for chunk in reversed(chunks):
            sent[chunk] = None
            sent.move_to_end(chunk)
        while len(sent) > most:
            sent.popitem(last=False)

    def keep_only(self, instances: Collection[str]) -> None:
        """Forget all other instances: those that come back may have been restarted."""
        self._sent = {name: sent for name, sent in self._sent.items() if name in instances}
