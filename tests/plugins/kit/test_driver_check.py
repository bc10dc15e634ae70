from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from enginehouse import Driver
from enginehouse.drivers import (
    Continuation,
    EngineClient,
    LaunchSpec,
    PartialAnswer,
    ServedModel,
    SupportsContinuation,
    SupportsLaunch,
    SupportsSleep,
)
from enginehouse.errors import CannotContinue
from enginehouse_kit.drivers import OpenAICompatibleDriver
from enginehouse_kit.testing import FakeEngineClient, check_driver


class Plain(OpenAICompatibleDriver, SupportsLaunch):
    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        return ["server", "--port", str(spec.port)] if spec.path else None


class NoPort(Plain):
    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        return ["server", spec.path]


class OneText(Plain):
    def command(self, spec: LaunchSpec) -> Any:
        return f"server --port {spec.port}"


class Numbers(Plain):
    def command(self, spec: LaunchSpec) -> Any:
        return ["server", "--port", spec.port]


class NumbersAround(Plain):
    def environment(self, spec: LaunchSpec) -> Any:
        return {"PORT": spec.port}


class Counts(Plain):
    launches = 0

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        self.launches += 1
        return {"LAUNCH": str(self.launches)}


class AlwaysHealthy(Plain):
    async def healthy(self, engine: EngineClient) -> bool:
        return True


class HealthyByStatus(Plain):
    async def healthy(self, engine: EngineClient) -> Any:
        return (await engine.request("GET", "/health")).status


class NeverKnows(Plain):
    async def healthy(self, engine: EngineClient) -> bool:
        return (await engine.get("/health")).status == 200  # type: ignore[attr-defined,no-any-return]


class TrustsEngines(Plain):
    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        import json

        data = json.loads((await engine.request("GET", "/v1/models")).body)["data"]
        return [ServedModel(entry["id"]) for entry in data]


class Names(Plain):
    async def models(self, engine: EngineClient) -> Any:
        return [model.name for model in await super().models(engine)]


class Remembers(Plain):
    def __init__(self) -> None:
        self._seen: list[ServedModel] = []

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        self._seen += [model for model in await super().models(engine) if model not in self._seen]
        return list(self._seen)


class SleepsByStatus(Plain, SupportsSleep):
    async def sleep(self, engine: EngineClient) -> Any:
        return (await engine.request("POST", "/sleep")).status

    async def wake(self, engine: EngineClient) -> bool:
        return False


class NoSlot(Plain):
    async def concurrency(self, engine: EngineClient) -> int | None:
        return 0


class WholeAddress(Plain):
    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        await engine.request("GET", "http://127.0.0.1:8000/v1/models")
        return []


class Continuing(Plain, SupportsContinuation):
    def continuation(self, answer: PartialAnswer) -> Continuation:
        raise CannotContinue("not this one")


class DropsFields(Continuing):
    def continuable(self, path: str, body: bytes) -> bytes:
        return b'{"model":"m"}'


class AsksForAllAgain(Continuing):
    def continuation(self, answer: PartialAnswer) -> Continuation:
        return Continuation(path=answer.path, body=answer.body, tokens=answer.tokens or 0)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (DropsFields, "continuable must keep all fields"),
        (AsksForAllAgain, "after 3 of 32 tokens, a continuation must ask for the rest, got 32"),
        (NoPort, "must contain the port 8001"),
        (OneText, "command must return a sequence"),
        (Numbers, "command must list texts"),
        (NumbersAround, "environment must map texts to texts"),
        (Counts, "the same spec must give the same line"),
        (AlwaysHealthy, "healthy must not be true for an engine that answers 503"),
        (HealthyByStatus, "healthy must return a bool, got 200"),
        (NeverKnows, "healthy must say of some engine whether it is, but raised AttributeError.*'get'.* for each"),
        (TrustsEngines, "models must raise UpstreamError, not KeyError.* for an engine that answers 503"),
        (Names, "models must list ServedModel"),
        (Remembers, "must keep no state about an engine"),
        (SleepsByStatus, "sleep must return a bool, got 200"),
        (NoSlot, "concurrency must be above 0 or None, got 0"),
        (WholeAddress, "a path that begins with '/'"),
    ],
)
def test_a_driver_that_breaks_a_rule_is_caught(broken: type[Driver], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_driver(broken)


def test_a_driver_that_keeps_the_rules_passes() -> None:
    check_driver(Plain)


async def test_a_fake_engine_answers_from_its_pages() -> None:
    engine = FakeEngineClient({"/a": {"x": 1}, "/b": b"raw", "/c": 503, "/d": OSError("gone")})

    assert (await engine.request("GET", "/a")).body == b'{"x":1}'
    assert (await engine.request("GET", "/b")).body == b"raw"
    assert (await engine.request("GET", "/c")).status == 503
    assert (await engine.request("GET", "/e")).status == 404
    with pytest.raises(OSError, match="gone"):
        await engine.request("GET", "/d")
    assert engine.asked == ["/a", "/b", "/c", "/e", "/d"]
