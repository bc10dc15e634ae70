"""Makes traces: arrivals, lengths and common prefixes drawn from distributions."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import BinaryIO

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.replay.traces.coding_agents import CodingAgents
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

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
                prefix_ids=[group * _LONGEST + place for place in range(ids)],
                prefix_tokens=_PREFIX_TOKENS,
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
        fields = msgspec.structs.asdict(request)
        if not request.prefix_ids:
            del fields["prefix_ids"], fields["prefix_tokens"]
        for name in ("model", "key"):
            if not fields[name]:
                del fields[name]
        if request.stream:
            del fields["stream"]
        out.write(encoder.encode(fields) + b"\n")
