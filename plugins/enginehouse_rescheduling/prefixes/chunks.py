"""A prompt as a chain of chunks: two prompts have a chunk in common if they are equal up to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginehouse import Body, Extractor, InferenceRequest, Message, Requirements

CHUNK_TOKENS = 256
"""As in Llumnix. Of a text, tokens are estimated as one for four characters."""

_CHUNK_CHARACTERS = 4 * CHUNK_TOKENS
_KEY = "rescheduling.chunks"


class ChunkExtractor(Extractor):
    """Notes the chunks of prompts of at least ``least`` tokens."""

    def __init__(self, least: int) -> None:
        self._least = least

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        if requirements.estimated_tokens >= self._least:
            requirements.extra[_KEY] = list(_chain(request.body))


def chunks_of(requirements: Requirements) -> Sequence[int]:
    """The chunks that ``ChunkExtractor`` noted, as numbers of this process."""
    chunks: Sequence[int] = requirements.extra.get(_KEY, ())
    return chunks


def _chain(body: Body) -> Iterator[int]:
    """A number for each whole chunk, made of it and of all before it."""
    number = hash(body.model)
    for piece in _pieces(body):
        number = hash((number, piece))
        yield number


def _pieces(body: Body) -> Iterator[str | tuple[object, ...]]:
    prompt = body.prompt
    if isinstance(prompt, list):  # token ids; of several prompts none is looked up
        if prompt and isinstance(prompt[0], int):
            yield from (tuple(prompt[end - CHUNK_TOKENS : end]) for end in _ends(len(prompt), CHUNK_TOKENS))
        return
    text = "".join(_texts(body))
    yield from (text[end - _CHUNK_CHARACTERS : end] for end in _ends(len(text), _CHUNK_CHARACTERS))


def _ends(length: int, size: int) -> range:
    """The ends of the whole chunks."""
    return range(size, length + 1, size)


def _texts(body: Body) -> Iterator[str]:
    """The texts of a prompt in the order of chat templates: tools come first."""
    yield from (bytes(tool).decode(errors="replace") for tool in body.tools or ())
    if isinstance(body.system, str):
        yield body.system
    if isinstance(body.prompt, str):
        yield body.prompt
    for message in body.messages or ():
        yield f"\n{message.role}\n"
        yield from _of_message(message)


def _of_message(message: Message) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
    else:
        yield from (part.text for part in message.content or () if part.text is not None)
