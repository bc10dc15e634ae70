from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginehouse import ConfigError
from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from enginehouse_sim.simulator.replay.traces.prompts import block_hashes_of, prompt_of
from enginehouse_sim.simulator.replay.traces.reader import Trace, TraceError, TraceRequest
from enginehouse_sim.simulator.replay.traces.workload import Workload, write
from tests.support.block_names import hashes_of


def read(folder: Path, name: str, text: str, **options: Any) -> list[TraceRequest]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return list(Trace(path, **options))


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(timestamp: float, length: int = 1000, *ids: int, **more: Any) -> dict[str, Any]:
    return {"timestamp": timestamp, "input_length": length, "output_length": 5, "hash_ids": list(ids or (0, 1)), **more}


def test_a_plain_trace_in_csv(tmp_path: Path) -> None:
    text = "arrival,input_length,output_length,prefix_ids,model\n5.5,100,20,7 8,a\n5,10,2,,\n"
    assert read(tmp_path, "t.csv", text) == [
        TraceRequest(arrival=0.0, input_length=10, output_length=2),
        TraceRequest(arrival=0.5, input_length=100, output_length=20, prefix_ids=[7, 8], model="a"),
    ]


def test_a_plain_trace_in_json_lines(tmp_path: Path) -> None:
    row = '{"arrival": 0, "input_length": 9, "output_length": 1, "prefix_ids": [3], "prefix_tokens": 4}'
    assert (
        read(tmp_path, "t.jsonl", f"{row}\n\n{row}\n")
        == [TraceRequest(arrival=0.0, input_length=9, output_length=1, prefix_ids=[3], prefix_tokens=4)] * 2
    )


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_plain_trace_names_keys_and_requests_without_a_stream(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [{"key": "team", "stream": False}, {"key": "", "stream": True}, {"stream": None}]
    full = [{"arrival": 0, "input_length": 1, "output_length": 1, "key": "", **row} for row in rows]
    values = [[str("" if value is None else value) for value in row.values()] for row in full]
    csv = "".join(",".join(line) + "\n" for line in [list(full[0]), *values])
    read_back = read(tmp_path, name, csv if name == "t.csv" else lines(*full))
    assert [(each.key, each.stream) for each in read_back] == [("team", False), ("", True), ("", True)]


def test_a_made_trace_names_only_what_is_not_the_default() -> None:
    out = io.BytesIO()
    write([TraceRequest(arrival=0, input_length=1, output_length=2)], out)
    assert json.loads(out.getvalue()).keys() == {"arrival", "input_length", "output_length"}


@pytest.mark.parametrize("zone", ["", "+00:00", "Z"])
def test_an_azure_trace(tmp_path: Path, zone: str) -> None:
    rows = f"2023-11-16 18:15:46.6805900{zone},374,44\n2023-11-16 18:15:50.9951690{zone},396,109\n"
    first, second = read(tmp_path, "a.csv", f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    assert first == TraceRequest(arrival=0.0, input_length=374, output_length=44)
    assert second.arrival == pytest.approx(4.314579)


def test_a_mooncake_trace(tmp_path: Path) -> None:
    _, second = read(tmp_path, "m.jsonl", lines(mooncake(27482), mooncake(30535)))
    assert second.arrival == pytest.approx(3.053)
    assert (second.prefix_ids, second.prefix_tokens) == ([0, 1], 512)


def test_a_bailian_trace(tmp_path: Path) -> None:
    chat = {"chat_id": 159, "parent_chat_id": -1, "type": "text", "turn": 1}
    _, second = read(tmp_path, "b.jsonl", lines(mooncake(61.1, 32, 8, 9, **chat), mooncake(62.5, 32, 8, 7, **chat)))
    assert second.arrival == pytest.approx(1.4)
    assert (second.prefix_ids, second.prefix_tokens) == ([8, 7], 16)


@pytest.mark.parametrize(
    ("rows", "doubt"),
    [
        ([mooncake(61.5)], "looks like seconds"),
        ([mooncake(second) for second in range(30)], "30 requests in 29 ms"),
        ([mooncake(0, 160, *range(10))], "about 16 tokens each"),
    ],
)
def test_a_trace_that_may_have_other_units_is_doubted(tmp_path: Path, rows: list[dict[str, Any]], doubt: str) -> None:
    with pytest.raises(TraceError, match=doubt) as error:
        read(tmp_path, "m.jsonl", lines(*rows))
    assert "--format mooncake" in str(error.value)
    assert len(read(tmp_path, "m.jsonl", lines(*rows), format="mooncake")) == len(rows)


def test_a_trace_with_the_fields_of_two_formats_is_doubted(tmp_path: Path) -> None:
    both = mooncake(27482, arrival=1.5)
    with pytest.raises(TraceError, match="mooncake and plain"):
        read(tmp_path, "t.jsonl", lines(both))
    assert read(tmp_path, "t.jsonl", lines(both), format="plain")[0].prefix_tokens == 512


def test_only_the_first_requests_of_a_trace(tmp_path: Path) -> None:
    assert len(read(tmp_path, "t.csv", "arrival,input_length,output_length\n" + "1,2,3\n" * 9, limit=4)) == 4


def test_rows_a_little_out_of_order_are_sorted_and_others_are_an_error(tmp_path: Path) -> None:
    head, late = "arrival,input_length,output_length\n", "0.5,2,3\n"
    rows = [f"{n},2,3\n" for n in range(20_000)]
    arrivals = [each.arrival for each in read(tmp_path, "t.csv", head + "".join([*rows[:9000], late, *rows[9000:]]))]
    assert arrivals[:3] == [0.0, 0.5, 1.0]
    with pytest.raises(TraceError, match=r"line 20002: arrives 9998\.5 s before .*: sort the file by arrival"):
        read(tmp_path, "t.csv", head + "".join([*rows, late]))


def test_a_trace_is_not_read_before_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival,input_length,output_length\n" + "1,2,3\n" * 50_000)
    trace = Trace(path)
    requests: Iterator[TraceRequest] = iter(trace)
    next(requests)
    assert trace.share_read < 0.5
    assert sum(1 for _ in requests) == 49_999
    assert trace.share_read == 1


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.csv", "arrival,input_length,output_length\n1,2,3\n1,many,3\n", "line 3"),
        ("t.csv", "arrival,input_length,output_length\n1,0,3\n", "at least 1 token"),
        ("t.csv", "arrival,input_length,output_length\nnan,1,3\n", "'nan' is not a finite number"),
        ("t.csv", "arrival,input_length,output_length\n0,1,3\n1e300,1,3\n", "1e+300 seconds after the first one"),
        ("t.csv", "arrival,input_length,output_length\n1,-2,3\n", "Expected `int` >= 0 - at `$.input_length`"),
        ("t.csv", "arrival,input_length,output_length\n1,2,10000001\n", "`int` <= 10000000"),
        ("t.csv", "arrival,input_length,output_length\n1,2\n", "line 2: output_length is missing"),
        ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,2,3\n", "Invalid RFC3339"),
        (
            "t.jsonl",
            '{"arrival": 1, "input_length": 2, "output_length": 1, "prefix_ids": [[]]}',
            "Expected `int`, got `array`",
        ),
        ("t.csv", 'arrival,input_length,output_length,prefix_ids\n1,2,3,"' + "1 " * 99_999 + '"\n', "line 2"),
        (
            "t.csv",
            "arrival,input_length,output_length,stream\n1,2,3,maybe\n",
            "Expected `bool`, got `str`",
        ),
        ("t.csv", "when,how_much\n1,2\n", "when, how_much"),
        ("t.csv", "", "no requests"),
        ("t.jsonl", "[1, 2]\n", "one JSON object in each line"),
        ("t.jsonl", '{"arrival": 1, "input_length": null, "output_length": 1}', "plain rows have arrival"),
    ],
)
def test_an_error_in_a_trace_is_reported_with_its_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(TraceError) as error:
        read(tmp_path, name, text)
    assert told in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        list(Trace(tmp_path / "none.csv"))


