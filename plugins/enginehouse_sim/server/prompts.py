"""From what clients send to the text that the engine continues."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.text import text_of


class Part(msgspec.Struct):
    """One piece of a multipart content."""

    type: str = "text"
    text: str | None = None


class Message(msgspec.Struct):
    """One chat message, or one item of a Responses input."""

    role: str = "user"
    content: str | list[Part] | None = None


Prompt = str | list[str | int | list[int]]
"""Text, several texts, token ids, or several lists of them."""


def render_chat(messages: Sequence[Message], *, continue_final: bool = False) -> str:
    """A conversation as one text, ready for the assistant's answer.

    With ``continue_final`` the last message is left open, so that the answer goes on where it ends.
    """
    text = "".join(f"{message.role}\n{_content(message)}\n" for message in messages)
    return text[:-1] if continue_final else f"{text}assistant\n"


def texts_of(prompt: Prompt) -> list[str]:
    """Each prompt of a completion as text. Raises ``InvalidRequest`` for an empty or a mixed list."""
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(one, str) for one in prompt) and prompt:
        return [one for one in prompt if isinstance(one, str)]
    if all(isinstance(one, list) for one in prompt) and prompt:
        return [text_of(one) for one in prompt if isinstance(one, list)]
    ids = [one for one in prompt if isinstance(one, int)]
    if not ids or len(ids) != len(prompt):
        raise InvalidRequest("A prompt is a text, a list of token ids, or a list of either, and not empty")
    return [text_of(ids)]


def _content(message: Message) -> str:
    if isinstance(message.content, list):
        return "".join(f"<|{part.type}|>" if part.text is None else part.text for part in message.content)
    return message.content or ""
