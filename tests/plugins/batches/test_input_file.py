"""What the input file of a batch may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enginehouse_batches.input_file import InputLine, body_of, read_input

PATH = "/v1/completions"


def line(**changes: object) -> bytes:
    asked = {"custom_id": "c", "method": "POST", "url": PATH, "body": {"model": "m", "prompt": "x"}, **changes}
    return json.dumps({name: value for name, value in asked.items() if value is not None}).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


def test_lines_know_where_they_are(file: Path) -> None:
    content = (
        line() + b"\n\n  " + line(custom_id="d", body={"model": "n", "é": "\u2028"}) + b"\r\n" + line(custom_id="e")
    )
    file.write_bytes(content)
    lines, errors = read_input(file, PATH, 10)
    assert errors == []
    assert [(each.number, each.custom_id, each.model) for each in lines] == [
        (1, "c", "m"),
        (3, "d", "n"),
        (4, "e", "m"),
    ]
    assert [json.loads(_body(content, each))["model"] for each in lines] == ["m", "n", "m"]


def _body(content: bytes, line: InputLine) -> bytes:
    return body_of(content[line.start : line.start + line.length])


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"{", "invalid_json_line"),
        (b"[]", "invalid_json_line"),
        (b"\xff", "invalid_json_line"),
        (b"[" * 100_000, "invalid_json_line"),
        (line(custom_id=None), "invalid_json_line"),
        (line(custom_id=""), "invalid_json_line"),
        (line(custom_id="x" * 513), "invalid_json_line"),
        (line(body="x"), "invalid_json_line"),
        (line(method="GET"), "invalid_method"),
        (line(url="/v1/embeddings"), "mismatched_endpoint"),
        (line(body={}), "invalid_request"),
        (line(body={"model": "m", "stream": True}), "invalid_request"),
        (line(custom_id="first"), "duplicate_custom_id"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(file: Path, bad: bytes, code: str) -> None:
    file.write_bytes(line(custom_id="first") + b"\n" + bad + b"\n")
    _, [error] = read_input(file, PATH, 10)
    assert (error.code, error.line) == (code, 2)


def test_too_many_lines_too_many_errors_and_none(file: Path) -> None:
    file.write_bytes(b"\n".join(line(custom_id=str(number)) for number in range(4)))
    assert [each.code for each in read_input(file, PATH, 3)[1]] == ["too_many_requests"]
    file.write_bytes(b"{\n" * 1000)
    assert len(read_input(file, PATH, 3)[1]) == 20
    file.write_bytes(b"\n \n")
    assert [each.code for each in read_input(file, PATH, 3)[1]] == ["empty_file"]


def test_a_line_without_an_end_is_not_read_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse_batches.input_file._LONGEST_LINE", 100)
    file.write_bytes(b"x" * 1000)
    [error] = read_input(file, PATH, 3)[1]
    assert "more than 100 bytes" in error.message
