"""Downloads models from the Hugging Face hub, from Ollama's registry, and from any address.

::

    hugging_face       hf.co/ORG/REPO[:QUANT]
    ollama_registry    ollama.com/[USER/]MODEL[:TAG], or MODEL[:TAG] alone
    plain_url          https://HOST/FILE.gguf
    download           one download: it goes on where it ended, and is checked
    web                requests, redirects and refusals
    pages              POST /api/pull and DELETE /api/delete, for clients of Ollama
"""

from __future__ import annotations

from typing import Any

from enginehouse import ModelSource, Register, hookimpl
from enginehouse.pages import guarded
from enginehouse_pull.hugging_face import HuggingFace
from enginehouse_pull.ollama_registry import OllamaRegistry
from enginehouse_pull.plain_url import PlainUrl


@hookimpl
def register_model_sources(register: Register[ModelSource]) -> None:
    """Offer the three sources."""
    register("hugging_face", HuggingFace)
    register("ollama", OllamaRegistry)
    register("url", PlainUrl)


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Offer Ollama's pages that download models and delete them."""
    register("pull", _pages)


def _pages() -> Any:
    """Ollama's ``/api/pull`` and ``/api/delete``, for operators."""
    from enginehouse_pull.pages import pull_routes

    return guarded(pull_routes())
