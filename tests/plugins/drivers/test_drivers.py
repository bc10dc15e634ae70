from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from enginehouse import Capabilities, Driver
from enginehouse.drivers import LaunchSpec, LoadNews, SupportsFigures, SupportsLaunch, SupportsSleep
from enginehouse.errors import UpstreamError
from enginehouse_llamacpp import LlamaCppDriver, LlamaCppRouterDriver
from enginehouse_openai import OpenAIDriver
from enginehouse_sglang import SglangDriver
from enginehouse_sim import SimDriver
from enginehouse_vllm import VllmDriver
from enginehouse_vllm.options import VllmOptions
from tests.support.fake_engines import FakeClient

MODELS = "/v1/models"


def _list(*entries: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"object": "list", "data": list(entries)}


@pytest.mark.parametrize(
    ("driver", "page"),
    [(OpenAIDriver(), MODELS), (LlamaCppDriver(), "/health"), (VllmDriver(), "/health"), (SglangDriver(), "/health")],
)
async def test_an_engine_is_healthy_when_its_page_answers_200(driver: Driver, page: str) -> None:
    assert await driver.healthy(FakeClient({page: {}}))
    assert not await driver.healthy(FakeClient({page: 503}))
    with pytest.raises(UpstreamError):
        await driver.healthy(FakeClient({page: UpstreamError("refused")}))


@pytest.mark.parametrize(
    ("entry", "capabilities"),
    [
        ({}, Capabilities()),
        ({"max_model_len": 4096}, Capabilities(context_length=4096)),
        ({"context_length": 8192}, Capabilities(context_length=8192)),
        ({"meta": {"n_ctx": 2048, "n_ctx_train": 8192}}, Capabilities(context_length=2048)),
        ({"meta": {"n_ctx_train": 8192}}, Capabilities(context_length=8192)),
        ({"max_model_len": None, "meta": None, "context_length": "much"}, Capabilities()),
        ({"max_model_len": True, "context_length": 0}, Capabilities()),
        ({"max_model_len": 10**30}, Capabilities()),  # workers could not be told of it
        ({"architecture": {"input_modalities": ["text", "image"]}}, Capabilities(vision=True)),
        ({"architecture": {"input_modalities": ["text"]}}, Capabilities(vision=False)),
        ({"architecture": "llama"}, Capabilities()),
    ],
)
async def test_a_model_list_tells_what_engines_add_to_it(entry: Mapping[str, Any], capabilities: Capabilities) -> None:
    client = FakeClient({MODELS: _list({"id": "a", **entry}, {"object": "no id"})})
    [served] = await OpenAIDriver().models(client)
    assert (served.name, served.capabilities) == ("a", capabilities)


async def test_a_llama_server_gets_its_slots_back_where_other_requests_take_them_last() -> None:
    slots = [{"id": 0, "id_task": 9}, {"id": 1}, {"id": 2, "id_task": 12}, {"id": 3}]
    saved = {f"/slots/{slot}?action=save": {"n_saved": slot + 10} for slot in range(4)}
    kept = await LlamaCppDriver().save_cache(FakeClient({"/slots": slots, **saved}))
    assert [*kept.items()] == [("slot-2", 12), ("slot-0", 10), ("slot-1", 11), ("slot-3", 13)]
    restored = {f"/slots/{slot}?action=restore": {"n_restored": 5} for slot in range(4)}
    client = FakeClient({"/slots": slots, **restored})
    assert await LlamaCppDriver().restore_cache(client, [*kept]) == 20
    assert client.asked == ["/slots", *(f"/slots/{slot}?action=restore" for slot in (1, 2, 3, 0))]
    alone = FakeClient({"/slots": slots[:1], **restored})
    assert await LlamaCppDriver().restore_cache(alone, ["slot-0"]) == 5


def test_a_llama_server_has_one_slot_for_requests_that_nobody_waits_for() -> None:
    driver = LlamaCppDriver()
    assert driver.aside(b'{"prompt":"x"}', 4) == b'{"prompt":"x","id_slot":0}'
    assert {driver.aside(b'{"prompt":"x"}', slots) for slots in (0, 1)} == {b'{"prompt":"x"}'}


@pytest.mark.parametrize(
    ("page", "message"),
    [(401, "answered 401"), (b"<html>", "cannot be decoded"), ([], "cannot be decoded"), ({}, "data")],
)
async def test_an_answer_that_is_no_model_list_is_an_error(page: Any, message: str) -> None:
    with pytest.raises(UpstreamError, match=message):
        await OpenAIDriver().models(FakeClient({MODELS: page}))


