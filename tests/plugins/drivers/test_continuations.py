"""How each bundled driver continues a stream."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse.drivers import PartialAnswer, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse_llamacpp import LlamaCppConfig, LlamaCppDriver
from enginehouse_openai import OpenAIConfig, OpenAIDriver
from enginehouse_sglang import SglangDriver
from enginehouse_sim import SimDriver
from enginehouse_vllm import VllmDriver
from tests.support.fake_engines import FakeClient

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAID = "Once upon"
PROMPT = msgspec.Raw(b"[7, 8]")
BY_IDS = [VllmDriver(), SimDriver(), OpenAIDriver(OpenAIConfig(continues="ids"))]


def chat(**fields: Any) -> bytes:
    messages = [{"role": "user", "content": "Tell"}]
    return msgspec.json.encode({"model": "m", "messages": messages, "stream": True, "max_tokens": 10, **fields})


def completion(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "prompt": "Tell", "stream": True, **fields})


def partial(path: str, body: bytes, **known: Any) -> PartialAnswer:
    return PartialAnswer(path=path, body=body, text=SAID, **{"tokens": 3, **known})


def asked(driver: SupportsContinuation, answer: PartialAnswer) -> tuple[str, dict[str, Any]]:
    made = driver.continuation(answer)
    return made.path, msgspec.json.decode(made.body)


@pytest.mark.parametrize("driver", [*BY_IDS, SglangDriver()])
def test_a_chat_with_known_tokens_goes_on_as_a_completion_of_tokens(driver: SupportsContinuation) -> None:
    body = chat(min_tokens=5, stop=["x"], temperature=0.5, tool_choice="none", tools=[{}])
    answer = partial(CHAT, body, ids=[1, 2, 3], prompt_ids=PROMPT, skip=2)
    made = driver.continuation(answer)
    assert (made.path, made.tokens, made.skip, made.exact) == (COMPLETIONS, 3, 2, True)
    assert msgspec.json.decode(made.body) == {
        "model": "m",
        "stream": True,
        "max_tokens": 7,
        "min_tokens": 2,
        "stop": ["x"],
        "temperature": 0.5,
        "prompt": [7, 8, 1, 2, 3],
        "return_token_ids": True,
    }


@pytest.mark.parametrize("driver", [*BY_IDS, SglangDriver()])
def test_a_chat_without_tokens_goes_on_as_an_open_message(driver: SupportsContinuation) -> None:
    path, body = asked(driver, partial(CHAT, chat()))
    assert path == CHAT
    assert body["messages"][-1] == {"role": "assistant", "content": SAID}
    assert (body["continue_final_message"], body["add_generation_prompt"], body["max_tokens"]) == (True, False, 7)


@pytest.mark.parametrize("messages", [{}, {"messages": None}])
@pytest.mark.parametrize("driver", [*BY_IDS, SglangDriver()])
def test_a_chat_without_messages_is_not_continued_by_text(
    driver: SupportsContinuation, messages: dict[str, Any]
) -> None:
    body = msgspec.json.encode({"max_tokens": 9, "continue_final_message": True, **messages})
    with pytest.raises(CannotContinue, match="no messages"):
        driver.continuation(partial(CHAT, body))


@pytest.mark.parametrize("driver", [*BY_IDS, SglangDriver()])
def test_a_completion_without_max_tokens_has_sixteen_in_all(driver: SupportsContinuation) -> None:
    path, body = asked(driver, partial(COMPLETIONS, completion()))
    assert (path, body["prompt"], body["max_tokens"]) == (COMPLETIONS, "Tell" + SAID, 13)


def test_a_chat_of_vllm_without_max_tokens_has_the_rest_of_the_context() -> None:
    body = msgspec.json.encode({"model": "m", "messages": [], "stream": True})
    path, fields = asked(VllmDriver(), partial(CHAT, body, ids=[1], prompt_ids=PROMPT))
    assert (path, fields["max_tokens"]) == (COMPLETIONS, None)


def test_the_rest_of_a_chat_goes_into_the_limit_that_the_client_used() -> None:
    body = chat(max_completion_tokens=20)
    assert asked(VllmDriver(), partial(CHAT, body))[1]["max_completion_tokens"] == 17
    assert asked(VllmDriver(), partial(CHAT, body, ids=[1], prompt_ids=PROMPT))[1]["max_tokens"] == 19


def test_a_conversation_with_images_goes_on_as_a_conversation() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    answer = partial(CHAT, chat(messages=[image]), ids=[1], prompt_ids=PROMPT)
    path, body = asked(VllmDriver(), answer)
    assert (path, body["messages"][0]) == (CHAT, image)


def test_a_message_that_was_open_stays_one_message() -> None:
    open_message = {"role": "assistant", "content": "So: "}
    body = chat(messages=[open_message], continue_final_message=True)
    assert asked(VllmDriver(), partial(CHAT, body))[1]["messages"] == [{"role": "assistant", "content": "So: " + SAID}]


@pytest.mark.parametrize("driver", [*BY_IDS, SglangDriver(), LlamaCppDriver()])
def test_nothing_is_guessed(driver: SupportsContinuation) -> None:
    with pytest.raises(CannotContinue, match="unknown"):
        driver.continuation(partial(CHAT, chat(), tokens=None))
    with pytest.raises(CannotContinue, match="already has as many tokens"):
        driver.continuation(partial(CHAT, chat(max_tokens=3)))
    with pytest.raises(CannotContinue, match="not text"):
        driver.continuation(partial(COMPLETIONS, completion(prompt=[1])))


@pytest.mark.parametrize("driver", BY_IDS)
def test_a_stream_is_asked_for_its_tokens_unless_the_client_says_otherwise(driver: SupportsContinuation) -> None:
    assert msgspec.json.decode(driver.continuable(CHAT, b"{ }")) == {"return_token_ids": True}
    assert msgspec.json.decode(driver.continuable(CHAT, chat())) == msgspec.json.decode(chat(return_token_ids=True))
    mine = chat(return_token_ids=False)
    assert driver.continuable(CHAT, mine) is mine


def test_a_simulated_chat_without_max_tokens_cannot_be_continued() -> None:
    body = msgspec.json.encode({"model": "m", "messages": [], "stream": True})
    with pytest.raises(CannotContinue, match="max_tokens"):
        SimDriver().continuation(partial(CHAT, body, ids=[1], prompt_ids=PROMPT))


def test_a_server_of_an_unknown_kind_continues_what_its_table_says() -> None:
    answer = partial(CHAT, chat(), ids=[1], prompt_ids=PROMPT)
    body = chat()
    assert OpenAIDriver().continuable(CHAT, body) is body
    with pytest.raises(CannotContinue, match=r"\[plugins\.openai\]"):
        OpenAIDriver().continuation(answer)
    assert asked(OpenAIDriver(OpenAIConfig(continues="text")), answer)[0] == CHAT


class TestLlamaCpp:
    driver = LlamaCppDriver()

    @pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion())])
    def test_a_stream_is_asked_for_nothing(self, path: str, body: bytes) -> None:
        """What a server would report of its tokens costs it more than a tenth of its speed."""
        assert self.driver.continuable(path, body) is body

    def test_log_probabilities_tell_the_tokens_if_configured(self) -> None:
        driver = LlamaCppDriver(LlamaCppConfig(token_ids=True))
        fields = msgspec.json.decode(driver.continuable(CHAT, chat()))
        assert (fields["logprobs"], fields["top_logprobs"], fields["post_sampling_probs"]) == (True, 1, True)
        fields = msgspec.json.decode(driver.continuable(COMPLETIONS, completion()))
        assert (fields["logprobs"], fields["post_sampling_probs"]) == (1, True)
        with_tools = chat(tools=[{}])
        assert driver.continuable(CHAT, with_tools) is with_tools
        assert driver.streams.added == ("logprobs",)
        answer = partial(CHAT, chat(), ids=[1, 2, 3], prompt_ids=PROMPT)
        assert asked(driver, answer)[1]["logprobs"] == 1
        assert "logprobs" not in asked(self.driver, answer)[1]

    async def test_the_engine_tokenizes_the_prompt(self) -> None:
        engine = FakeClient({"/apply-template": {"prompt": "<user>Tell"}, "/tokenize": {"tokens": [7, 8]}})
        answer = await self.driver.fill_in(engine, partial(CHAT, chat(), ids=[1, 2, 3]))
        assert engine.asked == ["/apply-template", "/tokenize"]
        assert asked(self.driver, answer)[1]["prompt"] == [7, 8, 1, 2, 3]

    async def test_the_engine_counts_a_text_without_tokens(self) -> None:
        engine = FakeClient({"/tokenize": {"tokens": [5, 6]}})
        answer = await self.driver.fill_in(engine, partial(COMPLETIONS, completion(), tokens=None))
        assert answer.tokens == 2

    async def test_a_chat_without_tokens_goes_on_after_those_of_its_text(self) -> None:
        """``continue_final_message`` would depend on the template, and on the version whether its text is repeated."""
        engine = FakeClient({"/apply-template": {"prompt": "<user>Tell"}, "/tokenize": {"tokens": [7, 8]}})
        answer = await self.driver.fill_in(engine, partial(CHAT, chat()))
        made = self.driver.continuation(answer)
        assert (made.path, made.skip, made.tokens, made.exact) == (COMPLETIONS, 0, 3, False)
        assert msgspec.json.decode(made.body)["prompt"] == [7, 8, 7, 8]

    def test_the_answer_to_an_open_message_repeats_it(self) -> None:
        made = self.driver.continuation(partial(CHAT, chat()))
        assert (made.path, made.skip, made.tokens) == (CHAT, len(SAID), 3)
        assert msgspec.json.decode(made.body)["echo"] is True
        completed = self.driver.continuation(partial(COMPLETIONS, completion()))
        assert completed.skip == 0
        assert "echo" not in msgspec.json.decode(completed.body), "which is refused there"


@pytest.mark.parametrize("driver", [VllmDriver(), SglangDriver()])
class TestEnginesThatTokenize:
    async def test_the_engine_counts_a_text_without_tokens(self, driver: SupportsContinuation) -> None:
        engine = FakeClient({"/tokenize": {"tokens": [1, 2, 3, 4], "count": 4}})
        answer = await driver.fill_in(engine, partial(CHAT, chat(), tokens=None))
        assert (answer.tokens, answer.prompt_ids) == (4, None)

    @pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion(max_tokens=9))])
    async def test_the_engine_tokenizes_the_prompt_that_another_kind_answered(
        self, driver: SupportsContinuation, path: str, body: bytes
    ) -> None:
        engine = FakeClient({"/tokenize": {"tokens": [7, 8], "count": 2}})
        answer = await driver.fill_in(engine, partial(path, body, ids=[1, 2, 3]))
        assert asked(driver, answer)[1]["prompt"] == [7, 8, 1, 2, 3]
        kept = {"messages": [{"role": "user", "content": "Tell"}]} if path == CHAT else {"prompt": "Tell"}
        assert engine.bodies == [{"model": "m", **kept}]

    async def test_known_tokens_are_not_asked_for(self, driver: SupportsContinuation) -> None:
        engine = FakeClient({})
        known = partial(CHAT, chat(), ids=[1, 2, 3], prompt_ids=PROMPT)
        assert await driver.fill_in(engine, known) == known
        assert engine.asked == []

    async def test_a_prompt_that_the_engine_does_not_tokenize_is_continued_by_text(
        self, driver: SupportsContinuation
    ) -> None:
        answer = await driver.fill_in(FakeClient({}), partial(CHAT, chat(), ids=[1, 2, 3]))
        assert asked(driver, answer)[1]["messages"][-1] == {"role": "assistant", "content": SAID}


class TestVllmsChatTemplates:
    @pytest.mark.parametrize("text", [" Once upon", "Once upon\n"])
    async def test_blanks_around_a_text_do_not_depend_on_vllms_chat_template(self, text: str) -> None:
        """Many templates strip an open message. The tokens are not those that were generated, so it is not exact."""
        engine = FakeClient({"/tokenize": {"tokens": [7, 8], "count": 2}})
        answer = PartialAnswer(path=CHAT, body=chat(), text=text, tokens=3)
        made = VllmDriver().continuation(await VllmDriver().fill_in(engine, answer))
        assert (made.path, made.tokens, made.skip, made.exact) == (COMPLETIONS, 3, 0, False)
        fields = msgspec.json.decode(made.body)
        assert (fields["prompt"], fields["max_tokens"]) == ([7, 8, 7, 8], 7)
        assert "messages" not in fields

    async def test_a_text_without_blanks_around_it_is_an_open_message_at_vllm(self) -> None:
        engine = FakeClient({"/tokenize": {"tokens": [7, 8], "count": 2}})
        answer = PartialAnswer(path=CHAT, body=chat(), text="Once upon", tokens=3)
        assert VllmDriver().continuation(await VllmDriver().fill_in(engine, answer)).path == CHAT
        assert engine.asked == []

    async def test_an_image_keeps_the_open_message(self) -> None:
        messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
        engine = FakeClient({"/tokenize": {"tokens": [7, 8], "count": 2}})
        answer = PartialAnswer(path=CHAT, body=chat(messages=messages), text="Once ", tokens=3)
        assert VllmDriver().continuation(await VllmDriver().fill_in(engine, answer)).path == CHAT
