"""The prefix cache of a real llama-server outlives a swap."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import engines_of
from tests.support.real_engines import RealEngine
from tests.support.real_gateways import gateway_for, llama_server, llama_table

pytestmark = pytest.mark.engine

PROMPT = " ".join(f"word{number}" for number in range(150))
OTHER = " ".join(f"other{number}" for number in range(150))
ARGS = ["-c", "8192", "-np", "2"]
PATIENT = {"keep_cache_wait": '"60s"'}
"""However busy the machine is."""


@pytest.fixture
def engine() -> RealEngine:
    return llama_server()


@pytest.fixture
def model(engine: RealEngine, tmp_path: Path) -> RealEngine:
    """A copy of the model, which a test may change."""
    copy = tmp_path / "model.gguf"
    copy.write_bytes(engine.model.read_bytes())
    return RealEngine(engine.program, copy)


@pytest.fixture
def gateway(model: RealEngine) -> Iterator[RunningGateway]:
    """A gateway that runs either ``a`` or ``b``, or ``cold``, whose cache is not kept."""
    tables = [llama_table(name, model, *ARGS, **PATIENT) for name in "ab"]
    with gateway_for(model, "".join([*tables, llama_table("cold", model, *ARGS, keep_cache="0")])) as gateway:
        yield gateway


def answer_to(gateway: RunningGateway, model: str, prompt: str) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0}
    answer: dict[str, Any] = plain_httpx.post(f"{gateway.url}/v1/completions", json=body, timeout=120).json()
    return answer


def cached_in(answer: dict[str, Any]) -> int:
    """How many tokens of the prompt were cached."""
    cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def ask(gateway: RunningGateway, model: str, prompt: str = PROMPT) -> tuple[str, int]:
    """The text, and how many tokens of the prompt were cached."""
    answer = answer_to(gateway, model, prompt)
    return answer["choices"][0]["text"], cached_in(answer)


def counted(gateway: RunningGateway) -> dict[str, int]:
    """What became of kept caches, by outcome."""
    lines = plain_httpx.get(f"{gateway.url}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("enginehouse_caches_kept_total{")]
    counts: dict[str, int] = {}
    for line in found:
        outcome = line.partition('outcome="')[2].partition('"')[0]
        counts[outcome] = counts.get(outcome, 0) + int(float(line.rpartition(" ")[2]))
    return {outcome: count for outcome, count in counts.items() if count}


def test_a_prompt_is_not_read_again_after_a_swap(gateway: RunningGateway) -> None:
    text, cached = ask(gateway, "a")
    assert cached == 0
    ask(gateway, "b", OTHER)
    again, cached = ask(gateway, "a")
    assert (again, cached > 500) == (text, True)
    assert counted(gateway) == {"saved": 2, "restored": 1}


@pytest.mark.long
def test_a_long_prompt_costs_its_load_after_a_swap(model: RealEngine) -> None:
    prompt = " ".join(f"word{number}" for number in range(1030))
    tables = [llama_table(name, model, "-c", "16384", "-np", "2", **PATIENT) for name in "ab"]
    with gateway_for(model, "".join(tables)) as gateway:
        cold = answer_to(gateway, "a", prompt)
        assert cold["usage"]["prompt_tokens"] > 6000
        read_ms: list[float] = []
        for _ in range(3):
            ask(gateway, "b", OTHER)
            warm = answer_to(gateway, "a", prompt)
            assert warm["choices"][0]["text"] == cold["choices"][0]["text"]
            assert cached_in(warm) >= 0.95 * cold["usage"]["prompt_tokens"]
            read_ms.append(warm["timings"]["prompt_ms"])
    assert min(read_ms) <= 0.05 * cold["timings"]["prompt_ms"], "on a busy machine, one of them may be late"


@pytest.mark.parametrize("slots", [["-np", "4"], ["--no-cache-idle-slots"]], ids=["apart", "shared"])
def test_a_title_does_not_cost_a_conversation_its_cache(model: RealEngine, slots: list[str]) -> None:
    tables = [llama_table(name, model, "-c", "8192", *slots, **PATIENT) for name in "ab"]
    with gateway_for(model, "".join(tables)) as gateway:
        ask(gateway, "a")
        ask(gateway, "b", OTHER)
        ask(gateway, "a", "A title, please")  # in another slot; that of the conversation is not used
        ask(gateway, "b", OTHER)
        assert ask(gateway, "a")[1] > 500


def test_all_slots_are_kept(gateway: RunningGateway) -> None:
    texts = [ask(gateway, "a", prompt)[0] for prompt in (PROMPT, OTHER)]
    ask(gateway, "b")
    answers = [ask(gateway, "a", prompt) for prompt in (PROMPT, OTHER)]
    assert [text for text, _ in answers] == texts
    assert min(cached for _, cached in answers) > 500


def test_the_kept_cache_counts_as_cached(gateway: RunningGateway) -> None:
    ask(gateway, "a")
    ask(gateway, "b")
    body = {"model": "a", "prompt": PROMPT, "max_tokens": 8}
    explained = plain_httpx.post(f"{gateway.url}/api/explain/route?path=/v1/completions", json=body)
    assert explained.status_code == 200, explained.text
    assert explained.json()["prefix"]["cached"] > 100


def test_none_is_kept_where_that_is_off(gateway: RunningGateway) -> None:
    ask(gateway, "cold")
    ask(gateway, "b", OTHER)
    assert ask(gateway, "cold")[1] == 0
    assert counted(gateway) == {"saved": 1}


def test_another_model_file_gets_nothing(gateway: RunningGateway, model: RealEngine) -> None:
    ask(gateway, "a")
    ask(gateway, "b", OTHER)
    os.utime(model.model, ns=(1, 1))
    assert ask(gateway, "a")[1] == 0
    assert "restored" not in counted(gateway)


def test_an_engine_that_is_killed_leaves_only_what_was_saved_before(gateway: RunningGateway) -> None:
    text, _ = ask(gateway, "a")
    ask(gateway, "b", OTHER)
    ask(gateway, "a")
    [process] = engines_of(gateway.pid)
    process.kill()
    process.wait(30)
    again, cached = ask(gateway, "a")
    assert (again, cached > 500) == (text, True)


def test_a_preloaded_model_gets_back_what_an_earlier_gateway_has_saved(model: RealEngine, tmp_path: Path) -> None:
    tables = [llama_table(name, model, *ARGS, **PATIENT) for name in "ab"]
    with gateway_for(model, "".join(tables), tmp_path / "state") as gateway:
        text, _ = ask(gateway, "a")
        ask(gateway, "b", OTHER)
    preloaded = llama_table("a", model, *ARGS, **PATIENT, preload="true")
    with gateway_for(model, preloaded + tables[1], tmp_path / "state") as gateway:
        again, cached = ask(gateway, "a")
        assert (again, cached > 500) == (text, True)
