from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from enginehouse import Driver
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError
from enginehouse.drivers import DriverSupport, EngineClient, EngineResponse, ServedModel, support_of
from enginehouse.engine_caches import CacheFollower, KvEventSettings, PromptTokens
from enginehouse.engines.followed_caches import CacheView, FollowedCaches, Published, kv_events_of
from enginehouse.errors import UpstreamError
from enginehouse_kit.drivers import OpenAICompatibleDriver, openai_driver
from tests.support.virtual_time import Run

CHAT = b'{"model":"alias","messages":[{"role":"user","content":"Hi"}],"stream":true,"max_tokens":4}'


class Engine:
    """Answers ``/tokenize`` once ``free`` is set."""

    def __init__(self, status: int = 200, body: bytes = b'{"tokens":[5,6],"token_strs":["Hi","!!!"]}') -> None:
        self.answer = EngineResponse(status, [], body)
        self.asked: list[dict[str, object]] = []
        self.free = asyncio.Event()
        self.broken = False

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        assert (method, path) == ("POST", "/tokenize")
        self.asked.append(msgspec.json.decode(body))
        await self.free.wait()
        if self.broken:
            raise UpstreamError("it is gone")
        return self.answer


class Deaf(CacheFollower):
    """Hears nothing."""

    connected, exact, gaps = False, False, (0, 0)

    def begin_anew(self) -> None: ...

    def close(self) -> None: ...


class Tokenizes(OpenAICompatibleDriver):
    def follow_cache(self, *_: object) -> CacheFollower:
        return Deaf()


SETTINGS = KvEventSettings(endpoint="tcp://nobody:1")


async def test_another_driver_follows_a_cache_anew_and_one_that_fails_disturbs_no_other() -> None:
    class Fails(Tokenizes):
        def follow_cache(self, *_: object) -> CacheFollower:
            raise UpstreamError("no socket")

    caches = FollowedCaches(lambda _: Engine())
    first = Tokenizes()
    caches.follow({"a": Published(SETTINGS, first)})
    follower = caches._followers["a"]
    caches.follow({"b": Published(SETTINGS, Fails()), "a": Published(SETTINGS, first)})
    assert caches._followers == {"a": follower}
    caches.follow({"a": Published(SETTINGS, Tokenizes())})
    assert caches._followers["a"] is not follower
    caches.close()


async def test_a_follower_that_raises_disturbs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Deaf):
        @property
        def gaps(self) -> tuple[int, int]:  # type: ignore[override]
            raise OSError("it cannot count")

        def begin_anew(self) -> None:
            raise OSError("it cannot begin")

        def close(self) -> None:
            raise OSError("it cannot end")

    class BreaksFirst(OpenAICompatibleDriver):
        def follow_cache(self, backend: str, *_: object) -> CacheFollower:
            return Broken() if backend == "broken" else Noting()

    class Noting(Deaf):
        def begin_anew(self) -> None:
            noted.append("again")

        def close(self) -> None:
            noted.append("closed")

    noted: list[str] = []
    driver = BreaksFirst()
    caches = FollowedCaches(lambda backend: Engine())
    caches.follow({name: Published(SETTINGS, driver) for name in ("broken", "sound")})
    caches.use(CacheView(caches))
    assert [row["backend"] for row in caches.figures()] == ["sound"]
    caches.close()
    assert noted == ["again", "closed"]
    assert "Broken' failed" in caplog.text


async def tokens_of(engine: Engine) -> Sequence[PromptTokens]:
    """What comes of three questions at once."""
    caches, found = FollowedCaches(lambda _: engine), list[PromptTokens]()
    view = CacheView(caches)
    caches.follow({"a": Published(SETTINGS, Tokenizes())})
    for _ in range(3):
        view.tokenize("a", "there", CHAT, found.append)
    await asyncio.sleep(0)
    engine.free.set()
    for _ in range(5):
        await asyncio.sleep(0)
    return found


