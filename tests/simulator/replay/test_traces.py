from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse_sim.simulator.replay.formats import read_trace
from enginehouse_sim.simulator.replay.trace import TraceError, TraceRequest, prompt_of


def trace(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_plain_trace_in_csv(tmp_path: Path) -> None:
    path = trace(tmp_path, "t.csv", "arrival,input_length,output_length,prefix_ids\n5.5,100,20,7 8\n5,10,2,\n")
    assert read_trace(path) == [
        TraceRequest(arrival=0.0, input_length=10, output_length=2),
        TraceRequest(arrival=0.5, input_length=100, output_length=20, prefix_ids=(7, 8)),
    ]


def test_a_plain_trace_in_json_lines(tmp_path: Path) -> None:
    row = '{"arrival": 0, "input_length": 9, "output_length": 1, "prefix_ids": [3], "prefix_tokens": 4}'
    assert (
        read_trace(trace(tmp_path, "t.jsonl", f"{row}\n\n{row}\n"))
        == [TraceRequest(arrival=0.0, input_length=9, output_length=1, prefix_ids=(3,), prefix_tokens=4)] * 2
    )


@pytest.mark.parametrize("zone", ["", "+00:00", "Z"])
def test_an_azure_trace(tmp_path: Path, zone: str) -> None:
    rows = f"2023-11-16 18:15:46.6805900{zone},374,44\n2023-11-16 18:15:50.9951690{zone},396,109\n"
    first, second = read_trace(trace(tmp_path, "a.csv", f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}"))
    assert first == TraceRequest(arrival=0.0, input_length=374, output_length=44)
    assert second.arrival == pytest.approx(4.314579)


def test_a_mooncake_trace(tmp_path: Path) -> None:
    row = '{"timestamp": %d, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
    _, second = read_trace(trace(tmp_path, "m.jsonl", row % 27482 + row % 30535))
    assert second.arrival == pytest.approx(3.053)
    assert (second.prefix_ids, second.prefix_tokens) == ((0, 1), 512)


def test_only_the_first_requests_of_a_trace(tmp_path: Path) -> None:
    path = trace(tmp_path, "t.csv", "arrival,input_length,output_length\n" + "1,2,3\n" * 9)
    assert len(read_trace(path, limit=4)) == 4


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.csv", "arrival,input_length,output_length\n1,2,3\n1,many,3\n", "line 3"),
        ("t.csv", "arrival,input_length,output_length\n1,0,3\n", "at least 1 token"),
        ("t.csv", "when,how_much\n1,2\n", "when, how_much"),
        ("t.csv", "", "no requests"),
        ("t.jsonl", "[1, 2]\n", "one JSON object in each line"),
        ("t.jsonl", '{"arrival": 1, "input_length": null, "output_length": 1}', "plain rows have arrival"),
    ],
)
def test_an_error_in_a_trace_is_reported_with_its_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = trace(tmp_path, name, text)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert told in str(error.value)
    assert str(path) in str(error.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


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
