"""The tokens of an answer, found from the texts of its events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from enginehouse.drivers import EngineResponse, PartialAnswer
from enginehouse.errors import CannotContinue
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_llamacpp.continuing import TokenFinder
from tests.support.waiting import within

WORDS: list[str | bytes] = ["<s>", "H", "el", "Hel", "lo", " lo", "\n", " ", "ก", "า", "กา", b"\xf0\x9f", b"\x98\x80"]
UNMADE = frozenset({"กา"})
"""The tokenizer never makes this token, although a model may generate it."""


class Tokenizer:
    """An engine that tokenizes by the longest match; ``blank``: it puts a blank before each text, as Llama 2's does."""

    def __init__(self, words: Sequence[str | bytes] = WORDS, *, blank: bool = False, pieces: bool = True) -> None:
        self.words = [word.encode() if isinstance(word, str) else word for word in words]
        self.blank = blank
        self.pieces = pieces
        self.asked: list[Any] = []

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        if path == "/v1/models":
            page: Any = {"data": [{"id": "m", "meta": {"n_vocab": len(self.words)}}]}
        elif path == "/apply-template":
            page = {"prompt": "Hel"}
        else:
            question = msgspec.json.decode(body)
            self.asked.append(question["content"])
            page = {"tokens": self._tokens(question)}
        return EngineResponse(200, [], msgspec.json.encode(page))

    def _tokens(self, question: Any) -> Any:
        content = question["content"]
        ids: list[int] = []
        for part in content if isinstance(content, list) else [content]:
            ids += [part] if isinstance(part, int) else self._ids(part.encode())
        if not (self.pieces and question.get("with_pieces")):
            return ids
        return [{"id": each, "piece": _shown(self.words[each])} for each in ids]

    def _ids(self, text: bytes) -> list[int]:
        text = b" " + text if self.blank else text
        ids = []
        while text:
            made = [word for word in self.words if text.startswith(word) and word not in map(str.encode, UNMADE)]
            ids.append(self.words.index(max(made, key=len)))
            text = text[len(self.words[ids[-1]]) :]
        return ids


def _shown(word: bytes) -> str | list[int]:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return list(word)


async def found(engine: Tokenizer, *pieces: str) -> tuple[list[int], bool]:
    tokens = await TokenFinder().find(engine, "m", pieces)
    assert tokens is not None
    return list(tokens.ids), tokens.exact


@pytest.mark.parametrize("blank", [False, True])
async def test_tokens_that_the_text_as_a_whole_would_not_become(blank: bool) -> None:
    assert await found(Tokenizer(blank=blank), "H", "el", " lo", "lo", "Hel") == ([1, 2, 5, 4, 3], True)


async def test_one_request_is_enough() -> None:
    engine = Tokenizer()
    await found(engine, *["H", "el"] * 100)
    assert len(engine.asked) == 1


async def test_a_token_that_the_tokenizer_never_makes_is_looked_up_once() -> None:
    engine, finder = Tokenizer(), TokenFinder()
    for _ in range(2):
        tokens = await finder.find(engine, "m", ["H", "กา"])
        assert tokens is not None
        assert (list(tokens.ids), tokens.exact) == ([1, 10], True)
    assert engine.asked == [["H", "กา"], list(range(len(WORDS))), ["H", 10]]


async def test_an_engine_that_answers_what_is_no_byte_tells_no_tokens() -> None:
    class Odd(Tokenizer):
        def _tokens(self, question: Any) -> Any:
            return [{"id": 1, "piece": [300]}]

    assert await TokenFinder().find(Odd(), "m", ["H"]) is None


class Hanging(Tokenizer):
    """Answers no question for its models."""

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        if path == "/v1/models":
            await asyncio.Event().wait()
        return await super().request(method, path, body)


@pytest.mark.parametrize(("model", "pieces"), [("m", ["H", "el"]), ("other", ["H", "กา"])])
async def test_an_engine_that_hangs_holds_up_only_streams_that_need_the_same(model: str, pieces: list[str]) -> None:
    finder = TokenFinder()
    hanging = asyncio.ensure_future(finder.find(Hanging(), "m", ["กา"]))
    await asyncio.wait({hanging}, timeout=0.01)
    tokens = await within(finder.find(Tokenizer(), model, pieces))
    assert tokens is not None
    assert tokens.exact
    hanging.cancel()


async def test_a_text_that_is_no_token_is_looked_up_once() -> None:
    engine, finder = Tokenizer(), TokenFinder()
    for _ in range(2):
        tokens = await finder.find(engine, "m", ["H", "lolo"])
        assert tokens is not None
        assert (list(tokens.ids), tokens.exact) == ([1, 4, 4], False)
    assert len(engine.asked) == 3


async def test_what_is_remembered_is_checked() -> None:
    finder = TokenFinder()
    await finder.find(Tokenizer(), "m", ["กา"])
    tokens = await finder.find(Tokenizer(["x", *WORDS]), "m", ["กา"])
    assert tokens is not None
    assert (list(tokens.ids), tokens.exact) == ([11], True)


async def test_a_character_of_several_tokens_is_likely_but_not_exact() -> None:
    assert await found(Tokenizer(), "H", "😀") == ([1, 11, 12], False)


class LowerCase(Tokenizer):
    """An engine whose tokens do not give the text back."""

    def _ids(self, text: bytes) -> list[int]:
        return super()._ids(text.lower())


@pytest.mark.parametrize("engine", [Tokenizer(pieces=False), LowerCase([*WORDS, "h", "e", "l"])])
async def test_an_engine_that_does_not_give_the_pieces_back_tells_nothing(engine: Tokenizer) -> None:
    assert await TokenFinder().find(engine, "m", ["Hel"]) is None


class TestContinuing:
    driver = LlamaCppDriver()

    def answer(self, path: str, **known: Any) -> PartialAnswer:
        prompt: dict[str, Any] = {"messages": []} if path == "/v1/chat/completions" else {"prompt": "Hel"}
        body = msgspec.json.encode({"model": "m", "max_tokens": 10, "stream": True, **prompt})
        return PartialAnswer(path=path, body=body, **known)

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
    async def test_a_stream_goes_on_by_the_tokens_that_its_events_tell(self, path: str) -> None:
        answer = self.answer(path, text="Hello", pieces=["H", "el", "lo"])
        made = self.driver.continuation(await LlamaCppDriver().fill_in(Tokenizer(), answer))
        assert (made.path, made.tokens, made.exact) == ("/v1/completions", 3, True)
        fields = msgspec.json.decode(made.body)
        assert (fields["prompt"], fields["max_tokens"]) == ([3, 1, 2, 4], 7)

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
    async def test_a_stream_whose_tokens_are_only_likely_goes_on_by_its_text(self, path: str) -> None:
        answer = self.answer(path, text="Hel😀", pieces=["H", "el", "😀"])
        made = self.driver.continuation(await LlamaCppDriver().fill_in(Tokenizer(), answer))
        assert (made.path, made.tokens, made.exact) == ("/v1/completions", 4, False)
        assert msgspec.json.decode(made.body)["prompt"] == [3, 1, 2, 11, 12]

    async def test_an_answer_with_all_its_tokens_is_not_asked_for_more(self) -> None:
        answer = self.answer("/v1/completions", text="H" * 10, pieces=["H"] * 10)
        with pytest.raises(CannotContinue, match="as many tokens"):
            self.driver.continuation(await LlamaCppDriver().fill_in(Tokenizer(), answer))
