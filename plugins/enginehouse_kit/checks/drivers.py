"""The conformance check of drivers: launch lines, continuations, and requests to engines of every quality."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec

from enginehouse import Driver, RequestError
from enginehouse.drivers import (
    Continuation,
    LaunchSpec,
    LoadedModel,
    PartialAnswer,
    ServedModel,
    SupportsContinuation,
    SupportsFigures,
    SupportsLaunch,
    SupportsLoading,
    SupportsSleep,
    support_of,
)
from enginehouse.errors import CannotContinue, UpstreamError, UpstreamTimeout
from enginehouse.rescheduling import InstanceMetadata, InstanceStatus
from enginehouse_kit.checks.live_engine import check_live_engine
from enginehouse_kit.expect import expect, expect_sequence, warn_if_slow
from enginehouse_kit.fake_engine import FakeEngineClient
from enginehouse_kit.plugin_manager import faults

_ODD: tuple[Any, ...] = (b"", b"<html>", [], {}, {"data": None}, {"data": [{}]}, {"data": [{"id": 7}]}, "text", 7.5)
"""Answers with status 200 that are not model lists."""


def check_driver(factory: Callable[[], Driver], url: str = "", model: str = "", key: str = "") -> None:
    """Check a driver against the rules of its interface. Call it in a synchronous test.

    With ``url`` and ``model`` also on a real engine, which serves that model and has nothing else to do:
    ``check_live_engine``. ``key`` is the engine's API key.

    - ``healthy`` is not ``True`` for an engine that answers 503 or is unreachable, and does not fail whatever the
      engine answers.
    - ``models`` returns ``ServedModel`` objects, or raises ``UpstreamError``, whatever the engine answers.
    - It keeps no state about an engine, and inherits from the interface of everything that it can do.
    - ``SupportsLaunch``: ``command`` is ``None`` or a launch line with the port; ``environment`` maps names to texts.
      Both are the same for the same spec.
    - ``SupportsLoading``: ``loaded`` lists ``LoadedModel``; it, ``load`` and ``unload`` raise a ``RequestError`` for an
      engine that fails.
    - ``SupportsSleep``: ``sleep`` and ``wake`` return a ``bool`` or raise a ``RequestError``.
    - ``SupportsFigures``: ``concurrency`` returns a number above 0 or ``None``; ``status`` returns an
      ``InstanceStatus`` or ``None``, ``metadata`` an ``InstanceMetadata``, or they raise a ``RequestError``.
    - ``SupportsContinuation``: ``continuable`` only adds fields; ``continuation`` asks for the rest of an answer, or
      raises ``CannotContinue``.
    """
    it = factory()
    problems = faults(Driver, type(it))
    expect(not problems, "; ".join(problems))
    _check_launches(support_of(it).launch)
    check_continuations(support_of(it).continuation)
    asyncio.run(_check_questions(it))
    if url:
        check_live_engine(it, url, model, key)


def _specs() -> Iterator[LaunchSpec]:
    for port in (8001, 41234):
        for path in ("/models/llama3.gguf", ""):
            yield LaunchSpec(model="llama3:8b", path=path, port=port)
            yield LaunchSpec(model="a model", path=path, port=port, context_length=4096, sleep=True)


def _check_launches(it: SupportsLaunch) -> None:
    for spec in _specs():
        _check_launch(it, spec)
    warn_if_slow("command", lambda: it.command(next(_specs())))


def _check_launch(it: SupportsLaunch, spec: LaunchSpec) -> None:
    command, environment = it.command(spec), it.environment(spec)
    expect((it.command(spec), it.environment(spec)) == (command, environment), "the same spec must give the same line")
    expect(_is_environment(environment), f"environment must map texts to texts, got {environment!r}")
    if command is None:
        return
    expect_sequence("command", command)
    expect(bool(command) and all(isinstance(each, str) for each in command), f"command must list texts, got {command}")
    port = str(spec.port)
    passed = any(port in each for each in [*command, *environment.values()])
    expect(passed, f"command or environment must contain the port {port}, got {list(command)}")


def _is_environment(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


def _engines() -> Iterator[tuple[str, FakeEngineClient]]:
    yield "serves a model", _serving("a")
    yield "answers 503", FakeEngineClient(otherwise=503)
    yield "answers 404", FakeEngineClient()
    yield "is unreachable", FakeEngineClient(otherwise=UpstreamError("connection refused"))
    yield "is too slow", FakeEngineClient(otherwise=UpstreamTimeout("no answer"))
    for odd in _ODD:
        yield f"answers {odd!r}", FakeEngineClient(otherwise=odd)


def _serving(model: str) -> FakeEngineClient:
    return FakeEngineClient(otherwise={"object": "list", "data": [{"id": model, "object": "model"}]})


async def _check_questions(it: Driver) -> None:
    known = support_of(it)
    failures: list[Exception | None] = []
    for engine_that, engine in _engines():
        failures.append(await _check_health(it, engine_that, engine))
        await _check_models(it, engine_that, engine)
        await _check_figures(known.figures, engine_that, engine)
        await _check_sleep(known.sleep, engine_that, engine)
        if known.loading is not None:
            await _check_loading(known.loading, engine_that, engine)
    why = f"healthy must say of some engine whether it is, but raised {failures[0]!r} for each"
    expect(None in failures, why)
    first = await _answer("models", "serves a model", it.models(_serving("a")))
    await _answer("models", "serves a model", it.models(_serving("b")))
    again = await _answer("models", "serves a model", it.models(_serving("a")))
    same = isinstance(first, RequestError) or first == again
    expect(same, f"a driver must keep no state about an engine: models gave {first!r}, then {again!r}")


async def _check_health(it: Driver, engine_that: str, engine: FakeEngineClient) -> Exception | None:
    """What ``healthy`` raised by mistake, if it did: the gateway takes any exception for not healthy."""
    try:
        healthy: Any = await it.healthy(engine)
    except RequestError:
        return None
    except Exception as error:
        return error
    expect(isinstance(healthy, bool), f"healthy must return a bool, got {healthy!r}")
    down = engine.otherwise == 503 or isinstance(engine.otherwise, Exception)
    expect(not (healthy and down), f"healthy must not be true for an engine that {engine_that}")
    return None


async def _check_figures(it: SupportsFigures, engine_that: str, engine: FakeEngineClient) -> None:
    await _check_concurrency(it, engine)
    status = await _answer("status", engine_that, it.status(engine))
    allowed = status is None or isinstance(status, InstanceStatus | RequestError)
    expect(allowed, f"status must return an InstanceStatus or None, got {status!r}")
    metadata = await _answer("metadata", engine_that, it.metadata(engine))
    known = isinstance(metadata, InstanceMetadata | RequestError)
    expect(known, f"metadata must return an InstanceMetadata, got {metadata!r}")


async def _check_sleep(it: SupportsSleep, engine_that: str, engine: FakeEngineClient) -> None:
    for name, ask in (("sleep", it.sleep), ("wake", it.wake)):
        answer = await _answer(name, engine_that, ask(engine))
        expect(isinstance(answer, bool | RequestError), f"{name} must return a bool, got {answer!r}")


async def _check_concurrency(it: SupportsFigures, engine: FakeEngineClient) -> None:
    try:
        most: Any = await it.concurrency(engine)
    except Exception:  # leaves the limit as it is
        return
    expect(most is None or (isinstance(most, int) and most > 0), f"concurrency must be above 0 or None, got {most!r}")


async def _check_loading(it: SupportsLoading, engine_that: str, engine: FakeEngineClient) -> None:
    loaded = await _answer("loaded", engine_that, it.loaded(engine))
    down = engine.otherwise == 503 or isinstance(engine.otherwise, Exception)
    expect(not down or isinstance(loaded, RequestError), f"loaded must raise UpstreamError if the engine {engine_that}")
    if not isinstance(loaded, RequestError):
        expect_sequence("loaded", loaded)
        expect(all(isinstance(each, LoadedModel) for each in loaded), f"loaded must list LoadedModel, got {loaded!r}")
    if down:
        for name, ask in (("load", it.load), ("unload", it.unload)):
            answer = await _answer(name, engine_that, ask(engine, "a"))
            expect(isinstance(answer, RequestError), f"{name} must raise if the engine {engine_that}, got {answer!r}")


async def _check_models(it: Driver, engine_that: str, engine: FakeEngineClient) -> None:
    served = await _answer("models", engine_that, it.models(engine))
    if isinstance(served, RequestError):
        return
    expect_sequence("models", served)
    expect(all(isinstance(each, ServedModel) for each in served), f"models must list ServedModel, got {served!r}")


async def _answer(method: str, engine_that: str, question: Awaitable[Any]) -> Any:
    """The answer, or the ``RequestError`` that the driver raised."""
    try:
        return await question
    except RequestError as error:
        return error
    except AssertionError:
        raise
    except Exception as error:
        text = f"{method} must raise UpstreamError, not {error!r}, for an engine that {engine_that}"
        raise AssertionError(text) from error


_LIMIT = 32
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_BODIES = {
    _CHAT: {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": _LIMIT},
    _COMPLETIONS: {"model": "m", "prompt": "Hi", "stream": True, "max_tokens": _LIMIT, "min_tokens": 8},
}


def check_continuations(it: SupportsContinuation) -> None:
    """``continuable`` only adds fields; a ``Continuation`` asks for no more tokens than are left."""
    for path, fields in _BODIES.items():
        body = msgspec.json.encode(fields)
        added: Any = it.continuable(path, body)
        expect(isinstance(added, bytes), f"continuable must return bytes, got {added!r}")
        kept = msgspec.json.decode(added)
        expect(fields.items() <= kept.items(), f"continuable must keep all fields of {fields}, got {kept}")
        for answer in _partial_answers(path, body):
            _check_continuation(it, answer)


def _partial_answers(path: str, body: bytes) -> Iterator[PartialAnswer]:
    prompt = msgspec.Raw(b"[7,8,9]")
    for tokens, text in ((0, ""), (3, " one two three")):
        ids = list(range(tokens))
        yield PartialAnswer(path=path, body=body, text=text, tokens=tokens, ids=ids, prompt_ids=prompt)
        yield PartialAnswer(path=path, body=body, text=text, tokens=tokens)
    yield PartialAnswer(path=path, body=body, text=" one two", tokens=2, ids=[1], skip=4, prompt_ids=prompt)
    yield PartialAnswer(path=path, body=body, text=" one two")


def _check_continuation(it: SupportsContinuation, answer: PartialAnswer) -> None:
    try:
        made: Any = it.continuation(answer)
    except CannotContinue:
        return
    expect(isinstance(made, Continuation), f"continuation must return a Continuation, got {made!r}")
    fields = msgspec.json.decode(made.body)
    expect(fields.get("stream") is True, f"a continuation must be a stream, got {fields}")
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
    right = limit is not None and limit + made.tokens == _LIMIT
    expect(right, f"after {made.tokens} of {_LIMIT} tokens, a continuation must ask for the rest, got {limit}")
    exact = answer.ids is not None and isinstance(fields.get("prompt"), list)
    expect(made.exact == exact, f"a continuation is exact if it has the tokens of the answer, got {made}")
    expect(0 <= made.skip <= len(answer.text), f"skip must be within the text, got {made.skip}")
