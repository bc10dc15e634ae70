"""The probes of a calibration: which prompts and streams to send to an engine."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec

from enginehouse_sim.simulator.steps.profile import EngineLimits

WINDOW = 24
"""The tokens of each stream that are timed at least while nothing else happens, and again while prompts are read."""
WINDOW_S = 0.15
"""The seconds that both take at least, if the context has room: a fast engine makes 24 tokens in a few milliseconds."""
INJECTED = 3
"""The prompts that are read at least, one after the other, beside running streams."""
_WAITING = (8, 16, 32)
"""How many requests wait for a place."""
_LENGTHS = 8
_REPEATS = 10
_SHORTEST = 16
_NEW = 8
"""One part in so many of the prompt that a cache may know is new."""
KNOWN = 3
"""The prompts whose beginning a cache may know. Other work only adds time, so the fastest of them counts."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One probe. ``streams`` 0: a prompt of ``context`` tokens alone, for its first token; it begins with the
    ``cached`` ones of a prompt that the engine has just read.

    Else so many streams behind ``context`` tokens each, and then ``INJECTED`` prompts of ``beside`` tokens beside them,
    or so many requests that are ``waiting`` for the place of one; neither if both are 0.
    """

    context: int
    streams: int = 0
    beside: int = 0
    waiting: int = 0
    cached: int = 0

    @property
    def name(self) -> str:
        if self.cached:
            return f"prompt {self.context} of which {self.cached} are known"
        if not self.streams:
            return f"prompt {self.context}"
        if self.waiting:
            return f"{self.streams} streams of {self.context}, {self.waiting} requests wait"
        if not self.beside:
            return f"{self.streams} streams of {self.context}"
        return f"{self.streams} streams of {self.context}, prompts of {self.beside}"

    @property
    def requests(self) -> int:
        others = self.waiting + INJECTED * bool(self.beside)
        return self.streams + others if self.streams else 1 + KNOWN * bool(self.cached)

    @property
    def tokens(self) -> int:
        """The tokens to compute, in and out, at least."""
        if not self.streams:
            return self.context + 1 + bool(self.cached) * ((KNOWN - 1) * (self.context - self.cached) + KNOWN)
        return self.streams * (self.context + 2 * WINDOW) + INJECTED * (self.beside + 1)


class ProbeBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The most streams at once, and the longest prompt."""

    streams: int = 32
    prompt: int = 4096


def bounds_of(limits: EngineLimits, wanted: ProbeBounds) -> ProbeBounds:
    """The bounds that the engine's limits allow.

    A prompt is read in one pass, and leaves room for an answer.
    """
    prompt = min(wanted.prompt, (limits.max_model_len or wanted.prompt * 2) * 2 // 3)
    prompt = max(_SHORTEST * 2, min(prompt, limits.max_num_batched_tokens or prompt))
    return ProbeBounds(streams=min(wanted.streams, limits.max_num_seqs or wanted.streams), prompt=prompt)


def probes_of(limits: EngineLimits, bounds: ProbeBounds) -> list[Probe]:
    """All different probes: prompts of several lengths, one that a cache may know, streams in several numbers and
    lengths, and requests that wait because the engine serves no more at once.

    No prompt is read beside so many streams.
    """
    step = (bounds.prompt / _SHORTEST) ** (1 / (_LENGTHS - 1))
    lengths = sorted({round(_SHORTEST * step**at) for at in range(_LENGTHS)})
    prompts = [Probe(context=length) for length in lengths]
    room = (limits.block_size or 0) * (limits.total_gpu_blocks or 0)
    full = limits.max_num_seqs or bounds.streams + 1
    numbers = sorted({min(number, bounds.streams) for number in (1, 2, 4, 16, full - 1, bounds.streams) if number})
    contexts = sorted({min(32, bounds.prompt), bounds.prompt // 3, bounds.prompt * 2 // 3})
    streams = []
    for number in numbers:
        for at, context in enumerate(contexts):
            if not room or (number + 1) * (context + 6 * WINDOW) < 0.9 * room:
                beside = lengths[(2 * at + number) % len(lengths)] if number < full else 0
                streams.append(Probe(context=context, streams=number, beside=beside))
    if full <= bounds.streams:
        streams += [Probe(context=contexts[0], streams=full, waiting=number) for number in _WAITING]
    known = bounds.prompt - bounds.prompt // _NEW
    return [*prompts, Probe(context=bounds.prompt, cached=known), *streams]


def in_random_order(probes: Sequence[Probe], seed: int) -> Iterator[tuple[int, Probe]]:
    """Each probe several times, with the number of the repeat. Each round has all of them, in another order."""
    chance = random.Random(seed)
    for repeat in range(_REPEATS):
        order = list(probes)
        chance.shuffle(order)
        for probe in order:
            yield repeat, probe


def prompt_tokens(chance: random.Random, length: int) -> list[int]:
    """A prompt that no cache knows, of tokens that nearly every vocabulary has."""
    return [chance.randrange(10, 250) for _ in range(length)]
