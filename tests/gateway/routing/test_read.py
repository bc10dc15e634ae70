from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from enginehouse import InvalidRequest
from enginehouse.domain.request import Headers
from enginehouse.routing.body.read import read_request

PATH = "/v1/chat/completions"


def refused(raw: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_request(PATH, [], raw)
    assert caught.value.status == 400
    return caught.value


def test_a_request_keeps_its_path_headers_and_bytes() -> None:
    raw = b'{ "model": "m", "unknown": {"x": 1}, "stream": true }'
    request = read_request("/v1/completions", [(b"x-a", b"1")], raw)
    assert (request.path, request.raw) == ("/v1/completions", raw)
    assert request.header(b"x-a") == b"1"
    assert (request.body.model, request.body.stream) == ("m", True)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": None}, {"role": "assistant", "tool_calls": [{}]}]},
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:"}}]}], "system": "be nice"},
        {"prompt": ["a", "b"]},
        {"prompt": [[1, 2], [3]]},
        {"input": [1, 2, 3]},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
        {"query": "q", "documents": ["a", {"text": "b"}, 3]},
        {"tools": None, "response_format": None, "stream": None, "messages": None},
    ],
)
def test_every_endpoints_form_is_read(body: dict[str, Any]) -> None:
    assert read_request(PATH, [], json.dumps({"model": "m", **body}).encode()).body.model == "m"


@pytest.mark.parametrize("raw", [b"", b"{", b'{"model": "m"', b"hello", b'{"model": "m"} more', b'{"model": "m",}'])
def test_bad_json_is_refused(raw: bytes) -> None:
    error = refused(raw)
    assert "not valid JSON" in error.message
    assert error.param is None


@pytest.mark.parametrize("raw", [b"[]", b'"text"', b"5", b"null", b'[{"model": "m"}]'])
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    assert "not a JSON object" in refused(raw).message


def test_a_missing_model_is_refused() -> None:
    error = refused(b'{"messages": []}')
    assert error.param == "model"
    assert error.message == "'model' is missing: name the model to use"


@pytest.mark.parametrize("model", ["", " ", "\t\n ", "\u00a0\u2003"])
def test_an_empty_model_is_refused(model: str) -> None:
    error = refused(json.dumps({"model": model}).encode())
    assert error.param == "model"
    assert "empty" in error.message


@pytest.mark.parametrize(
    ("fields", "param", "where"),
    [
        ({"model": 5}, "model", "'model'"),
        ({"model": None}, "model", "'model'"),
        ({"messages": {}}, "messages", "'messages'"),
        ({"messages": ["hi"]}, "messages", "'messages[0]'"),
        ({"messages": [{"content": 5}]}, "messages", "'messages[0].content'"),
        ({"messages": [{"content": [{"type": "text", "text": 1}]}]}, "messages", "'messages[0].content[0].text'"),
        ({"stream": "yes"}, "stream", "'stream'"),
        ({"tools": {}}, "tools", "'tools'"),
        ({"response_format": "json"}, "response_format", "'response_format'"),
        ({"prompt": 1.5}, "prompt", "'prompt'"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(fields: dict[str, Any], param: str, where: str) -> None:
    error = refused(json.dumps({"model": "m", **fields}).encode())
    assert error.param == param
    assert where in error.message
    assert "got" in error.message


def test_text_that_is_not_utf8_is_refused() -> None:
    assert "UTF-8" in refused(b'{"model": "\xff"}').message


@pytest.mark.parametrize(
    ("key", "message"),
    [(b'"extra"', "nested too deeply"), (b'"tools"', "nested too deeply"), (b'"model"', "Expected `str`, got `array`")],
)
def test_bottomless_nesting_is_refused(key: bytes, message: str) -> None:
    error = refused(b'{"model": "m", ' + key + b": " + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert message in error.message


@pytest.mark.parametrize(
    ("escape", "mended"),
    [
        (r"\ud800", r"\ufffd"),
        (r"\udc00", r"\ufffd"),
        (r"\uD83D x", r"\ufffd x"),
        (r"\ude00\ud83d", r"\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00\ude00", r"\ufffd\ud83d\ude00\ufffd"),
        (r"\\ud83d \ud83d \\\ud83d", r"\\ud83d \ufffd \\\ufffd"),
        (r"\ud83d\n\udc00", r"\ufffd\n\ufffd"),
        (r"\ud83d\\udc00", r"\ufffd\\udc00"),
    ],
)
def test_half_a_surrogate_pair_is_mended(escape: str, mended: str, caplog: pytest.LogCaptureFixture) -> None:
    request = read_request("/v1/chat/completions", [], b'{"model": "m", "x": "%s"}' % escape.encode())
    assert request.raw == b'{"model": "m", "x": "%s"}' % mended.encode()
    assert "half a surrogate pair" in caplog.text


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([(b"content-encoding", b"gzip")], gzip.compress(b'{"model": "m"}', mtime=0)),
        ([(b"content-encoding", b"br")], b"\x0b\x06\x80"),
        ([], gzip.compress(b'{"model": "m"}', mtime=0)),
    ],
)
def test_an_encoded_body_is_415(headers: Headers, body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="The body is encoded") as caught:
        read_request("/v1/chat/completions", headers, body)
    assert (caught.value.status, caught.value.code) == (415, "invalid_request")


def test_a_broken_body_that_says_identity_is_bad_json() -> None:
    with pytest.raises(InvalidRequest, match="not valid JSON") as caught:
        read_request("/v1/chat/completions", [(b"content-encoding", b"identity")], b"{")
    assert caught.value.status == 400
