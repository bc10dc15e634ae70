"""Requests and faults, one after the other, to be served by a real gateway and to be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from enginehouse_sim.simulator.replay.faults import FaultKind, PlannedFault
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest

TPOT_S = 0.02
LONG = 7000
"""Tokens of an answer that outlives its scenario."""


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """A client sends a request. ``key``: the name of its key."""

    model: str = "m"
    prompt: int = 20
    output: int = 1
    prefix: tuple[int, ...] = ()
    key: str = ""
    stream: bool = True


class Begin(msgspec.Struct, frozen=True):
    """A fault of an engine begins."""

    kind: FaultKind
    engine: str


class End(msgspec.Struct, frozen=True):
    """The fault of an engine ends."""

    engine: str


Step = Send | Begin | End


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a gateway with ``config``, whose backends have the URLs ``{a}``, ``{b}`` and ``{c}``.

    A step begins when all that the one before leads to has happened: in a replay, after ``pace`` seconds.
    """

    name: str
    config: str
    steps: Sequence[Step]
    pace: float = 2.0

    @property
    def requests(self) -> Sequence[TraceRequest]:
        """The requests. Each is numbered by its place here."""
        return [
            TraceRequest(
                arrival=number * self.pace,
                input_length=step.prompt,
                output_length=step.output,
                prefix_ids=step.prefix,
                prefix_tokens=64,
                model=step.model,
                key=step.key,
                stream=step.stream,
            )
            for number, step in enumerate(self.steps)
            if isinstance(step, Send)
        ]

    @property
    def faults(self) -> Sequence[PlannedFault]:
        """The faults, each at the time of its step. An engine that is killed has no other fault any more."""
        begun: dict[str, PlannedFault] = {}
        faults = []
        for number, step in enumerate(self.steps):
            at = number * self.pace
            if isinstance(step, Begin):
                if step.engine in begun:
                    assert step.kind is FaultKind.KILL
                    faults.append(begun[step.engine])
                begun[step.engine] = PlannedFault(engine=step.engine, kind=step.kind, at=at)
            elif isinstance(step, End):
                fault = begun.pop(step.engine)
                faults.append(msgspec.structs.replace(fault, duration=at - fault.at))
        return [*faults, *begun.values()]


class Counts(NamedTuple):
    """How often requests were sent again, asked of a second engine, and continued elsewhere."""

    retries: int = 0
    hedges: int = 0
    continuations: int = 0


class Seen(NamedTuple):
    """What was seen of the requests of a scenario, by number.

    ``ways``: the decisions about each, in order. ``ends``: the error codes of those that have ended, empty for whole
    answers.
    """

    ways: Mapping[int, Sequence[str]]
    ends: Mapping[int, str]
    counts: Counts


class Progress(NamedTuple):
    """How far all requests have come: the number of decisions, of ends, and of unfinished answers that have begun."""

    decisions: int
    ends: int
    begun: int
    counts: Counts

    @classmethod
    def of(cls, seen: Seen, begun: int) -> Progress:
        return cls(sum(map(len, seen.ways.values())), len(seen.ends), begun, seen.counts)


def ways_of(decisions: Iterable[Mapping[str, Any]]) -> dict[int, list[str]]:
    """The decisions about each request, in order, as texts; ``decisions``: oldest first, as the gateway shows them."""
    ways: dict[int, list[str]] = {}
    for each in decisions:
        way = each["error"]["code"] if each["error"] else f"{each['reason']} {each['chosen']}"
        if each.get("prefill"):
            way += f" after {each['prefill']}"
        ways.setdefault(int(each["request_id"]), []).append(way)
    return ways
