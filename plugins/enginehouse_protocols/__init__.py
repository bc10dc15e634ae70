"""Clients' protocols in front of engines that speak only OpenAI's chats, completions and embeddings.

::

    fields      reads the fields of a request, with errors that name them
    chats       what the protocols have in common: a chat that is asked for, its answer and its pieces
    messages/   Anthropic's Messages
    responses/  OpenAI's Responses
    ollama/     Ollama's chats, prompts and embeddings
"""

from __future__ import annotations

from typing import Any

from enginehouse import Protocol, Register, hookimpl


@hookimpl
def register_protocols(register: Register[Any]) -> None:
    """Offer the three protocols."""
    register("messages", _messages)
    register("responses", _responses)
    register("ollama", _ollama)


def _messages() -> Protocol:
    """Anthropic's Messages, as its SDKs and Claude Code speak them."""
    from enginehouse_protocols.messages.protocol import Messages

    return Messages()


def _responses() -> Protocol:
    """OpenAI's Responses, as its SDKs and Codex speak them."""
    from enginehouse_protocols.responses.protocol import Responses

    return Responses()


def _ollama() -> Protocol:
    """Ollama's own endpoints, as its clients speak them."""
    from enginehouse_protocols.ollama.protocol import Ollama

    return Ollama()
