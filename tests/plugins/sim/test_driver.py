from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec
import pytest

from enginehouse import Capabilities
from enginehouse.drivers import EngineResponse, LaunchSpec, PartialAnswer, ServedModel
from enginehouse.errors import CannotContinue, UpstreamError
from enginehouse_kit.engines import SimEngine
from enginehouse_sim import SimDriver, register_drivers
from enginehouse_sim.options import CoreSettings, SimOptions
from enginehouse_sim.simulator.core.options import core_options


class Answers:
    """An engine client that has one answer for each path."""

    def __init__(self, **pages: tuple[int, bytes]) -> None:
        self._pages = pages

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        status, page = self._pages[path.rpartition("/")[2]]
        return EngineResponse(status, [], page)


def test_it_is_registered_as_sim() -> None:
    registered = {}
    register_drivers(lambda type, factory: registered.update({type: factory}))
    assert registered == {"sim": SimDriver}


def test_the_launch_line_serves_the_model_on_the_port() -> None:
    spec = LaunchSpec(model="qwen:7b", path="", port=1234, context_length=4096)
    assert SimDriver().command(spec) == [
        *(sys.executable, "-m", "enginehouse_sim", "--model", "qwen:7b"),
        *("--host", "127.0.0.1", "--port", "1234", "--context-length", "4096"),
    ]


def test_an_engine_has_a_llumlet_where_requests_move_by_it() -> None:
    spec = LaunchSpec(model="m", path="", port=1, migrators=["replay", "llumlet"])
    assert SimDriver().command(spec)[-2:] == ["--llumlet-port", "0"]
    assert "--llumlet-port" not in SimDriver().command(msgspec.structs.replace(spec, migrators=["replay"]))


def test_options_are_flags() -> None:
    options = SimOptions(profile="polynomial", async_scheduling=False, host_blocks=9)
    line = SimDriver().command(LaunchSpec(model="a", path="", port=1, options=options))
    given = line[line.index("--port") + 2 :]
    assert given == ["--profile", "polynomial", "--no-async-scheduling", "--host-blocks", "9"]


def test_every_limit_of_the_engine_is_an_option() -> None:
    @click.command
    @core_options
    def engine(core: CoreSettings) -> None: ...

    flags = {flag.removeprefix("--").replace("-", "_") for parameter in engine.params for flag in parameter.opts}
    assert flags - {"max_model_len", "context_length", "concurrency", "help"} <= set(SimOptions.__struct_fields__)


@pytest.mark.parametrize(
    ("fields", "continues"),
    [
        ({"max_tokens": 9}, True),
        ({"max_completion_tokens": 9}, True),
        ({"max_tokens": None}, False),
        ({"min_tokens": 1}, False),
        ({"user": "_tokens"}, False),
    ],
)
def test_only_a_chat_whose_length_is_known_is_continued(fields: dict[str, object], continues: bool) -> None:
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "max_tokens"}], **fields})
    answer = PartialAnswer(path="/v1/chat/completions", body=body, text=" one", tokens=1)
    if continues:
        assert SimDriver().continuation(answer).tokens == 1
    else:
        with pytest.raises(CannotContinue):
            SimDriver().continuation(answer)


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
async def test_it_is_healthy_when_its_health_page_says_so(status: int, healthy: bool) -> None:
    assert await SimDriver().healthy(Answers(health=(status, b""))) is healthy


async def test_capabilities_that_are_not_published_are_unknown() -> None:
    page = b'{"data": [{"id": "a", "max_model_len": 100, "vision": false}, {"id": "b", "max_model_len": 7}]}'
    assert await SimDriver().models(Answers(models=(200, page))) == [
        ServedModel("a", Capabilities(context_length=100, vision=False)),
        ServedModel("b", Capabilities(context_length=7)),
    ]


@pytest.mark.parametrize("page", [(500, b""), (200, b"{"), (200, b'{"data": [{}]}')])
async def test_an_answer_that_is_no_model_list_is_an_error(page: tuple[int, bytes]) -> None:
    with pytest.raises(UpstreamError):
        await SimDriver().models(Answers(models=page))


@pytest.fixture
def engine() -> Iterator[SimEngine]:
    with SimEngine("tiny", "tiny-too", context_length=200, vision=True, tools=False) as engine:
        yield engine


async def test_a_real_engine_is_understood(engine: SimEngine) -> None:
    from http.client import HTTPConnection

    class Real:
        async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
            connection = HTTPConnection("127.0.0.1", engine.port)
            connection.request(method, path, body)
            response = connection.getresponse()
            page = response.read()
            connection.close()
            return EngineResponse(response.status, [], page)

    assert await SimDriver().healthy(Real())
    known = Capabilities(context_length=200, vision=True, tools=False)
    assert await SimDriver().models(Real()) == [ServedModel("tiny", known), ServedModel("tiny-too", known)]
