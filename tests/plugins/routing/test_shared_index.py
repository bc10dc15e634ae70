from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse_kit.prefixes import Prompt, PromptExtractor, prompt_of
from enginehouse_kit.testing import check_extractor, request, requirements
from enginehouse_routing.shared_index import SharedPrefixIndex

ROOM = 1_000_000
TEXT = random.Random(5).randbytes(350_000).hex()


def prompt(text: str) -> Prompt:
    return Prompt("m", text)


def recognised(index: SharedPrefixIndex, text: str, engine: str) -> int:
    """The characters that the engine has."""
    return 4 * index.leading(prompt(text)).get(engine, 0)


def test_it_keeps_the_rules_of_extractors() -> None:
    check_extractor(PromptExtractor)


def test_a_long_prompt_is_recognised_to_its_end() -> None:
    index = SharedPrefixIndex()
    index.note("a", prompt(TEXT[:600_000]), ROOM)
    assert recognised(index, TEXT, "a") > 600_000 - 256


def test_where_prompts_part_they_are_told_apart_finely() -> None:
    index = SharedPrefixIndex()
    for engine, own in (("a", "1"), ("b", "2"), ("c", "3")):
        index.note(engine, prompt(TEXT[:9000] + own * 9000), ROOM)
    found = [recognised(index, TEXT[:9000] + "4" * 9000, engine) for engine in "abc"]
    assert found == [8192, 8960, 8960], "nothing was known to part when the first one came"


def test_the_next_turn_of_an_agent_is_recognised_to_the_end_of_the_last_one() -> None:
    index, chance, length = SharedPrefixIndex(), random.Random(1), 3000
    for _ in range(30):
        index.note("a", prompt(TEXT[:length]), ROOM)
        longer = length + chance.randint(100, 5000)
        assert length - 256 < recognised(index, TEXT[:longer], "a") <= length
        length = longer


@pytest.mark.parametrize("number", [1, 100])
def test_each_engine_has_what_it_was_sent(number: int) -> None:
    index = SharedPrefixIndex()
    for n in range(number):
        index.note(f"e{n}", prompt(TEXT[: 4096 * (1 + n % 7)]), ROOM)
    found = index.leading(prompt(TEXT[:100_000]))
    assert found == {f"e{n}": 1024 * (1 + n % 7) for n in range(number)}


def test_the_ends_of_old_prompts_are_forgotten_first() -> None:
    index = SharedPrefixIndex()
    for start in (0, 100_000):
        index.note("a", prompt(TEXT[start : start + 12_288]), 4 * 1024)
    assert recognised(index, TEXT[100_000:112_288], "a") == 12_288
    assert recognised(index, TEXT[:12_288], "a") == 4096


