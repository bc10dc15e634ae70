"""Makes traces: arrivals, lengths and common prefixes drawn from distributions, or as published of coding agents."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, count
from typing import BinaryIO

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.replay.traces.reader import PREFIX_TOKENS, TraceRequest

_TOOLS = 24_000
"""Tokens of the tools and the system prompt, which all agents have in common."""
_BEGIN = 60_000
"""The median of what an agent has read before its first turn here: its files, and a summary of what was before."""
_READ = 3000
"""The median of what a tool returns in a turn."""
_WRITTEN = 317
_TURNS = 48
_LONGEST_CONVERSATION = 320_000
"""Then an agent ends: clients compact a conversation before it reaches the context length."""
_FORK_EVERY = 16
_SUBAGENTS = 7
_SUB_TURNS = 6
_GAP_S = 2.0
_SECONDS_PER_TOKEN = 0.03
"""An engine writes slowly behind so long a prompt."""
_LIFE_S = 700
_REQUESTS = _TURNS + (_TURNS - 1) // _FORK_EVERY * _SUBAGENTS * _SUB_TURNS


class CodingAgents:
    """Agents that work with tools, at ``rate`` requests in a second.

    An agent's turn sends all that was before, the last answer and what a tool has returned: 195,000 tokens in the
    median, of which some 3,000 are new. It gets 317 tokens and comes back 2 s after their end, both in the median.
    After each 16 turns it has 7 subagents work for 6 turns each: they begin at once, with all that it has and a task of
    their own. So 97 % of the tokens were in an earlier prompt. The medians, gaps and groups are those that llm-d
    published of a trace of Claude Code; all else is assumed.
    """

    def __init__(self, rate: float, seed: int = 0) -> None:
        self._rate = rate
        self._chance = random.Random(f"{seed}/agents")
        self._ids = count(1)
        self._tools = self._blocks(_TOOLS)

    def requests(self, number: int) -> Iterator[TraceRequest]:
        """Make ``number`` requests, in the order of their arrival. Equal for equal seeds."""
        order = count()
        due: list[tuple[float, int, Iterator[TraceRequest], TraceRequest]] = []

        def follow(turns: Iterator[TraceRequest]) -> None:
            request = next(turns, None)
            if request is not None:
                heappush(due, (request.arrival, next(order), turns, request))

        begins = 0.0
        for _ in range(max(1, round(self._rate / _REQUESTS * _LIFE_S))):  # they are in their work already
            for turns in self._agent(self._chance.random() * _GAP_S, self._chance.randrange(_TURNS)):
                follow(turns)
        for _ in range(number):
            while not due or due[0][0] >= begins:
                for turns in self._agent(begins, 0):
                    follow(turns)
                begins += self._chance.expovariate(self._rate / _REQUESTS)
            _, _, turns, request = heappop(due)
            yield request
            follow(turns)

    def _agent(self, at: float, done: int) -> Iterator[Iterator[TraceRequest]]:
        """The turns of an agent and of each of its subagents, from the turn ``done`` on."""
        prompt = self._tools + self._blocks(self._about(_BEGIN, 0.4))
        for _ in range(done):
            prompt += self._blocks(self._about(_READ, 0.8) + _WRITTEN)
        turns: list[TraceRequest] = []
        for turn in range(done, _TURNS):
            if len(prompt) * PREFIX_TOKENS > _LONGEST_CONVERSATION:
                break
            written = self._about(_WRITTEN, 0.6)
            turns.append(_request(at, prompt, written))
            at = self._after(at, written)
            if turn and turn % _FORK_EVERY == 0:
                for _ in range(_SUBAGENTS):
                    yield iter(self._subagent(at, prompt))
                at += _SUB_TURNS * (_GAP_S + _WRITTEN * _SECONDS_PER_TOKEN)
            prompt = prompt + self._blocks(self._about(_READ, 0.8) + written)
        yield iter(turns)

    def _subagent(self, at: float, prompt: list[int]) -> list[TraceRequest]:
        found: list[TraceRequest] = []
        for _ in range(_SUB_TURNS):
            written = self._about(_WRITTEN, 0.6)
            prompt = prompt + self._blocks(self._about(_READ, 0.8) + written)
            found.append(_request(at, prompt, written))
            at = self._after(at, written)
        return found

    def _after(self, at: float, written: int) -> float:
        return at + written * _SECONDS_PER_TOKEN + self._about(1000 * _GAP_S, 0.8) / 1000

    def _about(self, median: float, spread: float) -> int:
        return max(1, round(median * self._chance.lognormvariate(0, spread)))

    def _blocks(self, tokens: int) -> list[int]:
        return [next(self._ids) for _ in range(max(1, round(tokens / PREFIX_TOKENS)))]


def _request(at: float, prompt: list[int], written: int) -> TraceRequest:
    return TraceRequest(
        arrival=round(at, 6),
        input_length=len(prompt) * PREFIX_TOKENS + 24,
        output_length=written,
        prefix_ids=prompt,
    )


SHAPES = {
    "azure-conversation": "1020~1155:129~211",
    "azure-code": "1500~2048:13~28",
    "mooncake-conversation": "~12035:~343",
    "mooncake-toolagent": "~8596:~182",
}
"""Lengths by the name of the public trace that they resemble. The figures are assumptions, not those of the files."""

CODING_AGENTS = "coding-agents"
_PREFIX_TOKENS = 64
_GROUPS = 64
_LONGEST = 1 << 20
_LENGTH = re.compile(r"(?:(\d+)([-~])|(~)?)(\d+)")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of requests.

    ``rate``: the mean number of arrivals in a second, as a Poisson process. ``lengths``: those of input and output, as
    a name of ``SHAPES`` or as ``IN:OUT``, each ``512``, ``200-800`` (any equally likely), ``1020~1155`` (log-normal
    with this median and mean) or ``~8596`` (exponential with this mean). ``coding-agents`` are ``CodingAgents``, with
    prefixes of their own. ``prefix_sharing``: the share of each prompt that it has in common with those of its group;
    there are 64 groups, the n-th with a share of requests in proportion to 1/n. ``models``: the models, each equally
    likely.
    """

    rate: float
    lengths: str = "azure-conversation"
    prefix_sharing: float = 0.0
    models: Sequence[str] = ()
    seed: int = 0

    def requests(self, number: int) -> Iterator[TraceRequest]:
        """Make ``number`` requests, equal ones for equal workloads. Raises ``ConfigError`` for unreadable lengths."""
        if self.lengths == CODING_AGENTS:
            yield from CodingAgents(self.rate, self.seed).requests(number)
            return
        draw_input, draw_output = lengths_of(self.lengths)
        arrivals, sizes, sharing = (random.Random(f"{self.seed}/{part}") for part in ("arrival", "size", "prefix"))
        weights = list(accumulate(1 / rank for rank in range(1, _GROUPS + 1)))
        now = 0.0
        for _ in range(number):
            input_length = draw_input(sizes)
            group = sharing.choices(range(_GROUPS), cum_weights=weights)[0]
            ids = int(input_length * self.prefix_sharing) // _PREFIX_TOKENS
            yield TraceRequest(
                arrival=round(now, 6),
                input_length=input_length,
                output_length=draw_output(sizes),
                prefix_ids=tuple(range(group * _LONGEST, group * _LONGEST + ids)),
                prefix_tokens=_PREFIX_TOKENS if ids else PREFIX_TOKENS,
                model=sharing.choice(self.models) if self.models else "",
            )
            now += arrivals.expovariate(self.rate)


