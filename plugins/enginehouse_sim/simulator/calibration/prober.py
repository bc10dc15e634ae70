"""The probes of a calibration, and how they are sent to an engine and timed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

import msgspec

from enginehouse import GatewayError
from enginehouse_sim.simulator.calibration.fit import Observation, StepWork, prompt_work
from enginehouse_sim.simulator.calibration.streams import EngineAddress, EngineFacts, TimedStream, body_for, stream
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


def in_random_order(probes: Sequence[Probe]) -> Iterator[tuple[int, Probe]]:
    """Each probe several times, with the number of the repeat. Each round has all of them, in another order."""
    for repeat in range(_REPEATS):
        for probe in random.sample(probes, len(probes)):
            yield repeat, probe


def prompt_tokens(chance: random.Random, length: int) -> list[int]:
    """A prompt that no cache knows, of tokens that nearly every vocabulary has."""
    return [chance.randrange(10, 250) for _ in range(length)]


_PATIENCE_S = 120.0
_SHORT = 16
_PROMPTS = 8
_ARRIVED = 8
"""After so many further tokens of each stream, the requests that are to wait have reached the engine."""


class Prober:
    """Probes one engine. Its prompts are new in each run: the engine's cache may have those of earlier ones."""

    def __init__(self, address: EngineAddress, facts: EngineFacts) -> None:
        self._address = address
        self._facts = facts
        self._chance = random.Random()

    async def observe(self, probe: Probe) -> list[Observation]:
        """Carry one probe out. Raises ``GatewayError``."""
        if probe.streams:
            return await self._streams(probe)
        return [await self._known(probe)] if probe.cached else await self._prompts(probe)

    async def _prompts(self, probe: Probe) -> list[Observation]:
        """Ask for first tokens, one after the other: once, or as often as fits into a window."""
        found: list[Observation] = []
        end = perf_counter() + WINDOW_S
        while not found or (perf_counter() < end and len(found) < _PROMPTS):
            timed = await self._ask(probe.context, 1)
            ms = 1000 * (timed.events[0] - timed.sent)
            work = [prompt_work(probe.context)]
            found.append(Observation(point=probe.name, kind="prompt", work=work, requests=1, ms=ms))
        return found

    async def _known(self, probe: Probe) -> Observation:
        """Ask for the first tokens behind prompts whose beginning the engine has just read."""
        beginning, times = prompt_tokens(self._chance, probe.cached), []
        await self._send(beginning, 1, caches=True)
        for _ in range(KNOWN):
            prompt = [*beginning, *prompt_tokens(self._chance, probe.context - probe.cached)]
            timed = await self._send(prompt, 1, caches=True)
            times.append(1000 * (timed.events[0] - timed.sent))
        work = [prompt_work(probe.context - probe.cached, probe.cached)]
        return Observation(
            point=probe.name, kind="cached", work=work, requests=1, ms=min(times), uncached=[prompt_work(probe.context)]
        )

    async def _ask(self, length: int, max_tokens: int) -> TimedStream:
        return await self._send(prompt_tokens(self._chance, length), max_tokens)

    async def _send(self, prompt: list[int], max_tokens: int, *, caches: bool = False) -> TimedStream:
        timed = await stream(self._address, body_for(self._facts.kind, prompt, max_tokens, caches=caches))
        if not timed.events:
            raise GatewayError(f"{self._address.url} answered without a token")
        return timed

    async def _streams(self, probe: Probe) -> list[Observation]:
        """Let streams run, time them alone, then beside prompts or while others wait; then leave them.

        A window in which a stream ends is left out: the engine stood still, or was much faster than before. So is one
        in which a request did not wait.
        """
        running = _RunningStreams(probe, self._address, self._facts, self._chance)
        found: list[Observation] = []
        try:
            await running.until_each_has(1)
            found.append(_decode(probe, await self._window(running)))
            if probe.beside:
                found.append(_mixed(probe, *await self._beside(probe, running)))
            if probe.waiting:
                found.append(_decode(probe, await self._while_others_wait(probe, running), probe.waiting))
        except _EndedTooSoon:
            pass
        finally:
            await running.leave()
            await self._ask(_SHORT, 1)  # the engine may still compute for the streams, and the next probe is alone
        return found

    async def _while_others_wait(self, probe: Probe, running: _RunningStreams) -> _Window:
        waiting = [asyncio.ensure_future(self._ask(_SHORT, 1)) for _ in range(probe.waiting)]
        try:
            await running.until_each_has(_ARRIVED, running.mark())
            window = await self._window(running)
            if any(each.done() for each in waiting):
                raise _EndedTooSoon("the engine has served a request that should wait")
            return window
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _window(self, running: _RunningStreams) -> _Window:
        begin = running.mark()
        await running.until_each_has(WINDOW, begin)
        while running.goes_on(begin):
            await running.until_each_has(1, running.mark())
        return running.between(begin, running.mark())

    async def _beside(self, probe: Probe, running: _RunningStreams) -> tuple[_Window, int]:
        """A window in which prompts were read, and the number of prompts."""
        begin, prompts = running.mark(), 0
        while prompts < INJECTED or running.goes_on(begin):
            await self._ask(probe.beside, 1)
            prompts += 1
        await running.until_each_has(1, running.mark())
        return running.between(begin, running.mark()), prompts


