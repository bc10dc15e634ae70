"""Makes traces like the traffic of coding agents, by the published figures of one: ``CodingAgents``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

_BLOCK = 512
"""Tokens for each prefix id."""
_TOOLS = 24_000
"""Tokens of the tools and the system prompt, which all agents have in common."""
_BEGIN = 60_000
"""The median of what an agent has read before its first turn here: its files, and a summary of what was before."""
_READ = 3000
"""The median of what a tool returns in a turn."""
_WRITTEN = 317
_TURNS = 48
_LONGEST = 320_000
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
            if len(prompt) * _BLOCK > _LONGEST:
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
        return [next(self._ids) for _ in range(max(1, round(tokens / _BLOCK)))]


def _request(at: float, prompt: list[int], written: int) -> TraceRequest:
    return TraceRequest(
        arrival=round(at, 6),
        input_length=len(prompt) * _BLOCK + 24,
        output_length=written,
        prefix_ids=prompt,
        prefix_tokens=_BLOCK,
    )