Draw = Callable[[random.Random], int]


def lengths_of(text: str) -> tuple[Draw, Draw]:
    """The distributions of input and output. Raises ``ConfigError``."""
    given, colon, wanted = SHAPES.get(text, text).partition(":")
    if not colon:
        raise ConfigError(
            f"{text!r} does not give lengths",
            key="--lengths",
            remedy=f"write IN:OUT, such as 200-800:1020~1155, or one of {', '.join((*SHAPES, CODING_AGENTS))}",
        )
    return _draw(given), _draw(wanted)


def _draw(text: str) -> Draw:
    found = _LENGTH.fullmatch(text.strip())
    if found is None or not int(found[4]):
        remedy = "write 512, 200-800, 1020~1155 (median and mean) or ~8596 (mean)"
        raise ConfigError(f"{text!r} is not a length", key="--lengths", remedy=remedy)
    last = int(found[4])
    first = int(found[1] or last)
    if not 1 <= first <= last <= _LONGEST:
        why = f"the first number is 0 or too large, or the last one is above {_LONGEST:,}"
        raise ConfigError(f"{text!r} is not a length: {why}", key="--lengths")
    if found[3]:
        return lambda chance: _bounded(chance.expovariate(1 / last))
    if found[2] == "~":
        spread = math.sqrt(2 * math.log(last / first))  # the mean is exp(mu + spread^2 / 2), the median exp(mu)
        return lambda chance: _bounded(chance.lognormvariate(math.log(first), spread))
    return lambda chance: chance.randint(first, last)


def _bounded(length: float) -> int:
    return max(1, min(_LONGEST, round(length)))


def write(requests: Iterable[TraceRequest], out: BinaryIO) -> None:
    """Write a trace in the plain format, as JSON lines."""
    encoder = msgspec.json.Encoder()
    for request in requests:
        out.write(encoder.encode(request) + b"\n")
