"""Clients' protocols in front of engines that speak only OpenAI's chats, completions and embeddings."""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl
from enginehouse_kit.protocols import Protocol
from enginehouse_protocols.responses.protocol import Responses


@hookimpl
def register_protocols(register: Register[Any]) -> None:
    """Offer the protocols."""
    register("messages", _messages)
    register("responses", Responses)
    register("ollama", _ollama)
    register("lmstudio", _lmstudio)
    register("openai_paths", _openai_paths)


def _messages() -> Protocol:
    """Anthropic's Messages, as its SDKs and Claude Code speak them."""
    from enginehouse_protocols.messages.protocol import Messages

    return Messages()


def _ollama() -> Protocol:
    """Ollama's own endpoints, as its clients speak them."""
    from enginehouse_protocols.ollama.protocol import Ollama

    return Ollama()


def _lmstudio() -> Protocol:
    """LM Studio's own endpoints."""
    from enginehouse_protocols.lmstudio import LMStudio

    return LMStudio()


def _openai_paths() -> Protocol:
    """OpenAI's requests under Azure's paths, ``/v1/engines/{name}`` and ``/v2/rerank``."""
    from enginehouse_protocols.openai_paths import OpenAIPaths

    return OpenAIPaths()
