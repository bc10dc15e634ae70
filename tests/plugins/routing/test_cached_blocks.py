from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginehouse.engine_caches import PromptTokens
from enginehouse_kit.block_events import BlocksRemoved, BlocksStored, CacheCleared, EventsLost
from enginehouse_kit.prefixes import Prompt
from enginehouse_routing.cached_blocks import CachedBlocks
from enginehouse_routing.shared_index import SharedPrefixIndex

SIZE = 16
ROOM = 1_000_000


class Engines:
    """An index that follows the engines ``a`` and ``b``, whose hashes of a block have nothing in common."""

    def __init__(self, *followed: str) -> None:
        self.index = SharedPrefixIndex()
        self.blocks = CachedBlocks(self.index)
        for name in followed or "ab":
            self.blocks.happened(name, [CacheCleared()])

    def stores(self, name: str, ids: Sequence[int], blocks: range, lora: str = "") -> None:
        tokens = ids[blocks.start * SIZE : blocks.stop * SIZE]
        parent = self.hash(name, ids, blocks.start - 1) if blocks.start else None
        hashes = [self.hash(name, ids, n) for n in blocks]
        self.blocks.happened(name, [BlocksStored(hashes, parent, tokens, SIZE, lora)])

    def evicts(self, name: str, ids: Sequence[int], blocks: range) -> None:
        self.blocks.happened(name, [BlocksRemoved([self.hash(name, ids, n) for n in blocks])])

    def hash(self, name: str, ids: Sequence[int], block: int) -> int:
        return hash((name, *ids[: (block + 1) * SIZE]))

    def learns(self, name: str, content: str | Sequence[int], tokens: PromptTokens, *, sent: bool = False) -> None:
        """Learn the tokens of a prompt, which was ``sent`` there or not."""
        prompt = Prompt("m", content)
        if sent:
            self.index.note(f"m@{name}", prompt, ROOM)
        self.blocks.link(prompt, tokens, name, "m")

    def has(self, content: str | Sequence[int]) -> dict[str, int]:
        return {name.removeprefix("m@"): tokens for name, tokens in self.index.leading(Prompt("m", content)).items()}


IDS = list(range(64 * 20))


def test_an_engine_has_what_it_stored_whoever_sent_it() -> None:
    engines = Engines()
    engines.stores("a", IDS, range(80))
    engines.learns("a", IDS, PromptTokens(IDS))
    assert engines.has(IDS) == {"a": 1280}
    engines.stores("b", IDS, range(80))
    assert engines.has(IDS) == {"a": 1280, "b": 1280}


@pytest.mark.parametrize("followed", [False, True])
def test_tokens_may_be_known_before_the_first_event(followed: bool) -> None:
    engines = Engines(*"ab" if followed else "b")
    engines.learns("a", IDS, PromptTokens(IDS))
    assert engines.has(IDS) == {}
    engines.stores("a", IDS, range(80))
    assert engines.has(IDS) == {"a": 1280}


def test_what_is_evicted_is_forgotten_from_the_end() -> None:
    engines = Engines()
    engines.stores("a", IDS, range(80))
    engines.learns("a", IDS, PromptTokens(IDS), sent=True)
    engines.evicts("a", IDS, range(76, 80))
    assert engines.has(IDS) == {"a": 1216}
    engines.evicts("a", IDS, range(64, 76))
    assert engines.has(IDS) == {"a": 1024}
    engines.evicts("a", IDS, range(63, 64))
    assert engines.has(IDS) == {"a": 960}
    engines.evicts("a", IDS, range(63))
    assert engines.has(IDS) == {}
    engines.stores("a", IDS, range(63))
    engines.stores("a", IDS, range(63, 80))
    assert engines.has(IDS) == {"a": 1280}