# --- prompts


def asks(length: int, *prefix_ids: int) -> TraceRequest:
    return TraceRequest(arrival=0, input_length=length, output_length=1, prefix_ids=prefix_ids, prefix_tokens=4)


def test_equal_ids_are_equal_beginnings_and_all_else_differs() -> None:
    one, other = prompt_of(asks(12, 5, 6), 0), prompt_of(asks(12, 5, 7), 1)
    assert one[:4] == other[:4]
    assert one[4] != other[4]
    assert one[8] != other[8]


def test_a_prompt_has_its_length_whatever_its_ids_name() -> None:
    assert len(prompt_of(asks(6, 5, 6), 0)) == 6
    assert prompt_of(asks(6, 5, 6), 0) == prompt_of(asks(8, 5, 6), 3)[:6]
    assert len(prompt_of(asks(20, 5), 0)) == 20


@pytest.mark.parametrize("index", [0, 1_000_001, 2**29, 2**40])
@pytest.mark.parametrize("prefix", [0, 1_000_000, 2**40, 2**63])
def test_no_id_is_too_large(prefix: int, index: int) -> None:
    prompt = prompt_of(asks(9, prefix), index)
    assert len(prompt) == 9
    assert all(0 <= token < 2**31 for token in prompt)
    assert prompt[:4] != prompt_of(asks(9, prefix + 1), index)[:4]
    assert prompt[4:] != prompt_of(asks(9, prefix), index + 1)[4:]


