"""Made-up traffic for ``placement.py``: agents, chats, both with long single prompts, fan-out, and coding agents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.replay.traces.workload import CodingAgents

_BLOCK = 64
"""Tokens for each prefix id."""


class Source:
    """Draws requests from one seed. Each block of a prompt has a number of its own unless prompts share it."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self._numbers = count(1)

    def blocks(self, tokens: int) -> list[int]:
        """New blocks for about so many ``tokens``."""
        return [next(self._numbers) for _ in range(max(1, tokens // _BLOCK))]

    def around(self, mean: float) -> int:
        """A number of tokens: log-normal, half of them within a third of the median."""
        return max(8, round(mean * self.chance.lognormvariate(-0.125, 0.5)))

    def conversation(
        self, at: float, turns: int, begin: Sequence[int], said: int, answer: int
    ) -> Iterator[TraceRequest]:
        """Turns that each begin with all that was said before."""
        prompt = list(begin)
        for _ in range(turns):
            prompt += self.blocks(self.around(said))
            out = self.around(answer)
            yield request(at, prompt, out)
            prompt += self.blocks(out)
            at += out * 0.01 + self.chance.expovariate(1 / 2.0)


def request(at: float, blocks: Sequence[int], out: int) -> TraceRequest:
    """A request: whole blocks and a few tokens more, which no other prompt has."""
    return TraceRequest(
        arrival=at,
        input_length=len(blocks) * _BLOCK + 24,
        output_length=out,
        prefix_ids=list(blocks),
        prefix_tokens=_BLOCK,
    )


def _agents(source: Source, rate: float, number: int) -> list[TraceRequest]:
    """Agents of eight kinds, each with a long beginning of its own; a turn adds the result of a tool."""
    kinds = [source.blocks(size) for size in (1500, 2000, 2500, 3000, 3500, 4000, 5000, 6000)]
    weights = [1 / rank for rank in range(1, len(kinds) + 1)]
    found: list[TraceRequest] = []
    at, turns = 0.0, 5
    while len(found) < number * 1.3:
        kind = source.chance.choices(kinds, weights)[0]
        found += source.conversation(at, turns, kind, said=350, answer=90)
        at += source.chance.expovariate(rate / turns)
    return found


def _chats(source: Source, rate: float, number: int) -> list[TraceRequest]:
    """Conversations with a short common beginning."""
    system, turns = source.blocks(256), 6
    found: list[TraceRequest] = []
    at = 0.0
    while len(found) < number * 1.3:
        found += source.conversation(at, turns, system, said=180, answer=160)
        at += source.chance.expovariate(rate / turns)
    return found


def _mixed(source: Source, rate: float, number: int) -> list[TraceRequest]:
    """Agents and chats by halves, and for every tenth request a long prompt that nobody else has."""
    agents, chats = _agents(source, rate * 0.45, number // 2), _chats(source, rate * 0.45, number // 2)
    found, at = [*agents, *chats], 0.0
    for _ in range(number // 10):
        found.append(request(at, source.blocks(source.around(8000)), source.around(60)))
        at += source.chance.expovariate(rate * 0.1)
    return found


def _fan_out(source: Source, rate: float, number: int) -> list[TraceRequest]:
    """Twelve requests at once, with a long beginning in common."""
    found: list[TraceRequest] = []
    at, width = 0.0, 12
    while len(found) < number:
        begin = source.blocks(source.around(4000))
        found += (request(at, [*begin, *source.blocks(source.around(200))], source.around(60)) for _ in range(width))
        at += source.chance.expovariate(rate / width)
    return found


def _coding(source: Source, rate: float, number: int) -> list[TraceRequest]:
    """Coding agents with prompts of 195,000 tokens: for the fleet ``A8``, whose caches have room for them."""
    return list(CodingAgents(rate, source.chance.randrange(1 << 32)).requests(number))


TRACES: Mapping[str, tuple[Callable[[Source, float, int], list[TraceRequest]], float]] = {
    "agents": (_agents, 1.0),
    "chat": (_chats, 0.62),
    "mixed": (_mixed, 0.75),
    "fan-out": (_fan_out, 0.9),
    "coding": (_coding, 0.045),
}
"""Each with the requests per second for one slot and a load of 1: 53 to 67 % of what it serves if it is never free."""


def reusable(requests: Sequence[TraceRequest]) -> int:
    """The tokens at the beginnings of prompts that earlier ones began with."""
    known: set[int] = set()
    tokens = 0
    for each in requests:
        same = next((place for place, block in enumerate(each.prefix_ids) if block not in known), len(each.prefix_ids))
        tokens += same * each.prefix_tokens
        known.update(each.prefix_ids)
    return tokens


def trace(name: str, load: float, slots: float, number: int, seed: int) -> list[TraceRequest]:
    """The first ``number`` requests of a trace in the order of their arrival, for so many ``slots`` in all."""
    make, rate = TRACES[name]
    found = make(Source(f"{name}/{seed}"), rate * load * slots, number)
    return sorted(found, key=lambda each: each.arrival)[:number]
