"""Continues the streams of a ``llama-server``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from enginehouse.drivers import Continuation, EngineClient, PartialAnswer, StreamTraits, SupportsContinuation, add_field
from enginehouse.errors import CannotContinue, UpstreamError
from enginehouse_kit.drivers import continue_ids, continue_text, read_json

_CHAT = "/v1/chat/completions"
_REPORTED = {"logprobs": 1, "post_sampling_probs": True}
_LEADS = ("", "\n")
"""What comes before each piece. Tokenizers such as Llama 2's put a blank before a text, so its first token is another:
a line break keeps that blank away from the piece."""
_MOST_REMEMBERED = 10_000
_BATCH = 8192
"""So many tokens of a vocabulary are read at once: their JSON keeps the event loop busy for 2 ms."""


class LlamaCppConfig(msgspec.Struct, frozen=True):
    """``token_ids``: have the servers report the tokens of their streams, for engines of another kind.

    It costs a server a part of its speed: the docs on continuations have figures. A ``llama-server`` finds the tokens
    of a stream without it.
    """

    token_ids: bool = False


class LlamaServerStreams(SupportsContinuation):
    """The part of a driver that continues streams, whether the server has one model or is a router."""

    Config = LlamaCppConfig
    streams = StreamTraits(token_by_token=True, caches_prefixes=True)

    def __init__(self, config: LlamaCppConfig | None = None) -> None:
        self._finder = TokenFinder()
        self._reports = config is not None and config.token_ids
        if self._reports:
            self.streams = StreamTraits(added=("logprobs",), caches_prefixes=True)

    def continuable(self, path: str, body: bytes) -> bytes:
        """Ask for one probability per token if configured: only there a stream has the tokens' ids.

        Those after sampling need not be computed from the whole vocabulary.
        """
        if not self._reports:
            return body
        if path != _CHAT:
            asked = add_field(body, "logprobs", b"1")
        elif b'"top_logprobs"' in body or b'"tools"' in body:  # it refuses logprobs in streams with tools
            return body
        else:
            asked = add_field(body, "logprobs", b"true")
            asked = body if asked is body else add_field(asked, "top_logprobs", b"1")
        return body if asked is body else add_field(asked, "post_sampling_probs", b"true")

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Have the engine find the tokens of the answer, apply its template and tokenize the prompt."""
        if answer.ids is None:
            answer = await self._with_tokens(engine, answer)
        if (answer.ids is None and answer.text_ids is None) or answer.prompt_ids is not None:
            return answer
        prompt: Any = msgspec.json.decode(answer.body).get("prompt")
        if answer.path == _CHAT:
            prompt = read_json(await engine.request("POST", "/apply-template", answer.body), _Prompt).prompt
        if not isinstance(prompt, str):
            return answer
        ids = msgspec.Raw(msgspec.json.encode(await _tokens(engine, answer, prompt, special=True)))
        return msgspec.structs.replace(answer, prompt_ids=ids)

    async def _with_tokens(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """``answer`` with its tokens, if its events tell them; else with those that ``engine`` makes of it."""
        pieces = answer.pieces
        found = None if pieces is None else await self._finder.find(engine, _model(answer), pieces)
        if found is not None and found.exact:
            return msgspec.structs.replace(answer, ids=found.ids, tokens=len(found.ids))
        ids = await _tokens(engine, answer, answer.text, special=False) if found is None else found.ids
        answer = msgspec.structs.replace(answer, tokens=len(ids) if answer.tokens is None else answer.tokens)
        return msgspec.structs.replace(answer, text_ids=ids) if answer.path == _CHAT or found is not None else answer

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """By token ids, else by text. The answer to an open message repeats it; in newer versions only with ``echo``:
        https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-schema.cpp
        """
        try:
            return continue_ids(answer, **_REPORTED) if self._reports else continue_ids(answer)
        except CannotContinue:
            made = continue_text(answer, repeats=True)
        return msgspec.structs.replace(made, body=add_field(made.body, "echo", b"true")) if made.path == _CHAT else made


def _model(answer: PartialAnswer) -> str:
    return str(msgspec.json.decode(answer.body).get("model"))  # a router has several


async def _tokens(engine: EngineClient, answer: PartialAnswer, text: str, *, special: bool) -> list[int]:
    """The tokens of ``text``; ``special``: it is a whole prompt, with control tokens."""
    question = {"model": _model(answer), "content": text, "add_special": special, "parse_special": special}
    return read_json(await engine.request("POST", "/tokenize", msgspec.json.encode(question)), _TokenIds).tokens


class _TokenIds(msgspec.Struct):
    tokens: list[int]


class _Prompt(msgspec.Struct):
    prompt: str


class FoundTokens(msgspec.Struct, frozen=True):
    """The tokens that an engine makes of pieces. ``exact``: they are those that were generated."""

    ids: Sequence[int]
    exact: bool


class TokenFinder:
    """Has engines tokenize each piece of an answer alone, in one request.

    A piece that is one token then was that token, because no other one has its text. A piece that is several may be a
    token that this tokenizer never makes, such as Thai words of Qwen's vocabulary in llama.cpp: it is looked up, and
    remembered. Or it is a character that several tokens share: then the tokens are likely, not certain.
    """

    def __init__(self) -> None:
        self._unmade: dict[str, dict[str, int | None]] = {}  # for each model; None: looked up in vain
        self._looking_up: dict[str, asyncio.Lock] = {}  # when an engine dies, many streams need the same tokens

    async def find(self, engine: EngineClient, model: str, pieces: Sequence[str]) -> FoundTokens | None:
        """The tokens of ``pieces``; ``None`` if the engine does not tell them."""
        unmade = self._unmade.setdefault(model, {})
        try:
            found = await _tokenized(engine, model, pieces, unmade)
            if found is None and unmade:  # the model is another one now
                unmade.clear()
                found = await _tokenized(engine, model, pieces, unmade)
            if found is None:
                return None
            several = {piece for piece, tokens in zip(pieces, found, strict=True) if _is_several_texts(tokens)}
            if several - unmade.keys():
                async with self._looking_up.setdefault(model, asyncio.Lock()):
                    if len(unmade) > _MOST_REMEMBERED:
                        unmade.clear()
                    if missing := several - unmade.keys():
                        unmade |= dict.fromkeys(missing) | await _looked_up(engine, model, missing)
        except UpstreamError:  # an older server
            return None
        ids: list[int] = []
        for piece, tokens in zip(pieces, found, strict=True):
            own = unmade.get(piece)
            ids += [token.id for token in tokens] if own is None else [own]
        return FoundTokens(ids, exact=len(ids) == len(pieces))


class _Token(msgspec.Struct):
    id: int
    piece: str | list[Annotated[int, msgspec.Meta(ge=0, le=255)]]

    @property
    def text(self) -> bytes:
        """Its bytes: the engine sends those of a part of a character as numbers."""
        return self.piece.encode() if isinstance(self.piece, str) else bytes(self.piece)


class _Tokens(msgspec.Struct):
    tokens: list[_Token]


class _Facts(msgspec.Struct):
    n_vocab: int = 0


class _Model(msgspec.Struct):
    id: str
    meta: _Facts | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model]


