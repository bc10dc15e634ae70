"""For strategies: the beginnings of prompts that each engine probably has in its prefix cache."""

from __future__ import annotations

from enginehouse_kit.prefixes.chunks import ChunkExtractor, chunks_of
from enginehouse_kit.prefixes.prompt import Prompt, PromptExtractor, prompt_of

__all__ = [
    "ChunkExtractor",
    "Prompt",
    "PromptExtractor",
    "chunks_of",
    "prompt_of",
]
