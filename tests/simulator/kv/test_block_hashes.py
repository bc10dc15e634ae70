"""Names of contents: the same everywhere, and different whenever keys and values would be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from enginehouse_sim.simulator.domain.asked import MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from tests.support.block_names import hashes_of

New = Callable[..., RequestState]
HASHER = BlockHasher(4)
PROMPT = list(range(12))


def test_only_full_blocks_have_a_name() -> None:
    assert [len(hashes_of(HASHER, PROMPT[:length])) for length in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_names_are_added_as_tokens_are(new_request: New) -> None:
    request = new_request(6, lora="terse", cache_salt="mine")
    assert len(HASHER.extend(request)) == 1
    for token in (6, 7, 8, 9, 10, 11):
        request.append(token)
        HASHER.extend(request)
    assert request.block_hashes == hashes_of(HASHER, PROMPT, lora="terse", cache_salt="mine")


def test_a_name_covers_everything_before_its_block() -> None:
    names = hashes_of(HASHER, PROMPT)
    other = hashes_of(HASHER, [99, *PROMPT[1:]])
    assert not set(names) & set(other)
    assert hashes_of(HASHER, [*PROMPT[:4], 99, *PROMPT[5:]])[0] == names[0]


@pytest.mark.parametrize(
    "keys",
    [{}, {"lora": "a"}, {"cache_salt": "a"}, {"lora": "a", "cache_salt": "a"}, {"lora": ""}, {"cache_salt": ""}],
)
def test_adapters_and_salts_separate_all_blocks(keys: dict[str, Any]) -> None:
    others: list[dict[str, Any]] = [
        {"lora": "b"},
        {"cache_salt": "b"},
        {"lora": "aa"},
        {"cache_salt": "aa"},
        {"lora": "a", "cache_salt": ""},
    ]
    for other in others:
        assert not set(hashes_of(HASHER, PROMPT, **keys)) & set(hashes_of(HASHER, PROMPT, **other))


def test_equal_tokens_of_different_images_have_different_names_from_the_first_block_they_touch_on() -> None:
    one, other = (hashes_of(HASHER, PROMPT, mm_inputs=[MultiModalInput(name, 5, 2)]) for name in ("cat", "dog"))
    assert one[0] == other[0] == hashes_of(HASHER, PROMPT)[0]
    assert (one[1] != other[1], one[2] != other[2]) == (True, True)


def test_a_block_names_all_images_that_touch_it_and_where_they_begin() -> None:
    cat, dog = MultiModalInput("cat", 0, 6), MultiModalInput("dog", 6, 6)
    both = hashes_of(HASHER, PROMPT, mm_inputs=[cat, dog])
    assert both[0] == hashes_of(HASHER, PROMPT, mm_inputs=[cat])[0]
    assert both[1] != hashes_of(HASHER, PROMPT, mm_inputs=[cat])[1]
    shifted = [MultiModalInput("cat", 1, 6)]
    assert hashes_of(HASHER, PROMPT, mm_inputs=shifted)[0] != hashes_of(HASHER, PROMPT, mm_inputs=[cat])[0]


def test_every_token_id_has_its_own_name() -> None:
    ids = [0, 1, -1, 2**32, 2**56 - 1, -(2**63), 2**63 - 1]
    assert len({hashes_of(HASHER, [token] * 4)[0] for token in ids}) == len(ids)


def test_any_text_of_a_client_can_be_a_salt() -> None:
    assert hashes_of(HASHER, PROMPT, cache_salt="\ud800") != hashes_of(HASHER, PROMPT, cache_salt="\ud801")


def test_names_are_numbers_of_64_bits_that_never_change() -> None:
    assert hashes_of(HASHER, PROMPT[:8]) == [2801001025085728000, 16329753075749295843]


def test_every_process_gives_the_same_names() -> None:
    code = (
        "from enginehouse_sim.simulator.kv.block_pool import BlockHasher\n"
        "from tests.support.block_names import hashes_of\n"
        "from enginehouse_sim.simulator.domain.asked import MultiModalInput\n"
        "print(hashes_of(BlockHasher(4), range(12), lora='terse', cache_salt='mine',"
        " mm_inputs=[MultiModalInput('cat', 5, 2)]))"
    )

    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        ).stdout.decode()

    mm_inputs = [MultiModalInput("cat", 5, 2)]
    here = hashes_of(HASHER, PROMPT, lora="terse", cache_salt="mine", mm_inputs=mm_inputs)
    assert run("1") == run("2") == f"{here}\n"