async def _ask(engine: EngineClient, model: str, content: Sequence[str | int]) -> Sequence[_Token]:
    """The tokens of ``content``, where a number is a token, with their texts."""
    question = {"model": model, "content": content, "parse_special": False, "with_pieces": True}
    return read_json(await engine.request("POST", "/tokenize", msgspec.json.encode(question)), _Tokens).tokens


async def _tokenized(
    engine: EngineClient, model: str, pieces: Sequence[str], known: Mapping[str, int | None]
) -> list[list[_Token]] | None:
    """The tokens of each piece, which have its text; those ``known`` are only checked. ``None`` if texts differ."""
    for lead in _LEADS:
        own = [known.get(piece) for piece in pieces]
        content = [lead + piece if id is None else id for piece, id in zip(pieces, own, strict=True)]
        tokens = await _ask(engine, model, content)
        rest = iter(tokens)
        found = []
        for piece, id in zip(pieces, own, strict=True):
            if lead and id is None and not _skip(rest, lead.encode()):
                break
            if not (taken := _take(rest, piece.encode())):
                break
            found.append(taken)
        if len(found) == len(pieces) and next(rest, None) is None:
            return found
    return None


def _skip(rest: Iterator[_Token], lead: bytes) -> bool:
    """Take the tokens of ``lead``, perhaps after a blank. Returns whether they are there."""
    skipped = b""
    while skipped != lead:
        token = next(rest, None)
        if token is None:
            return False
        skipped = (skipped + token.text).removeprefix(b" ")
        if not lead.startswith(skipped):
            return False
    return True


def _take(rest: Iterator[_Token], text: bytes) -> list[_Token]:
    """Take the tokens of ``text``; none if the next ones have another text."""
    taken = []
    while text:
        token = next(rest, None)
        if token is None or not token.text or not text.startswith(token.text):
            return []
        text = text[len(token.text) :]
        taken.append(token)
    return taken


def _is_several_texts(tokens: Sequence[_Token]) -> bool:
    return len(tokens) > 1 and all(isinstance(token.piece, str) for token in tokens)


async def _looked_up(engine: EngineClient, model: str, texts: Collection[str]) -> dict[str, int]:
    """The tokens that have these texts, as far as the vocabulary has such."""
    found: dict[str, int] = {}
    size = await _vocabulary_size(engine, model)
    for start in range(0, size, _BATCH):
        tokens = await _ask(engine, model, list(range(start, min(start + _BATCH, size))))
        found |= {token.piece: token.id for token in tokens if isinstance(token.piece, str) and token.piece in texts}
        if len(found) == len(texts):
            break
    return found


async def _vocabulary_size(engine: EngineClient, model: str) -> int:
    """The number of tokens; 0 if the engine does not tell it."""
    served = read_json(await engine.request("GET", "/v1/models"), _ModelList).data
    mine = [each for each in served if each.id == model] or served
    return mine[0].meta.n_vocab if len(mine) == 1 and mine[0].meta is not None else 0
