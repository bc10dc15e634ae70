"""The model of a form that arrives in pieces."""

from __future__ import annotations

import itertools
from time import process_time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers
from enginehouse.routing.body.form import FormReader, is_form

HEADERS: Headers = [(b"content-type", b'multipart/form-data; boundary="b-1"')]


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--b-1\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def read(*pieces: bytes, headers: Headers = HEADERS) -> FormReader:
    reader = FormReader(headers)
    for piece in pieces:
        reader.feed(piece)
    return reader


FILE = part("file", b"\r\n--b-\r\n\r\n--b-2 model", '; filename="model"')
FORM = FILE + part("model", "päron".encode()) + part("language", b"de") + b"--b-1--\r\n"


@given(st.lists(st.integers(0, len(FORM)), max_size=8))
def test_it_is_found_wherever_the_pieces_end(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(FORM)]
    model = read(*(FORM[start:end] for start, end in itertools.pairwise(edges))).found()
    assert (model.name, FORM[model.start : model.end].decode()) == ("päron", "päron")
    assert model.replaced(FORM, "x") == FORM.replace("päron".encode(), b"x")
    assert model.replaced(FORM, "päron") is FORM


@given(
    st.dictionaries(st.text(min_size=1), st.text(), max_size=3),
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=50),
    st.binary(max_size=200),
)
def test_it_is_found_in_what_httpx_writes(fields: dict[str, str], model: str, content: bytes) -> None:
    sent = httpx.Request(
        "POST", "http://h/", data={**fields, "model": model}, files={"file": ("a.wav", content, "audio/wav")}
    )
    headers = [(name.lower(), value) for name, value in sent.headers.raw]
    assert is_form(headers)
    assert read(sent.read(), headers=headers).found().name == model


def test_a_form_without_a_file_may_begin_with_a_preamble_and_has_an_epilogue() -> None:
    assert read(b"preamble\r\n" + part("model", b"m") + b"--b-1--\r\n" + part("model", b"x")).found().name == "m"


def test_only_the_field_is_kept() -> None:
    reader = read(part("model", b"m") + b'--b-1\r\nContent-Disposition: form-data; name="file"\r\n\r\n')
    for _ in range(100):
        reader.feed(b"x" * 10_000)
        assert len(reader._unread) < 20


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (part("file", b"x") + b"--b-1--", "no field 'model': name the model"),
        (b"", "no field 'model'"),
        (part("model", b"m"), "no field 'model'"),
        (part("model", b"a") + part("file", b"x") + part("model", b"b") + b"--b-1--", "several fields 'model'"),
        (part("model", b" ") + b"--b-1--", "'model' is empty"),
        (part("model", b"x" * 1025) + b"--b-1--", "longer than 1024"),
        (part("model", b"x" * 17_000)[:-2], "'model' is too long"),
        (part("model", b"\xff") + b"--b-1--", "not valid UTF-8"),
        (b"--b-1\r\n" + b"x" * 17_000, "without an end of its headers"),
        (b"--b-1\r\n" + b"x" * 17_000 + b"\r\n\r\n", "without an end of its headers"),
        (part("x", b"1") * 1001, "more than 1000 parts"),
        (part("x", b"", '; name="model"'), "'name' must stand once"),
        (part("x", b"", '\r\ncontent-disposition : form-data; name="model"'), "'name' must stand once"),
        (part("x", b"", "; NAME*=utf-8''model"), "'name' must stand once and plainly"),
        (part("x", b"", "; name*0=mod; name*1=el"), "'name' must stand once and plainly"),
    ],
)
def test_a_form_without_one_model_is_refused(form: bytes, why: str) -> None:
    if form == part("model", b"m"):
        form = form[:-2]
    with pytest.raises(InvalidRequest, match=why):
        read(form).found()


@pytest.mark.parametrize(
    "line",
    [
        b'content-disposition: form-data; NAME = "model"',
        b"CONTENT-DISPOSITION:form-data;name=model ",
        b'x: y\r\ncontent-disposition: form-data;\r\n\tname="mo\\del"; filename="a\\"; name=x"',
        b'content-disposition: form-data; flag; filename="name=a"; name="model"',
        b'x: form-data; name="y"\r\ncontent-disposition: form-data; name="model',
    ],
)
def test_a_name_may_be_written_in_many_ways(line: bytes) -> None:
    assert read(b"--b-1\r\n" + line + b"\r\n\r\nm\r\n--b-1--").found().name == "m"


@pytest.mark.parametrize("quoted", [b";", b"\\", b'"a";x="', b'\\";x="'])
def test_long_heads_take_no_long_time(quoted: bytes) -> None:
    head = b'content-disposition: form-data; name="x"; filename="' + (quoted * 16_000)[:16_000]
    began = process_time()
    reader = read((b"--b-1\r\n" + head + b"\r\n\r\n\r\n") * 64)
    assert is_form([(b"content-type", b"multipart/form-data; boundary=b; a=" + head * 4)])
    assert process_time() - began < 5
    assert reader.model is None


def test_a_form_needs_a_boundary() -> None:
    twice = b"multipart/form-data; boundary=a; boundary=b"
    with pytest.raises(InvalidRequest, match="'boundary' must stand once"):
        FormReader([(b"content-type", twice)])
    with pytest.raises(InvalidRequest, match="no 'boundary'"):
        FormReader([(b"content-type", b"multipart/form-data")])
    assert not is_form([(b"content-type", b"application/json")])
    assert not is_form([])
