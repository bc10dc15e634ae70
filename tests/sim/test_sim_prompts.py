from __future__ import annotations

import pytest

from enginehouse import InvalidRequest
from enginehouse_sim.server.prompts import Message, Part, Prompt, render_chat, texts_of
from enginehouse_sim.text import token_id


def test_continuing_the_final_message_is_the_answer_so_far() -> None:
    asked = [Message(role="user", content="hi")]
    so_far = [*asked, Message(role="assistant", content="steam rail")]
    assert render_chat(so_far, continue_final=True) == render_chat(asked) + "steam rail"
    assert render_chat(so_far) != render_chat(so_far, continue_final=True)


def test_text_parts_are_read_and_others_leave_a_mark() -> None:
    parts = [Part(text="look: "), Part(type="image_url")]
    assert "look: <|image_url|>" in render_chat([Message(content=parts)])


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("a b", ["a b"]),
        (["a", "b"], ["a", "b"]),
        ([token_id("a"), token_id(" b")], ["a b"]),
        ([[token_id("a")], [token_id("b")]], ["a", "b"]),
    ],
)
def test_a_prompt_comes_in_four_shapes(prompt: Prompt, texts: list[str]) -> None:
    assert texts_of(prompt) == texts


@pytest.mark.parametrize("prompt", [[], ["a", 1], [[1], 2]])
def test_an_empty_or_mixed_prompt_is_refused(prompt: Prompt) -> None:
    with pytest.raises(InvalidRequest):
        texts_of(prompt)
