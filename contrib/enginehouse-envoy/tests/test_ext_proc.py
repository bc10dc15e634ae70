"""The endpoint picker protocol, spoken to the picker as Envoy speaks it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from enginehouse_envoy import envoy_pb2 as pb
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from running import BODY, RunningPicker, running_picker, until
from streams import MODE, POST, Stream, destination, http_headers, run, set_by, subset

from enginehouse_kit.engines import SimEngine

HEALTH = "grpc.health.v1.Health"
FORMS = (HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)


class Stage(NamedTuple):
    picker: RunningPicker
    a: str
    b: str


def config(a: SimEngine, b: SimEngine, rest: str = "") -> str:
    return f"""
[backends.a]
url = "{a.url}"
driver = "sim"
[backends.b]
url = "{b.url}"
driver = "sim"
[backends.c]
url = "{a.url}"
driver = "sim"
[backends.c.models."renamed"]
upstream = "sim"
[routing]
strategy = "least_pending"
[routing.aliases]
nick = "sim"
{rest}
"""


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    with SimEngine("sim", max_model_len=100_000) as a, SimEngine("sim", max_model_len=100_000) as b:
        yield a, b


@pytest.fixture(scope="module")
def stage(engines: tuple[SimEngine, SimEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    a, b = engines
    with running_picker(config(a, b), tmp_path_factory.mktemp("skip"), "--fallbacks", "1") as picker:
        yield Stage(picker, f"127.0.0.1:{a.port}", f"127.0.0.1:{b.port}")


@pytest.fixture(scope="module")
def watched(engines: tuple[SimEngine, SimEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    a, b = engines
    options = ("--responses", "watch", "--tls", "self-signed")
    with running_picker(config(a, b), tmp_path_factory.mktemp("watch"), *options) as picker:
        yield Stage(picker, f"127.0.0.1:{a.port}", f"127.0.0.1:{b.port}")


def body(**fields: Any) -> bytes:
    return json.dumps({**BODY, **fields}).encode()


# --- the request


def test_a_buffered_body_gets_its_answer_after_the_headers_have_theirs(stage: Stage) -> None:
    async def test() -> None:
        async with Stream(stage.picker.ext_proc, MODE.BUFFERED) as stream:
            await stream.head()
            first = await stream.read()
            assert first.HasField("request_headers")
            assert not first.HasField("dynamic_metadata")
            await stream.body()
            assert set(destination(await stream.read()).split(",")) == {stage.a, stage.b}
            assert await stream.has_ended()

    run(test)


def test_a_streamed_body_goes_back_in_pieces_after_the_headers(stage: Stage) -> None:
    async def test() -> None:
        long = body(messages=[{"role": "user", "content": "x" * 150_000}])
        async with Stream(stage.picker.ext_proc) as stream:
            await stream.head()
            for start in range(0, len(long), 50_000):
                await stream.body(long[start : start + 50_000], ends=start + 50_000 >= len(long))
            destination(await stream.read())
            pieces: list[Any] = []
            while not pieces or not pieces[-1].end_of_stream:
                pieces.append((await stream.read()).request_body.response.body_mutation.streamed_response)
            assert b"".join(piece.body for piece in pieces) == long
            assert all(len(piece.body) <= 62_000 for piece in pieces)
            assert await stream.has_ended()

    run(test)


def test_trailers_end_a_streamed_body_too(stage: Stage) -> None:
    async def test() -> None:
        async with Stream(stage.picker.ext_proc) as stream:
            await stream.head()
            await stream.body(ends=False)
            await stream.send(request_trailers=pb.HttpTrailers())
            destination(await stream.read())
            piece = (await stream.read()).request_body.response.body_mutation.streamed_response
            assert not piece.end_of_stream
            assert (await stream.read()).HasField("request_trailers")

    run(test)


@pytest.mark.parametrize("mode", [MODE.BUFFERED, MODE.FULL_DUPLEX_STREAMED, MODE.NONE])
def test_a_request_without_a_body_goes_to_any_engine_at_once(
    stage: Stage, mode: pb.ProcessingMode.BodySendMode
) -> None:
    async def test() -> None:
        async with Stream(stage.picker.ext_proc, mode) as stream:
            await stream.head({":method": "GET", ":path": "/v1/models"}, ends=mode != MODE.NONE)
            assert destination(await stream.read()) in (stage.a, stage.b)

    run(test)


def test_a_mode_in_which_nobody_can_decide_is_refused(stage: Stage) -> None:
    async def test() -> None:
        async with Stream(stage.picker.ext_proc, MODE.STREAMED) as stream:
            await stream.head()
            refused = (await stream.read()).immediate_response
            assert refused.status.code == 500
            assert b"request_body_mode" in refused.body

    run(test)


def test_the_engine_gets_the_body_of_an_alias_with_its_own_name(stage: Stage) -> None:
    async def test() -> None:
        async with Stream(stage.picker.ext_proc, MODE.BUFFERED) as stream:
            await stream.head({**POST, "content-length": "7"})
            await stream.read()
            await stream.body(body(model="nick"))
            response = (await stream.read()).request_body.response
            changed = response.body_mutation.body
            assert json.loads(changed)["model"] == "sim"
            assert set_by(response)["content-length"] == str(len(changed))

    run(test)


def test_the_headers_of_the_protocol_name_the_caller(stage: Stage) -> None:
    told = {"x-gateway-inference-fairness-id": "tenant-a", "x-gateway-inference-objective": "chat"}

    async def test() -> None:
        async with Stream(stage.picker.ext_proc) as stream:
            await stream.head({**POST, **told, "x-request-id": "fair"})
            await stream.body()
            destination(await stream.read())

    run(test)
    until(lambda: any(each["id"] == "fair" for each in stage.picker.history()), "it has ended")
    assert next(each for each in stage.picker.history() if each["id"] == "fair")["caller"] == "tenant-a"


# --- subsets


@pytest.mark.parametrize("form", ["list", "text", "without ports", "with the body"])
def test_a_subset_hint_is_obeyed(stage: Stage, form: str) -> None:
    async def test() -> None:
        hint: Any = subset("10.9.9.9:1", stage.b)
        if form == "text":
            hint["envoy.lb.subset_hint"]["x-gateway-destination-endpoint-subset"] = f"10.9.9.9:1, {stage.b}"
        if form == "without ports":
            hint = subset("127.0.0.1")
        async with Stream(stage.picker.ext_proc) as stream:
            await stream.head(metadata=None if form == "with the body" else hint)
            await stream.body(metadata=hint if form == "with the body" else None)
            found = destination(await stream.read())
            assert (stage.a in found and stage.b in found) if form == "without ports" else found == stage.b

    run(test)


@pytest.mark.parametrize("hint", [subset(), subset("10.9.9.9:1")])
@pytest.mark.parametrize("has_body", [True, False])
def test_an_empty_subset_is_refused(stage: Stage, hint: dict[str, Any], has_body: bool) -> None:
    async def test() -> None:
        async with Stream(stage.picker.ext_proc) as stream:
            await stream.head(ends=not has_body, metadata=hint)
            if has_body:
                await stream.body()
            assert (await stream.read()).immediate_response.status.code == 503
            assert await stream.has_ended()

    run(test)


# --- refusals


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (body(model="nope"), 404, "model_not_found"),
        (b"{", 400, "invalid_request"),
        (b'{"messages": []}', 400, "invalid_request"),
    ],
)
@pytest.mark.parametrize("mode", [MODE.BUFFERED, MODE.FULL_DUPLEX_STREAMED])
def test_a_refusal_is_the_answer(
    stage: Stage, sent: bytes, status: int, code: str, mode: pb.ProcessingMode.BodySendMode
) -> None:
    async def test() -> None:
        async with Stream(stage.picker.ext_proc, mode) as stream:
            await stream.head()
            if mode == MODE.BUFFERED:
                await stream.read()
            await stream.body(sent)
            refused = (await stream.read()).immediate_response
            assert refused.status.code == status
            assert json.loads(refused.body)["error"]["code"] == code
            headers = {each.header.key: each.header.raw_value for each in refused.headers.set_headers}
            assert headers["content-type"] == b"application/json"

    run(test)


def test_keys_and_their_limits(engines: tuple[SimEngine, SimEngine], tmp_path: Path) -> None:
    keys = '[[auth.keys]]\nname = "ann"\nkey = "secret-of-ann"\nrequests_per_minute = 1\n'
    with running_picker(config(*engines, keys), tmp_path) as picker:

        async def asked(key: str) -> tuple[int, pb.CommonResponse]:
            async with Stream(picker.ext_proc, MODE.BUFFERED) as stream:
                await stream.head({**POST, "authorization": f"Bearer {key}"})
                first = await stream.read()
                if not first.HasField("request_headers"):
                    return first.immediate_response.status.code, pb.CommonResponse()
                await stream.body()
                answer = await stream.read()
                return answer.immediate_response.status.code, answer.request_body.response

        async def test() -> None:
            assert (await asked("wrong"))[0] == 401
            code, response = await asked("secret-of-ann")
            assert code == 0
            assert "authorization" in response.header_mutation.remove_headers
            assert (await asked("secret-of-ann"))[0] == 429

        run(test)


# --- watched answers


def credentials(port: int) -> Any:
    return grpc.ssl_channel_credentials(ssl.get_server_certificate(("127.0.0.1", port)).encode())


@pytest.mark.parametrize("response_mode", [MODE.FULL_DUPLEX_STREAMED, MODE.STREAMED])
def test_a_watched_answer_passes_as_it_is_and_its_usage_is_known(
    watched: Stage, response_mode: pb.ProcessingMode.BodySendMode
) -> None:
    picker = watched.picker
    answer = b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}}'

    async def test() -> None:
        tls = credentials(picker.ext_proc)
        async with Stream(picker.ext_proc, response_mode=response_mode, credentials=tls) as stream:
            await stream.head({**POST, "x-request-id": f"watched-{response_mode}"})
            await stream.body()
            destination(await stream.read())
            await stream.read()
            assert [each["id"] for each in picker.live()] == [f"watched-{response_mode}"]
            await stream.send(response_headers=http_headers({":status": "200", "content-type": "application/json"}))
            assert (await stream.read()).HasField("response_headers")
            await stream.send(response_body=pb.HttpBody(body=answer, end_of_stream=True))
            returned = (await stream.read()).response_body.response.body_mutation
            if response_mode == MODE.FULL_DUPLEX_STREAMED:
                assert returned.streamed_response.body == answer
                assert returned.streamed_response.end_of_stream

    run(test)
    until(lambda: not picker.live(), "the request ends")
    row = next(each for each in picker.history() if each["id"] == f"watched-{response_mode}")
    assert (row["tokens_in"], row["tokens_out"], row["status"]) == (7, 5, 200)


def test_without_the_body_of_the_answer_its_end_is_the_end_of_the_stream(watched: Stage) -> None:
    picker = watched.picker

    async def test() -> None:
        async with Stream(picker.ext_proc, credentials=credentials(picker.ext_proc)) as stream:
            await stream.head({**POST, "x-request-id": "no-body"})
            await stream.body()
            await stream.read()
            await stream.read()
            await stream.send(response_headers=http_headers({":status": "503"}))
            await stream.read()
            await stream.call.done_writing()
            assert await stream.has_ended()

    run(test)
    until(lambda: not picker.live(), "the request ends")
    row = next(each for each in picker.history() if each["id"] == "no-body")
    assert (row["status"], row["outcome"]) == (503, "engine_error")


def test_the_engine_that_served_is_not_the_one_that_failed(
    engines: tuple[SimEngine, SimEngine], tmp_path: Path
) -> None:
    checks = '[checks]\nfailures = 1\ninterval = "1h"\n'
    with running_picker(config(*engines, checks), tmp_path, "--responses", "watch", "--fallbacks", "1") as picker:

        async def test() -> None:
            async with Stream(picker.ext_proc) as stream:
                await stream.head()
                await stream.body()
                first, second = destination(await stream.read()).split(",")
                await stream.read()
                served = {"envoy.lb": {"x-gateway-destination-endpoint-served": second}}
                await stream.send(served, response_headers=http_headers({":status": "200"}, ends=True))
                await stream.read()
                rows = picker.status()["backends"]
                health = {row["url"].removeprefix("http://"): row["health"] for row in rows if row["name"] != "c"}
                assert health == {first: "unhealthy", second: "healthy"}

        run(test)


def test_a_client_that_leaves_ends_its_request(watched: Stage) -> None:
    picker = watched.picker

    async def test() -> None:
        async with Stream(picker.ext_proc, credentials=credentials(picker.ext_proc)) as stream:
            await stream.head({**POST, "x-request-id": "leaves"})
            await stream.body()
            await stream.read()

    run(test)
    until(lambda: not picker.live(), "the request ends")
    assert next(each for each in picker.history() if each["id"] == "leaves")["outcome"] == "client_left"


# --- health


def test_the_health_service_knows_the_names_of_pickers(stage: Stage) -> None:
    async def test() -> None:
        names = ["liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension", ""]
        for port in (stage.picker.health, stage.picker.ext_proc):
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                check = channel.unary_unary(f"/{HEALTH}/Check", *FORMS)
                for name in names:
                    answer = await check(HealthCheckRequest(service=name))
                    assert answer.status == HealthCheckResponse.SERVING
                with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
                    await check(HealthCheckRequest(service="another"))

    run(test)


def test_a_picker_that_leaves_says_so_to_those_who_watch(engines: tuple[SimEngine, SimEngine], tmp_path: Path) -> None:
    with running_picker(config(*engines, '[server]\ndrain_delay = "60s"'), tmp_path) as picker:

        async def test() -> None:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{picker.health}") as channel:
                watch: Any = channel.unary_stream(f"/{HEALTH}/Watch", *FORMS)(HealthCheckRequest(service="readiness"))
                assert (await watch.read()).status == HealthCheckResponse.SERVING
                picker.process.terminate()
                assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
                alive = channel.unary_unary(f"/{HEALTH}/Check", *FORMS)(HealthCheckRequest(service="liveness"))
                assert (await alive).status == HealthCheckResponse.SERVING

        run(test)
        picker.process.kill()


# --- messages


def test_our_copies_of_messages_stand_beside_all_of_envoys() -> None:
    """Python's pool of messages takes each name of a file and of a message once."""
    assert pb.DESCRIPTOR.name.startswith("enginehouse_envoy/")
    assert pb.DESCRIPTOR.package == "enginehouse_envoy"
