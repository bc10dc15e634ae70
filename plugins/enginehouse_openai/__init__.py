"""The ``openai`` driver: any OpenAI-compatible server. Beside it, drivers of servers that differ from it.

They differ in health, list, loads or figures: ``koboldcpp``, ``lemonade``, ``litellm`` and ``tabbyapi``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from enginehouse import Driver, Register, hookimpl
from enginehouse.drivers import Continuation, PartialAnswer, StreamTraits, SupportsContinuation, add_field
from enginehouse.errors import CannotContinue
from enginehouse_kit.drivers import OpenAICompatibleDriver, continue_answer, continue_text
from enginehouse_openai.koboldcpp import KoboldCppDriver
from enginehouse_openai.lemonade import LemonadeDriver
from enginehouse_openai.litellm import LiteLLMDriver
from enginehouse_openai.tabbyapi import TabbyAPIDriver


class OpenAIConfig(msgspec.Struct, frozen=True):
    """``[plugins.openai]``: the abilities of all servers of this driver.

    ``continues``: ``nothing``; ``text``: they continue an open last message (``continue_final_message``); ``ids``: they
    also know ``return_token_ids`` and prompts of token ids, as vLLM does.
    """

    continues: Literal["nothing", "text", "ids"] = "nothing"


class OpenAIDriver(OpenAICompatibleDriver, SupportsContinuation):
    """Any OpenAI-compatible server. It is healthy if it lists its models."""

    Config = OpenAIConfig
    streams = StreamTraits(added=("token_ids",), default_max_tokens=16)

    def __init__(self, config: OpenAIConfig | None = None) -> None:
        self._continues = (config or OpenAIConfig()).continues

    def continuable(self, path: str, body: bytes) -> bytes:
        return add_field(body, "return_token_ids", b"true") if self._continues == "ids" else body

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """Continue as ``[plugins.openai]`` says, because a server may treat unknown fields in any way."""
        if self._continues == "ids":
            return continue_answer(answer, default_max_tokens=16, return_token_ids=True)
        if self._continues == "text":
            return continue_text(answer, default_max_tokens=16)
        raise CannotContinue("[plugins.openai] does not say that its servers can continue a text ('continues')")


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the drivers."""
    register("openai", OpenAIDriver)
    register("koboldcpp", KoboldCppDriver)
    register("lemonade", LemonadeDriver)
    register("litellm", LiteLLMDriver)
    register("tabbyapi", TabbyAPIDriver)