@pytest.mark.parametrize("block_size", [1, 3, 4, 8, 16])
def test_hashes_of_blocks_are_equal_where_those_of_the_tokens_are(block_size: int) -> None:
    requests = [asks(length, *ids) for length in (7, 30, 41) for ids in ((), (1,), (1, 2), (1, 2, 3), (2, 1), (1, 3))]
    hasher = BlockHasher(block_size)
    by_tokens = [hashes_of(hasher, prompt_of(each, n)) for n, each in enumerate(requests)]
    by_ids = [block_hashes_of(each, n, block_size) for n, each in enumerate(requests)]
    for one, other in ((a, b) for a in range(len(requests)) for b in range(a)):
        equal = [x == y for x, y in zip(by_tokens[one], by_tokens[other], strict=False)]
        assert [x == y for x, y in zip(by_ids[one], by_ids[other], strict=False)] == equal, (one, other)
    assert [len(each) for each in by_ids] == [len(each) for each in by_tokens]


# --- made traces


def test_equal_seeds_make_equal_workloads() -> None:
    def made(seed: int) -> list[TraceRequest]:
        return list(
            Workload(rate=4, lengths="200-800:~50", prefix_sharing=0.5, models=["a", "b"], seed=seed).requests(50)
        )

    assert made(1) == made(1) != made(2)


def test_a_workload_has_the_rate_the_lengths_and_the_models_asked_for() -> None:
    requests = list(Workload(rate=5, lengths="1020~1155:7", models=["a", "b"]).requests(20_000))
    assert requests[-1].arrival == pytest.approx(4000, rel=0.05)
    lengths = sorted(request.input_length for request in requests)
    assert lengths[10_000] == pytest.approx(1020, rel=0.03)
    assert sum(lengths) / 20_000 == pytest.approx(1155, rel=0.03)
    assert {request.output_length for request in requests} == {7}
    assert {request.model for request in requests} == {"a", "b"}


def test_the_prompts_of_a_group_begin_alike() -> None:
    requests = list(Workload(rate=5, lengths="640:1", prefix_sharing=0.5).requests(1000))
    assert {len(request.prefix_ids) * request.prefix_tokens for request in requests} == {320}
    assert 20 < len({tuple(request.prefix_ids) for request in requests}) <= 64


@pytest.mark.parametrize("lengths", ["azure", "5", "0:5", "9-2:5", "a:b", "1~:5"])
def test_unreadable_lengths_are_an_error(lengths: str) -> None:
    with pytest.raises(ConfigError, match="--lengths"):
        next(Workload(rate=1, lengths=lengths).requests(1))
