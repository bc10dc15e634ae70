"""Drivers of servers that differ from OpenAI's API, each beside a server that answers as documented."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from enginehouse import Capabilities, Driver
from enginehouse.drivers import LoadedModel, ServedModel
from enginehouse.errors import LoadFailed, NotEnoughMemory, UpstreamError
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import HttpEngineClient, PlayedServer, check_driver
from enginehouse_openai.koboldcpp import KoboldCppDriver
from enginehouse_openai.lemonade import LemonadeDriver
from enginehouse_openai.litellm import LiteLLMDriver
from enginehouse_openai.tabbyapi import TabbyAPIDriver
from tests.plugins.drivers.played_servers import PlayedKobold, PlayedLemonade, PlayedLiteLLM, PlayedTabby
from tests.support.fake_engines import FakeClient

DRIVERS: Sequence[tuple[type[Driver], type[PlayedServer]]] = [
    (LemonadeDriver, PlayedLemonade),
    (TabbyAPIDriver, PlayedTabby),
    (KoboldCppDriver, PlayedKobold),
    (LiteLLMDriver, PlayedLiteLLM),
]


def ask(driver: Driver, server: PlayedServer, question: str, *more: str) -> Any:
    return asyncio.run(getattr(driver, question)(HttpEngineClient(server.url), *more))


def models(driver: Driver, server: PlayedServer) -> dict[str, ServedModel]:
    return {model.name: model for model in ask(driver, server, "models")}


@pytest.mark.parametrize(("driver", "server"), DRIVERS)
def test_they_keep_the_rules_and_find_their_servers_healthy(driver: type[Driver], server: type[PlayedServer]) -> None:
    check_driver(driver)
    with server() as it:
        assert ask(driver(), it, "healthy") is True


class TestLemonade:
    @pytest.fixture
    def server(self) -> Iterator[PlayedLemonade]:
        with PlayedLemonade() as server:
            yield server

    def test_downloaded_models_are_listed_with_what_they_can_do(self, server: PlayedLemonade) -> None:
        listed = models(LemonadeDriver(), server)
        assert set(listed) == {"Qwen3-4B-GGUF", "nomic-embed", "gpt-remote"}
        qwen = listed["Qwen3-4B-GGUF"]
        assert qwen.capabilities == Capabilities(context_length=40960, vision=True, tools=True, embeddings=False)
        assert qwen.memory == 2_500_000_000
        assert listed["nomic-embed"].capabilities.embeddings
        assert [name for name, model in listed.items() if model.proxied] == ["gpt-remote"]

    def test_models_are_loaded_and_unloaded(self, server: PlayedLemonade) -> None:
        driver = LemonadeDriver()
        ask(driver, server, "load", "Qwen3-4B-GGUF")
        assert ask(driver, server, "loaded") == [LoadedModel("Qwen3-4B-GGUF")]
        ask(driver, server, "unload", "Qwen3-4B-GGUF")
        assert server.running == []
        ask(driver, server, "unload", "Qwen3-4B-GGUF")  # somebody else was faster

    def test_failures_tell_their_reason_whatever_their_status(self, server: PlayedLemonade) -> None:
        server.room = 0
        with pytest.raises(NotEnoughMemory, match="out of memory"):
            ask(LemonadeDriver(), server, "load", "Qwen3-4B-GGUF")
        with pytest.raises(LoadFailed, match="Model not found: gone"):
            ask(LemonadeDriver(), server, "load", "gone")

    async def test_a_failure_without_words_tells_its_status(self) -> None:
        with pytest.raises(LoadFailed, match="status 200"):
            await LemonadeDriver().load(FakeClient({"/v1/load": {"status": "error", "error": {"code": 5}}}), "m")


class TestTabbyAPI:
    @pytest.fixture
    def server(self) -> Iterator[PlayedTabby]:
        with PlayedTabby() as server:
            yield server

    def test_one_model_is_loaded_at_a_time(self, server: PlayedTabby) -> None:
        driver = TabbyAPIDriver()
        assert ask(driver, server, "loaded") == []
        ask(driver, server, "load", "qwen")
        assert ask(driver, server, "loaded") == [LoadedModel("qwen")]
        assert {name: model.capabilities.context_length for name, model in models(driver, server).items()} == {
            "qwen": 8192,
            "gemma": None,
        }
        ask(driver, server, "unload", "gemma")
        assert server.current == "qwen"
        ask(driver, server, "unload", "qwen")
        assert server.current == ""

    def test_a_load_that_breaks_off_tells_why(self, server: PlayedTabby) -> None:
        server.trouble = "CUDA out of memory"
        with pytest.raises(NotEnoughMemory, match="CUDA out of memory"):
            ask(TabbyAPIDriver(), server, "load", "qwen")
        with pytest.raises(LoadFailed, match="Could not find the model path"):
            ask(TabbyAPIDriver(), server, "load", "gone")


class TestKoboldCpp:
    def test_it_lists_the_loaded_model_and_the_files_of_its_admin_folder(self) -> None:
        with PlayedKobold() as server:
            listed = models(KoboldCppDriver(), server)
            assert set(listed) == {"koboldcpp/qwen", "koboldcpp/gemma"}
            assert listed["koboldcpp/qwen"].capabilities == Capabilities(context_length=16384, vision=True)
            assert ask(KoboldCppDriver(), server, "loaded") == [LoadedModel("koboldcpp/qwen")]
            ask(KoboldCppDriver(), server, "unload", "koboldcpp/qwen")
            server.away = 0
            assert ask(KoboldCppDriver(), server, "loaded") == []

    def test_without_admin_it_serves_what_it_has(self) -> None:
        with PlayedKobold(admin=0) as server:
            assert set(models(KoboldCppDriver(), server)) == {"koboldcpp/qwen"}
            with pytest.raises(LoadFailed, match="--admin"):
                ask(KoboldCppDriver(), server, "load", "koboldcpp/gemma")
            with pytest.raises(LoadFailed, match="admin password"):
                ask(KoboldCppDriver(), server, "unload", "koboldcpp/qwen")

    def test_it_tells_how_much_it_has_to_do(self) -> None:
        with PlayedKobold() as server:
            assert ask(KoboldCppDriver(), server, "concurrency") == 1
            assert ask(KoboldCppDriver(), server, "status") == InstanceStatus(
                num_waiting_requests=2, num_running_requests=1
            )

    def test_a_request_waits_while_it_restarts_with_another_model(self) -> None:
        with PlayedKobold() as server:
            table = f'[backends.kobold]\ndriver = "koboldcpp"\nurl = "{server.url}"\n'
            with RunningGateway(f'[checks]\ninterval = "100ms"\n{table}') as gateway:
                gateway.until(lambda status: "ready" in {each["state"] for each in status["replicas"]})
                body = {"model": "koboldcpp/gemma", "messages": [{"role": "user", "content": "Hello"}]}
                url = f"{gateway.url}/v1/chat/completions"
                assert httpx.post(url, json=body, trust_env=False, timeout=60).status_code == 200
                assert server.current == "koboldcpp/gemma"


class TestLiteLLM:
    def test_a_model_can_do_what_all_its_deployments_can(self) -> None:
        with PlayedLiteLLM() as server:
            listed = models(LiteLLMDriver(), server)
            assert set(listed) == {"gpt", "embed"}
            assert listed["gpt"].capabilities == Capabilities(
                context_length=32768, vision=False, tools=True, embeddings=False
            )
            assert listed["embed"].capabilities == Capabilities(context_length=8192, embeddings=True)

    def test_a_key_without_that_right_gets_the_plain_list(self) -> None:
        with PlayedLiteLLM() as server:
            server.may_ask = False
            assert set(models(LiteLLMDriver(), server)) == {"gpt", "embed"}


def test_an_answer_that_is_not_documented_is_an_error() -> None:
    with PlayedServer() as server, pytest.raises(UpstreamError):
        ask(TabbyAPIDriver(), server, "loaded")