async def test_a_llama_servers_properties_win_over_its_list() -> None:
    client = FakeClient(
        {
            MODELS: _list({"id": "q", "meta": {"n_ctx_train": 131072}}),
            "/props": {"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": True}},
        }
    )
    [served] = await LlamaCppDriver().models(client)
    assert served.capabilities == Capabilities(context_length=4096, vision=True)


async def test_a_router_that_has_one_model_says_nothing_of_it_in_its_properties() -> None:
    properties = {"role": "router", "default_generation_settings": {"params": None, "n_ctx": 0}}
    client = FakeClient({MODELS: _list({"id": "q", "meta": {"n_ctx": 2048}}), "/props": properties})
    [served] = await LlamaCppDriver().models(client)
    assert served.capabilities == Capabilities(context_length=2048)


async def test_a_routers_models_are_listed_without_waking_one() -> None:
    client = FakeClient({MODELS: _list({"id": "loaded", "meta": {"n_ctx": 2048}}, {"id": "unloaded"})})
    served = await LlamaCppDriver().models(client)
    assert {model.name: model.capabilities.context_length for model in served} == {"loaded": 2048, "unloaded": None}
    assert client.asked == [MODELS]


async def test_vllm_tells_the_context_length_of_each_model() -> None:
    client = FakeClient({MODELS: _list({"id": "base", "max_model_len": 2048}, {"id": "lora", "max_model_len": None})})
    served = await VllmDriver().models(client)
    assert [(model.name, model.capabilities.context_length) for model in served] == [("base", 2048), ("lora", None)]


@pytest.mark.parametrize("page", ["/model_info", "/get_model_info"])
async def test_sglang_tells_of_images_and_embeddings(page: str) -> None:
    client = FakeClient(
        {
            MODELS: _list({"id": "e", "max_model_len": 512}),
            page: {"is_generation": False, "has_image_understanding": True},
        }
    )
    [served] = await SglangDriver().models(client)
    assert served.capabilities == Capabilities(context_length=512, vision=True, embeddings=True)


async def test_an_sglang_without_model_information_is_listed_all_the_same() -> None:
    [served] = await SglangDriver().models(FakeClient({MODELS: _list({"id": "e"})}))
    assert served.capabilities == Capabilities()


SPEC = LaunchSpec(model="qwen:7b", path="/m/qwen", port=4711, context_length=4096)


@pytest.mark.parametrize(
    ("driver", "line"),
    [
        (
            LlamaCppDriver(),
            "llama-server -m /m/qwen --alias qwen:7b --host 127.0.0.1 --port 4711 --metrics -c 4096",
        ),
        (
            VllmDriver(),
            "vllm serve /m/qwen --served-model-name qwen:7b --host 127.0.0.1 --port 4711 --max-model-len 4096",
        ),
        (
            SglangDriver(),
            "python -m sglang.launch_server --model-path /m/qwen --served-model-name qwen:7b "
            "--host 127.0.0.1 --port 4711 --context-length 4096",
        ),
    ],
)
def test_a_driver_builds_its_engines_launch_line(driver: SupportsLaunch, line: str) -> None:
    command = driver.command(SPEC)
    assert command is not None
    assert " ".join(command) == line


@pytest.mark.parametrize("driver", [LlamaCppDriver(), VllmDriver(), SglangDriver()])
def test_an_undeclared_context_is_left_to_the_engine(driver: SupportsLaunch) -> None:
    command = driver.command(LaunchSpec(model="m", path="/m", port=1))
    assert command is not None
    assert not {"-c", "--max-model-len", "--context-length"} & set(command)


@pytest.mark.parametrize("driver", [LlamaCppDriver(), VllmDriver(), SglangDriver()])
def test_an_engine_is_not_launched_without_a_model_to_serve(driver: SupportsLaunch) -> None:
    assert driver.command(LaunchSpec(model="m", path="", port=1)) is None


async def test_a_vllm_that_is_to_sleep_is_launched_so_that_it_can() -> None:
    spec = LaunchSpec(model="m", path="/m", port=1, sleep=True)
    assert "--enable-sleep-mode" in (VllmDriver().command(spec) or ())
    assert VllmDriver().environment(spec) == {"VLLM_SERVER_DEV_MODE": "1"}
    assert VllmDriver().environment(SPEC) == {}
    client = FakeClient({"/sleep?level=1": {}, "/wake_up": {}})
    assert [await VllmDriver().sleep(client), await VllmDriver().wake(client)] == [True, True]
    assert client.asked == ["/sleep?level=1", "/wake_up"]


@pytest.mark.parametrize("driver", [VllmDriver(), SglangDriver()])
async def test_an_engine_without_the_pages_for_it_does_not_sleep(driver: SupportsSleep) -> None:
    assert [await driver.sleep(FakeClient({})), await driver.wake(FakeClient({}))] == [False, False]