class _EndedTooSoon(GatewayError):
    """A stream reached its last token while it was timed."""


class _Mark(NamedTuple):
    """The time, and how many events each stream has had."""

    at: float
    events: Sequence[int]


class _Window(NamedTuple):
    """Between two marks: the milliseconds of a token of one stream, the mean tokens of a stream, and its context."""

    ms_per_token: float
    tokens: float
    context: float


class _RunningStreams:
    """The streams of a probe, which run until they are left."""

    def __init__(self, probe: Probe, address: EngineAddress, facts: EngineFacts, chance: random.Random) -> None:
        self._changed = asyncio.Event()
        self._context = probe.context
        self._tokens_per_event = facts.tokens_per_event
        room = facts.limits.max_model_len
        most = 4096 if room is None else max(4 * WINDOW, min(4096, room - probe.context - 1))
        self._share = most // 3
        self._timed: list[TimedStream] = []
        self._tasks = []
        for _ in range(probe.streams):
            body = body_for(facts.kind, prompt_tokens(chance, probe.context), most)
            timed = TimedStream(self._changed.set)
            self._timed.append(timed)
            task = asyncio.ensure_future(stream(address, body, timed))
            task.add_done_callback(lambda _: self._changed.set())
            self._tasks.append(task)

    def mark(self) -> _Mark:
        return _Mark(perf_counter(), [len(timed.events) for timed in self._timed])

    def goes_on(self, since: _Mark) -> bool:
        """Whether a window that began there should go on: it is short, and no stream has had its share of tokens."""
        had = max(self._tokens(timed, before, None) for timed, before in zip(self._timed, since.events, strict=True))
        return had < self._share and perf_counter() < since.at + WINDOW_S

    def _tokens(self, timed: TimedStream, begin: int, end: int | None) -> float:
        """The tokens from one number of events to another, by the engine's count if it has one."""
        end = len(timed.events) if end is None else end
        if timed.made:
            return timed.made[end - 1] - timed.made[begin - 1]
        return (end - begin) * self._tokens_per_event

    async def until_each_has(self, more: int, since: _Mark | None = None) -> None:
        """Wait until each stream has had so many ``more`` events. Raises ``GatewayError``."""
        before = since.events if since is not None else [0] * len(self._timed)
        while any(len(timed.events) < had + more for timed, had in zip(self._timed, before, strict=True)):
            for task in self._tasks:
                if task.done():
                    task.result()
                    raise _EndedTooSoon("a stream ended too soon: the context is too short for the probe")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), _PATIENCE_S)
            except asyncio.TimeoutError:
                raise GatewayError(f"no stream had a token for {_PATIENCE_S:.0f} s") from None

    def between(self, begin: _Mark, end: _Mark) -> _Window:
        """The mean over the streams, each from its last event before ``begin`` to its last event before ``end``."""
        times, tokens, contexts = [], [], []
        for timed, first, last in zip(self._timed, begin.events, end.events, strict=True):
            count = self._tokens(timed, first, last)
            times.append(1000 * (timed.events[last - 1] - timed.events[first - 1]) / count)
            tokens.append(count)
            contexts.append(self._context + self._tokens(timed, 1, first) + count / 2)
        number = len(times)
        return _Window(sum(times) / number, sum(tokens) / number, sum(contexts) / number)

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _decode(probe: Probe, window: _Window, waiting: int = 0) -> Observation:
    """The time of a pass without a prompt, while so many requests are ``waiting``."""
    work = StepWork(decodes=probe.streams, kv_tokens=probe.streams * window.context, waiting=waiting)
    point = probe.name if waiting else f"{probe.name}: alone"
    return Observation(point=point, kind="waiting" if waiting else "decode", work=[work], ms=window.ms_per_token)


def _mixed(probe: Probe, beside: _Window, prompts: int) -> Observation:
    """The time of all passes while so many ``prompts`` were read, each in a pass."""
    kv_tokens = probe.streams * beside.context
    mixed = StepWork(
        passes=prompts,
        prompt_tokens=probe.beside,
        pairs=probe.beside * (probe.beside + 1) / 2,
        first_tokens=1,
        decodes=probe.streams,
        kv_tokens=kv_tokens,
    )
    others = StepWork(passes=max(0.0, beside.tokens - prompts), decodes=probe.streams, kv_tokens=kv_tokens)
    ms = beside.ms_per_token * beside.tokens
    return Observation(point=f"{probe.name}: beside", kind="mixed", work=[mixed, others], ms=ms)