async def test_an_engine_tokenizes_one_prompt_at_a_time() -> None:
    engine = Engine()
    assert await tokens_of(engine) == [PromptTokens([5, 6], [2, 5])]
    chat = [{"role": "user", "content": "Hi"}]
    assert engine.asked == [{"model": "there", "messages": chat, "return_token_strs": True}]


@pytest.mark.parametrize(("status", "body"), [(404, b"{}"), (200, b"no JSON"), (200, b'{"tokens":"x"}')])
async def test_an_engine_that_cannot_is_no_problem(status: int, body: bytes) -> None:
    assert not await tokens_of(Engine(status, body))


async def test_an_engine_that_is_gone_is_asked_again_later() -> None:
    engine = Engine()
    engine.broken = True
    assert not await tokens_of(engine)


def test_an_engine_that_never_answers_is_asked_again_later(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        engine = Engine()
        caches = FollowedCaches(lambda _: engine)
        view = CacheView(caches)
        caches.follow({"a": Published(SETTINGS, Tokenizes())})
        for _ in range(2):
            view.tokenize("a", "there", CHAT, lambda _: None)
            await asyncio.sleep(60)
        assert len(engine.asked) == 2
        caches.close()

    in_virtual_time(scenario())


async def test_the_lengths_of_tokens_may_be_unknown() -> None:
    assert await tokens_of(Engine(body=b'{"tokens":[1,2,3]}')) == [PromptTokens([1, 2, 3], [])]


def published(config: Mapping[str, object]) -> Mapping[str, Published]:
    return kv_events_of(msgspec.convert(config, Config), Anywhere())


class Anywhere(dict[str, DriverSupport]):
    """A driver for every type."""

    def __missing__(self, type: str) -> DriverSupport:
        return support_of(OpenAICompatibleDriver())


def test_the_engines_of_a_model_have_sockets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zmq")
    monkeypatch.setenv("ENGINEHOUSE_STATE_DIR", "/s")
    model = {"driver": "vllm", "path": "/m", "replicas": 2, "kv_events": True}
    found = published({"models": {"org/m": model}})
    assert [*found] == ["org/m", "org/m-2"]
    sockets = {path for each in found.values() for path in (each.settings.endpoint, each.settings.replay)}
    assert len(sockets) == 4
    assert all(each.startswith("ipc:///s/default/kv-") for each in sockets)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"backends": {"a": {"url": "http://a", "kv_events": {"endpoint": "ipc:///a", "ranks": 2}}}}, "backends.a"),
        (
            {"hosts": {"far": {"launcher": "ray"}}, "models": {"m": {"path": "/m", "host": "far", "kv_events": True}}},
            "models.m",
        ),
    ],
)
def test_sockets_that_cannot_be_followed_are_refused(config: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}.kv_events"):
        published(config)


def test_a_socket_whose_path_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEHOUSE_STATE_DIR", "/" + "long" * 30)
    with pytest.raises(ConfigError, match="ENGINEHOUSE_STATE_DIR"):
        published({"models": {"m": {"path": "/m", "kv_events": True}}})


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    backends = {"a": {"url": "http://a", "kv_events": {"endpoint": "tcp://a:5557"}}, "b": {"url": "http://b"}}
    config = {"backends": backends}
    monkeypatch.setattr(openai_driver, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="kv-events") as raised:
        published(config)
    assert "backends.a.kv_events" in str(raised.value)
    monkeypatch.undo()
    pytest.importorskip("zmq")
    assert list(published(config)) == ["a"]


def test_a_driver_that_cannot_follow_events_is_refused() -> None:
    class Plain(Driver):
        async def healthy(self, engine: EngineClient) -> bool:
            return True

        async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
            return ()

    config = {"backends": {"a": {"url": "http://a", "driver": "plain", "kv_events": {"endpoint": "tcp://a:5557"}}}}
    with pytest.raises(ConfigError, match=r"backends\.a\.kv_events.*cannot follow"):
        kv_events_of(msgspec.convert(config, Config), {"plain": support_of(Plain())})