def test_an_engine_is_forgotten_and_its_number_used_again() -> None:
    index = SharedPrefixIndex()
    index.note("a", prompt(TEXT[:9000]), ROOM)
    index.note("b", prompt(TEXT[:5000]), ROOM)
    index.forget("a")
    index.forget("unknown")
    index.note("c", prompt(TEXT[:4500]), ROOM)
    assert index.leading(prompt(TEXT[:9000])) == {"b": 4864 // 4, "c": 4352 // 4}


def test_engines_that_are_gone_are_forgotten() -> None:
    index, text = SharedPrefixIndex(), prompt(TEXT[:512])
    for place in range(5000):
        index.note(f"gone-{place}", text, ROOM)
        index.note("a", text, ROOM)
    found = index.leading(text)
    assert len(found) == 4096
    assert {"a", "gone-4999"} <= found.keys()


def test_models_have_nothing_in_common() -> None:
    index = SharedPrefixIndex()
    index.note("a", Prompt("one", TEXT[:9000]), ROOM)
    assert not index.leading(Prompt("other", TEXT[:9000]))


def test_token_ids_are_chunks_of_sixty_four() -> None:
    index = SharedPrefixIndex()
    index.note("a", Prompt("m", list(range(2000))), ROOM)
    assert index.leading(Prompt("m", [*range(1500), *range(500)]))["a"] == 1024 + 7 * 64
    index.note("b", Prompt("m", [*range(1500), *range(500)]), ROOM)
    assert index.leading(Prompt("m", list(range(1600)))) == {"a": 1024 + 9 * 64, "b": 1024 + 7 * 64}


def test_short_prompts_are_left_out() -> None:
    needs = requirements()
    PromptExtractor().extract(request({"prompt": "Hello"}), needs)
    assert prompt_of(needs) is None
    assert not needs.extra


cuts = st.lists(st.integers(0, 12_000), min_size=1, max_size=6)


@given(lengths=cuts, own=st.integers(0, 3000), room=st.sampled_from([64, 1024, 3000, ROOM]))
def test_no_engine_has_more_than_it_was_sent(lengths: list[int], own: int, room: int) -> None:
    index, sent = SharedPrefixIndex(), dict[str, int]()
    for n, length in enumerate(lengths):
        engine = f"e{n % 3}"
        index.note(engine, prompt(TEXT[:length] + str(n) * own), room)
        sent[engine] = max(sent.get(engine, 0), length)
    for engine, tokens in index.leading(prompt(TEXT[:20_000])).items():
        assert 0 < 4 * tokens <= sent[engine]


def test_an_index_hears_what_another_one_notes() -> None:
    teller, hearer = SharedPrefixIndex(), SharedPrefixIndex()
    prompt = Prompt("m", "word " * 4000)
    teller.note("early", Prompt("m", "other " * 4000), 10_000)
    assert teller.news() == []  # it keeps news from now on
    teller.note("a", prompt, 10_000)
    hearer.hear(teller.news())
    assert hearer.leading(prompt) == teller.leading(prompt)
    assert teller.news() == []


def test_news_are_bounded() -> None:
    index = SharedPrefixIndex()
    index.news()
    for number in range(1500):
        index.note("a", Prompt("m", f"{number}"), 100)
    assert len(index.news()) == 1000


def test_another_index_goes_on_with_what_one_remembers() -> None:
    index, other = SharedPrefixIndex(), SharedPrefixIndex()
    for engine, own in (("a", "1"), ("b", "2")):
        index.note(engine, prompt(TEXT[:9000] + own * 9000), ROOM)
    other.note("b", prompt("something else" * 1000), ROOM)
    before = other.leading(prompt("something else" * 1000))
    other.recall(index.remembered())
    assert recognised(other, TEXT[:9000] + "1" * 9000, "a") == recognised(index, TEXT[:9000] + "1" * 9000, "a") > 17_000
    assert other.leading(prompt("something else" * 1000)) == before, "what it knows itself is newer"
    other.note("a", prompt(TEXT[:4096]), 1024)
    assert recognised(other, TEXT[:9000] + "1" * 9000, "a") == 4096, "the oldest chunks go first"


def test_what_is_remembered_is_bounded_and_the_newest() -> None:
    index, other = SharedPrefixIndex(), SharedPrefixIndex()
    for engine in "ab":
        index.note(engine, prompt("x" * 40_000), ROOM)
        index.note(engine, prompt(TEXT[:20_000]), ROOM)
    remembered = index.remembered(most_kept=20)
    assert {engine: len(chunks) for engine, (chunks, _) in remembered.items()} == {"a": 80, "b": 80}
    other.recall(remembered)
    assert recognised(other, TEXT[:20_000], "a") >= 16_384
    assert recognised(other, "x" * 40_000, "a") == 0


def test_memory_that_is_cut_off_is_refused() -> None:
    with pytest.raises(ValueError, match="missing"):
        SharedPrefixIndex().recall({"a": (b"12345678", b"")})


def test_the_chunks_of_a_prompt_are_the_same_in_every_process() -> None:
    """Whatever Python's secret for its hashes is."""
    program = (
        "from enginehouse_kit.prefixes import Prompt; p = Prompt('m', 'ab\\ud800' * 2000); print(p.coarse, p.tail)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
