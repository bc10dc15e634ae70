from __future__ import annotations

import pytest

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.domain.asked import IMAGE_TOKENS
from enginehouse_sim.simulator.model.text import text_of, token_id
from enginehouse_sim.simulator.server.bodies import (
    ChatMessage,
    ContentPart,
    ImageUrl,
    PromptInput,
    chat_prompt,
    prompts_of,
)


def rendered(messages: list[ChatMessage], **how: bool) -> str:
    return text_of(chat_prompt(messages, **how).token_ids)


def test_continuing_the_final_message_is_the_answer_so_far() -> None:
    asked = [ChatMessage(role="user", content="hi")]
    so_far = [*asked, ChatMessage(role="assistant", content="steam rail")]
    assert rendered(so_far, continue_final=True) == rendered(asked) + "steam rail"
    assert rendered(so_far) != rendered(so_far, continue_final=True)


def test_without_a_generation_prompt_no_role_is_appended() -> None:
    asked = [ChatMessage(role="user", content="hi")]
    assert rendered(asked) == rendered(asked, add_generation_prompt=False) + "assistant\n"


def test_calls_that_were_made_are_part_of_the_conversation() -> None:
    called = ChatMessage(role="assistant", tool_calls=[{"function": {"name": "look"}}])
    assert '"look"' in rendered([called])


def test_text_parts_are_read_and_others_leave_a_mark() -> None:
    parts = [ContentPart(text="listen: "), ContentPart(type="input_audio")]
    assert "listen: <|input_audio|>" in rendered([ChatMessage(content=parts)])


def test_images_take_the_place_of_tokens_and_are_known_by_what_they_are() -> None:
    one, other = (ContentPart(type="image_url", image_url=ImageUrl(url)) for url in ("data:a", "data:b"))
    prompt = chat_prompt([ChatMessage(content=[ContentPart(text="see "), one, ContentPart(text=" and "), other, one])])
    first, second, third = prompt.mm_inputs
    assert first.identifier == third.identifier != second.identifier
    for image in prompt.mm_inputs:
        assert image.length == IMAGE_TOKENS
        assert set(prompt.token_ids[image.offset : image.offset + image.length]) == {token_id("\ufffc")}
    assert text_of(prompt.token_ids[: first.offset]).endswith("see ")
    assert text_of(prompt.token_ids[first.offset + first.length : second.offset]) == " and "
    assert third.offset == second.offset + second.length


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("a b", ["a b"]),
        (["a", "b"], ["a", "b"]),
        ([token_id("a"), token_id(" b")], ["a b"]),
        ([[token_id("a")], [token_id("b")]], ["a", "b"]),
    ],
)
def test_a_prompt_comes_in_four_shapes(prompt: PromptInput, texts: list[str]) -> None:
    assert [text_of(one.token_ids) for one in prompts_of(prompt)] == texts


@pytest.mark.parametrize("prompt", [[], ["a", 1], [[1], 2]])
def test_an_empty_or_mixed_prompt_is_refused(prompt: PromptInput) -> None:
    with pytest.raises(InvalidRequest):
        prompts_of(prompt)
