"""Sends probes to an engine and times them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple

from enginehouse import GatewayError
from enginehouse_sim.simulator.calibration.facts import EngineFacts, body_for
from enginehouse_sim.simulator.calibration.observation import Observation, StepWork, prompt_work
from enginehouse_sim.simulator.calibration.probes import INJECTED, KNOWN, WINDOW, WINDOW_S, Probe, prompt_tokens
from enginehouse_sim.simulator.calibration.streams import EngineAddress, TimedStream, stream

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
            point=probe.name,
            kind="cached",
            work=work,
            requests=1,
            ms=min(times),
            uncached=[prompt_work(probe.context)],
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
            self._tasks.append(asyncio.ensure_future(stream(address, body, timed)))

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
            await self._next_event()

    async def _next_event(self) -> None:
        """Wait for a token of any stream, or for the end of one. Raises ``GatewayError`` after long silence."""
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            done, _ = await asyncio.wait({waiting, *self._tasks}, timeout=_PATIENCE_S, return_when="FIRST_COMPLETED")
        finally:
            waiting.cancel()
        if not done:
            raise GatewayError(f"no stream had a token for {_PATIENCE_S:.0f} s")

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
        """Close all connections, and wait until they are closed."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError, GatewayError):
                await task


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