def test_what_is_evicted_before_its_tokens_are_known_is_forgotten_with_them() -> None:
    engines, prompt = Engines(), Prompt("m", IDS)
    engines.index.note("m@a", prompt, ROOM)
    engines.stores("a", IDS, range(80))
    engines.evicts("a", IDS, range(80))
    assert engines.has(IDS) == {"a": 1280}
    engines.blocks.link(prompt, PromptTokens(IDS), "a", "m")
    assert engines.has(IDS) == {}
    engines.stores("a", IDS, range(80))
    assert engines.has(IDS) == {"a": 1280}


def test_a_prompt_that_was_sent_and_is_not_stored_is_there_only_if_it_was_just_read() -> None:
    engines = Engines()
    engines.stores("b", IDS, range(64))
    engines.index.note("m@b", Prompt("m", IDS), ROOM)
    engines.stores("a", IDS[:64], range(4))
    engines.learns("a", IDS, PromptTokens(IDS), sent=True)
    assert engines.has(IDS) == {"a": 1280, "b": 1024}, "the events of a are still to come"


def test_after_a_loss_the_index_keeps_what_it_noted() -> None:
    engines = Engines()
    engines.blocks.happened("a", [EventsLost()])
    assert not engines.blocks.is_exact("a")
    engines.stores("a", IDS, range(64))
    engines.learns("a", IDS, PromptTokens(IDS), sent=True)
    assert engines.has(IDS) == {"a": 1280}
    engines.blocks.happened("a", [CacheCleared()])
    assert engines.blocks.is_exact("a")
    assert engines.has(IDS) == {}


def test_text_is_known_by_its_tokens() -> None:
    engines = Engines()
    words = [f" word{n:04}" for n in range(1200)]  # 9 characters each
    text = "".join(words)
    ids = list(range(len(words)))
    ends = [9 * (n + 1) for n in ids]
    engines.stores("a", ids, range(75))
    engines.learns("a", text, PromptTokens(ids, ends))
    assert engines.has(text) == {"a": 64 * (len(text) // 256)}
    engines.evicts("a", ids, range(70, 75))  # the last 80 tokens are 720 characters, so all of 3 chunks of 256
    assert engines.has(text)["a"] == 64 * ((len(text) - 720) // 256)


def test_uneven_text_is_cut_where_its_tokens_are() -> None:
    engines = Engines()
    text = "x" * 2048 + "y" * 2048  # 1,024 tokens of 2 characters, then 256 tokens of 8
    ids = list(range(1024 + 256))
    ends = [2 * (n + 1) for n in range(1024)] + [2048 + 8 * (n + 1) for n in range(256)]
    engines.stores("a", ids, range(80))
    engines.learns("a", text, PromptTokens(ids, ends), sent=True)
    assert engines.has(text) == {"a": 1024}
    engines.evicts("a", ids, range(64, 80))
    assert engines.has(text) == {"a": 512}, "which stands for 2048 characters"


def test_adapters_have_blocks_of_their_own() -> None:
    engines = Engines()
    engines.stores("a", IDS, range(80), lora="sql")
    engines.learns("a", IDS, PromptTokens(IDS))
    assert engines.has(IDS) == {}
    engines.blocks.link(Prompt("sql", IDS), PromptTokens(IDS), "a", "sql", "sql")
    assert engines.index.leading(Prompt("sql", IDS)) == {"sql@a": 1280}


def test_blocks_whose_beginning_is_unknown_are_left_out() -> None:
    engines = Engines()
    engines.stores("a", IDS, range(40, 80))
    engines.evicts("a", IDS, range(80))
    engines.stores("a", IDS, range(4))
    engines.learns("a", IDS, PromptTokens(IDS))
    assert engines.has(IDS) == {}


def test_backends_that_are_gone_are_forgotten_when_another_one_comes() -> None:
    engines = Engines("a", "b")
    engines.stores("a", IDS, range(80))
    engines.blocks.follows = lambda backend: backend != "a"
    engines.blocks.happened("b", [CacheCleared()])
    assert engines.blocks.is_exact("a")
    engines.blocks.happened("c", [CacheCleared()])
    assert [engines.blocks.is_exact(each) for each in "abc"] == [False, True, True]