JSON_INFO = "/server_info?config_format=json"


@pytest.mark.parametrize(
    ("driver", "pages", "limit"),
    [
        (OpenAIDriver(), {}, None),
        (LlamaCppDriver(), {"/props": {"total_slots": 4}}, 4),
        (LlamaCppDriver(), {"/props": {"role": "router", "default_generation_settings": {"n_ctx": 0}}}, None),
        (LlamaCppDriver(), {}, None),
        (VllmDriver(), {JSON_INFO: {"vllm_config": {"scheduler_config": {"max_num_seqs": 256}}}}, 256),
        (VllmDriver(), {JSON_INFO: {"vllm_config": "model='q', max_num_seqs=256"}}, None),
        (VllmDriver(), {}, None),
        (SimDriver(), {"/server_info": {"vllm_config": {"scheduler_config": {"max_num_seqs": 8}}}}, 8),
    ],
)
async def test_an_engines_limit_is_what_it_reports(
    driver: SupportsFigures, pages: Mapping[str, Any], limit: int | None
) -> None:
    assert await driver.concurrency(FakeClient(pages)) == limit


async def test_a_vllm_that_sleeps_at_level_2_reads_its_weights_again() -> None:
    options = VllmOptions(sleep_level=2)
    spec = LaunchSpec(model="m", path="/m", port=1, sleep=True, options=options)
    assert not any("level" in word for word in VllmDriver().command(spec) or ())
    pages: dict[str, dict[str, str]] = {
        "/sleep?level=2": {},
        "/wake_up?tags=weights": {},
        "/collective_rpc": {},
        "/wake_up?tags=kv_cache": {},
    }
    client = FakeClient(pages)
    driver = VllmDriver()
    assert await driver.sleep_as_launched(client, spec)
    assert await driver.wake_as_launched(client, spec)
    assert client.asked == list(pages)
    del client.pages["/collective_rpc"]
    assert not await driver.wake_as_launched(client, spec)


async def test_a_vllm_sleeps_at_level_1_unless_its_options_say_otherwise() -> None:
    client = FakeClient({"/sleep?level=1": {}, "/wake_up": {}})
    spec = LaunchSpec(model="m", path="/m", port=1, sleep=True)
    assert await VllmDriver().sleep_as_launched(client, spec)
    assert await VllmDriver().wake_as_launched(client, spec)
    assert client.asked == ["/sleep?level=1", "/wake_up"]


@pytest.mark.parametrize(
    ("spec", "order"),
    [
        ({"options": VllmOptions(scheduling_policy="priority")}, -1),
        ({"args": ["--scheduling-policy=priority"]}, -1),
        ({"args": ["--scheduling-policy", "priority"]}, -1),
        ({"options": VllmOptions(scheduling_policy="fcfs")}, 0),
        ({}, 0),
    ],
)
async def test_the_policy_of_a_launched_vllm_is_known_from_its_launch_line(spec: dict[str, Any], order: int) -> None:
    """Lower values come first: ``vllm/v1/core/sched/request_queue.py``."""
    launched = LaunchSpec(model="m", path="/m", port=1, **spec)
    assert await VllmDriver().priority_order(FakeClient({}), launched) == order


@pytest.mark.parametrize(("policy", "order"), [("priority", -1), ("fcfs", 0)])
async def test_the_policy_of_a_vllm_elsewhere_is_asked(policy: str, order: int) -> None:
    information = {"vllm_config": {"scheduler_config": {"policy": policy}}}
    assert await VllmDriver().priority_order(FakeClient({"/server_info?config_format=json": information})) == order


@pytest.mark.parametrize(
    ("event", "text", "settled"),
    [
        (b'{"model": "m", "event": "model_status", "data": {"status": "loaded"}}', "loaded", True),
        (b'{"model": "m", "event": "model_remove"}', "model_remove", True),
        (
            b'{"model": "m", "event": "model_status", "data": {"status": "loading", "progress": {"value": 0.5}}}',
            "loading model: 50%",
            False,
        ),
        (
            b'{"model": "m", "event": "download_progress", "data": {"https://a/b": {"done": 1, "total": 2}}}',
            "download_progress",
            False,
        ),
    ],
)
async def test_the_router_tells_when_something_is_loaded(event: bytes, text: str, settled: bool) -> None:
    """News of a download come many times in a second, and change nothing in the list of what is loaded."""

    class Client(FakeClient):
        async def follow(self, path: str, on_event: Callable[[bytes], None]) -> None:
            on_event(event)

    heard: list[LoadNews] = []
    await LlamaCppRouterDriver().follow_loads(Client({}), heard.append)
    assert heard == [LoadNews("m", text, settled)]
