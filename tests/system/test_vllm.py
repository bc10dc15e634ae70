"""A real vLLM behind the gateway, launched by it, and swapped for another one that embeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from enginehouse import Driver
from enginehouse.drivers import Continuation, PartialAnswer
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import HttpEngineClient, check_driver
from enginehouse_openai import OpenAIConfig, OpenAIDriver
from enginehouse_vllm import VllmDriver
from tests.support.engine_runs import (
    drains,
    embeds,
    embeds_again_after_a_kill,
    shows_metrics,
    stops_for_a_client_that_leaves,
)
from tests.support.plain_httpx import get, post
from tests.support.real_gateways import VLLM_START_S, ready_gateway, vllm, vllm_table

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(VLLM_START_S)]

HELLO = [{"role": "user", "content": "hello world"}]
STRIPS = """\
{%- for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] | trim }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A chat template that strips blanks, as those of Llama 3 and Gemma do."""
DOCUMENTS = ["a story of two words", "hello world"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that runs the model ``tiny``, which is ready, or ``vectors``."""
    engine = vllm(tmp_path_factory.mktemp("tiny-hf"))
    template = tmp_path_factory.mktemp("template") / "strips.jinja"
    template.write_text(STRIPS)
    tables = [
        vllm_table("tiny", engine, options=f'max_num_seqs = 4, chat_template = "{template}"', preload="true"),
        vllm_table("vectors", engine, options='max_num_seqs = 4, runner = "pooling"'),
    ]
    with ready_gateway(engine, "\n".join(tables), "tiny", timeout=VLLM_START_S) as gateway:
        yield gateway


@pytest.mark.parametrize("driver", [VllmDriver, partial(OpenAIDriver, OpenAIConfig(continues="ids"))])
def test_its_drivers_pass_the_check_on_it(driver: Callable[[], Driver], gateway: RunningGateway) -> None:
    check_driver(driver, f"{gateway.url}/upstream/tiny", "tiny")


def test_the_model_is_listed_with_its_context(gateway: RunningGateway) -> None:
    card = get(f"{gateway.url}/v1/models/tiny").json()
    assert (card["max_model_len"], card["status"]) == (2048, {"value": "loaded"})


def test_tokens_are_counted_at_the_gateways_own_address(gateway: RunningGateway) -> None:
    answer = post(f"{gateway.url}/tokenize", json={"model": "tiny", "prompt": "hello world"})
    assert answer.status_code == 200
    assert answer.json()["count"] == len(answer.json()["tokens"]) > 0


@pytest.mark.parametrize(("text", "more"), [("hello ", 1), ("hello\n\n", 2)])
async def test_blanks_around_a_text_that_is_continued_stay(gateway: RunningGateway, text: str, more: int) -> None:
    """The chat template strips them from an open message, which is what the request would have without ``fill_in``."""
    engine, driver = HttpEngineClient(f"{gateway.url}/upstream/tiny"), VllmDriver()

    def read(made: Continuation) -> int:
        fields = msgspec.json.decode(made.body) | {"stream": False}
        reply = post(f"{gateway.url}{made.path}", json=fields, timeout=60)
        assert reply.status_code == 200, reply.text
        return int(reply.json()["usage"]["prompt_tokens"])

    def answer(text: str) -> PartialAnswer:
        body = msgspec.json.encode({"model": "tiny", "messages": HELLO, "stream": True, "max_tokens": 9})
        return PartialAnswer(path="/v1/chat/completions", body=body, text=text, tokens=1)

    plain = read(driver.continuation(answer("hello")))
    assert read(driver.continuation(answer(text))) == plain, "stripped"
    assert read(driver.continuation(await driver.fill_in(engine, answer(text)))) == plain + more


def test_its_figures_are_on_the_gateways_page(gateway: RunningGateway) -> None:
    shows_metrics(gateway, "tiny", "vllm:num_requests_running")
    shows_metrics(gateway, "tiny", "vllm:prefix_cache_hits")


async def test_it_stops_for_a_client_that_leaves(gateway: RunningGateway) -> None:
    await stops_for_a_client_that_leaves(gateway, "tiny", 1500)


async def test_it_drains(gateway: RunningGateway) -> None:
    await drains(gateway, "tiny", "tiny", 300)


class TestASwapOfTwo:
    """The gateway stops the one and starts the other: the last tests, because that takes minutes."""

    def test_a_model_made_for_it_embeds(self, gateway: RunningGateway) -> None:
        embeds(gateway, "vectors", timeout=VLLM_START_S)
        assert {each["model"]: each["state"] for each in gateway.status()["replicas"]} == {
            "tiny": "stopped",
            "vectors": "ready",
        }

    def test_texts_are_scored_and_documents_ranked(self, gateway: RunningGateway) -> None:
        body = {"model": "vectors", "text_1": "hello world", "text_2": DOCUMENTS}
        scored = post(f"{gateway.url}/v1/score", json=body, timeout=60)
        assert scored.status_code == 200, scored.text
        scores = [each["score"] for each in scored.json()["data"]]
        assert scores[1] == max(scores) == pytest.approx(1, abs=1e-3)
        ranked = post(
            f"{gateway.url}/rerank",
            json={"model": "vectors", "query": "hello world", "documents": DOCUMENTS},
            timeout=60,
        )
        assert ranked.status_code == 200, ranked.text
        assert [each["index"] for each in ranked.json()["results"]] == [1, 0]

    def test_a_killed_engine_is_launched_again(self, gateway: RunningGateway) -> None:
        embeds_again_after_a_kill(gateway, "vectors", timeout=VLLM_START_S)
