"""One request of ``cache_aware`` at its engine, from which the strategy learns how fast the engine is."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse import Candidate
from enginehouse.requests import Tokens
from enginehouse.routing_facts import Placement, PrefixFacts
from enginehouse_routing.engine_costs import EngineCosts
from enginehouse_routing.learned_rate import EngineState, UnreadPrompt


class Learning(Placement):
    """A request at one engine: part of its backlog until the prompt is read, then an example to learn from.

    ``tokens``: of its prompt; ``unread``: those of them that the engine probably has not cached. The first byte of a
    ``stream`` is its first token; that of another answer is its last one.
    """

    __slots__ = (
        *(
            "_adapter",
            "_ahead",
            "_began",
            "_costs",
            "_engine",
            "_first",
            "_granted",
            "_is_stream",
            "_prompt",
            "_tokens",
        ),
        *("_unread", "_waking", "tokens_of"),
    )

    def __init__(self, costs: EngineCosts, engine: EngineState, tokens: int, unread: int, stream: bool) -> None:
        self._costs = costs
        self._engine = engine
        self._tokens = tokens
        self._unread = unread
        self._is_stream = stream
        self.prefix: PrefixFacts | None = None
        self.tokens_of: Callable[[], None] | None = None
        self._granted = self._ahead = self._first = 0.0
        self._began = False
        self._prompt: UnreadPrompt | None = None
        self._waking: Candidate | None = None
        self._adapter = ""

    def take_note_of(self, chosen: Candidate) -> None:
        """Follow the load of the replica too, and its adapter, if it needs a load or is an adapter."""
        self._waking = chosen if chosen.wake_s else None
        self._adapter = (chosen.name_there or chosen.model) if chosen.capabilities.parent is not None else ""

    def queued(self) -> None:
        waking = self._waking
        if waking is not None:
            self._costs.loading.setdefault(waking.host, {})[waking.replica] = waking.wake_s
        self._prompt = self._costs.begin(self._engine, self._unread)
        if self._adapter:
            self._engine.begin_adapter(self._adapter)

    def granted(self) -> None:
        self._granted = self._costs.now()
        self._ahead = max(0.0, self._engine.backlog - self._unread)
        if not self._is_stream and self._prompt is not None:
            self._costs.will_be_read(self._prompt, self._ahead, self._granted)
        if self._waking is not None:
            self._loaded(self._waking)

    def first_byte(self) -> None:
        self._began = True
        if self._is_stream:
            self._first = self._costs.now()
            self._costs.read(self._engine, self._first - self._granted, self._unread + self._ahead)
        if self._prompt is not None:
            self._costs.is_read(self._prompt)
            self._prompt = None
        if self.tokens_of is not None:
            self.tokens_of()
            self.tokens_of = None

    def counted(self, tokens: Tokens) -> None:
        costs, engine, now = self._costs, self._engine, self._costs.now()
        written = float(tokens.output - 1)
        if self._is_stream:
            if written > 0:
                costs.wrote(engine, now - self._first, written)
            return
        if not tokens.input or not costs.counts_answer(engine, now):
            return
        read, took = self._ahead + self._read_of(tokens), now - self._granted
        timings = tokens.timings
        rate = (timings.decode_rate if timings is not None else None) or 0.0
        writing = tokens.output / rate if rate > 0 else 0.0
        if written <= 0:
            costs.read(engine, took, read)
        elif 0 < writing <= took:
            costs.read(engine, took - writing, read)
            costs.wrote(engine, writing, written)
        else:
            costs.answered(engine, took, read, written)

    def ended(self) -> None:
        if self._began:
            self._costs.ended(self._engine, self._costs.now() - self._granted)
        if self._prompt is not None:
            self._costs.is_read(self._prompt)
        if self._waking is not None:
            self._loaded(self._waking)
        if self._adapter:
            self._engine.end_adapter(self._adapter)

    def _read_of(self, tokens: Tokens) -> float:
        """The tokens of the prompt that the engine has read, by its own count, as prompts are measured here."""
        if tokens.cached is None:
            return self._unread
        return self._tokens * max(0.0, 1 - tokens.cached / tokens.input)

    def _loaded(self, waking: Candidate) -> None:
        there = self._costs.loading.get(waking.host)
        if there is not None:
            there.pop(waking.replica, None)
