"""What a request asks for: its prompts as tokens, and the work of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.domain.constants import IMAGE_TOKENS, MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.model.text import EOS, count_tokens, encode


class EncodedPrompt(msgspec.Struct, frozen=True):
    """The tokens to continue, and the images among them."""

    token_ids: list[int]
    mm_inputs: Sequence[MultiModalInput] = ()


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """``choices`` answers to each prompt. Choice ``c`` of prompt ``p`` has the number ``p * choices + c``.

    ``max_tokens``: the most tokens of each answer; with 0, the engine only computes the prompts, as for embeddings.
    ``stops``: strings that end an answer; ``include_stop``: show the string or token that ended it. ``grammar``: as
    ``valid_tokens`` takes it. ``logprobs``: the number of likeliest tokens to report at each place, at least the
    sampled one. ``follows``: the id of a request that has migrated here; the answer is the rest of its answer after
    the only prompt, and no request begins. The other fields are those of ``RequestState``.
    """

    id: str
    prompts: Sequence[EncodedPrompt]
    max_tokens: int
    choices: int = 1
    min_tokens: int = 0
    ignore_eos: bool = False
    stops: Sequence[str] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    grammar: str | None = None
    logprobs: int | None = None
    priority: int = 0
    lora: str | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    follows: str | None = None

    @property
    def size(self) -> int:
        """The number of answers."""
        return len(self.prompts) * self.choices

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts."""
        return sum(len(prompt.token_ids) for prompt in self.prompts)

    def request(self, number: int, request_id: str) -> RequestState:
        """The engine's request for one answer."""
        at, choice = divmod(number, self.choices)
        prompt = self.prompts[at]
        return RequestState(
            request_id=request_id,
            prompt_token_ids=prompt.token_ids,
            mm_inputs=prompt.mm_inputs,
            max_tokens=self.max_tokens,
            pooling=not self.max_tokens,
            choice=choice,
            eos_token_id=EOS,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            stop_token_ids=self.stop_token_ids,
            structured_output=self.grammar,
            logprobs=self.logprobs,
            priority=self.priority,
            lora=self.lora,
            cache_salt=self.cache_salt,
            kv_transfer_params=self.kv_transfer_params,
        )


_IMAGE = "\N{OBJECT REPLACEMENT CHARACTER}" * IMAGE_TOKENS

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
PromptInput = str | list[str | TokenId | list[TokenId]]
"""A text, several texts, token ids, or several lists of token ids."""


class ImageUrl(msgspec.Struct):
    """The URL of an image, or the image itself as a ``data:`` URL."""

    url: str


class ContentPart(msgspec.Struct):
    """One part of a message's content. The ``type`` stands for a part that is neither text nor image."""

    type: str = "text"
    text: str | None = None
    image_url: str | ImageUrl | None = None


class ChatMessage(msgspec.Struct):
    """One chat message, or one item of a Responses input."""

    role: str = "user"
    content: str | list[ContentPart] | None = None
    tool_calls: list[Any] | None = None


def chat_prompt(
    messages: Sequence[ChatMessage], *, continue_final: bool = False, add_generation_prompt: bool = True
) -> EncodedPrompt:
    """A conversation as a prompt for the assistant's answer.

    With ``continue_final``, the last message stays open, and the answer continues it. Else ``add_generation_prompt``
    begins the assistant's message.
    """
    rendering = _Rendering()
    for message in messages:
        rendering.add(message)
    if continue_final and messages:
        rendering.texts[-1] = rendering.texts[-1][:-1]
    elif add_generation_prompt:
        rendering.texts.append("assistant\n")
    return rendering.prompt()


def prompts_of(prompt: PromptInput) -> list[EncodedPrompt]:
    """The prompts of a completion or an embedding. Raises ``InvalidRequest`` for an empty or a mixed list."""
    if isinstance(prompt, str):
        return [EncodedPrompt(encode(prompt))]
    if all(isinstance(one, str) for one in prompt) and prompt:
        return [EncodedPrompt(encode(one)) for one in prompt if isinstance(one, str)]
    if all(isinstance(one, list) for one in prompt) and prompt:
        return [EncodedPrompt(one) for one in prompt if isinstance(one, list)]
    ids = [one for one in prompt if isinstance(one, int)]
    if not ids or len(ids) != len(prompt):
        raise InvalidRequest("A prompt is a text, a list of token ids, or a list of either, and not empty")
    return [EncodedPrompt(ids)]


class _Rendering:
    """A conversation being rendered to one text, with the positions of its images."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._images: list[tuple[int, str]] = []

    def add(self, message: ChatMessage) -> None:
        self.texts.append(f"{message.role}\n")
        if isinstance(message.content, list):
            for part in message.content:
                self._add_part(part)
        else:
            self.texts.append(message.content or "")
        if message.tool_calls:
            self.texts.append(msgspec.json.encode(message.tool_calls).decode())
        self.texts.append("\n")

    def _add_part(self, part: ContentPart) -> None:
        if part.image_url is not None:
            url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
            self._images.append((len(self.texts), blake2b(url.encode(), digest_size=8).hexdigest()))
            self.texts.append(_IMAGE)
        else:
            self.texts.append(f"<|{part.type}|>" if part.text is None else part.text)

    def prompt(self) -> EncodedPrompt:
        token_ids = encode("".join(self.texts))
        images = [
            MultiModalInput(identifier, count_tokens("".join(self.texts[:place])), IMAGE_TOKENS)
            for place, identifier in self._images
        ]
        return EncodedPrompt(token_ids, images)
