from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import InvalidRequest
from enginehouse.routing.body.read import read_request
from enginehouse.routing.body.rewrite import replace_model

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"model":"old"}', '{"model":"new"}'),
        ('\n{ "model"\t:\r\n "old" , "n": 1 }\n', '\n{ "model"\t:\r\n "new" , "n": 1 }\n'),
        ('{"n":1.50,"model":"old","m":-0.0e+5}', '{"n":1.50,"model":"new","m":-0.0e+5}'),
        ('{"model":"o\\"l\\\\d\\u00e9"}', '{"model":"new"}'),
        ('{"a":"日本語 \\ud83d\\ude00","model":"模型"}', '{"a":"日本語 \\ud83d\\ude00","model":"new"}'),
        ('{"models":["old"],"Model":"old","model":"old"}', '{"models":["old"],"Model":"old","model":"new"}'),
    ],
)
def test_the_value_of_model_is_replaced(raw: str, expected: str) -> None:
    assert_replaced(raw, expected)


@pytest.mark.parametrize(
    "rest",
    [
        '"a":{"model":"old"}',
        '"a":[{"model":"old"},["model"]]',
        '"a":"model"',
        '"a":"\\"model\\":\\"x\\""',
        '"a":"\\"model"',
        '"\\"model":"x"',
        '"a\\\\":"model"',
        '"a":{"\\u006dodel":"old"},"b":"\\u006dodel"',
    ],
)
def test_model_elsewhere_is_left_alone(rest: str) -> None:
    for body in ('{REST,"model":"old"}', '{"model":"old",REST}'):
        assert_replaced(body.replace("REST", rest), body.replace("old", "new").replace("REST", rest))


@pytest.mark.parametrize("key", ["\\u006dodel", "mo\\u0064\\u0065\\u006C", "\\u006D\\u006f\\u0064\\u0065\\u006c"])
def test_model_may_be_spelled_with_escapes(key: str) -> None:
    for body in ('{"KEY":"old","n":1}', '{"KEY":"old","model":"old"}'):
        assert_replaced(body.replace("KEY", key), body.replace("old", "new").replace("KEY", key))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "22"),
        ("12", "1"),
        ('"1"', "1"),
        ('[[{"a":"]"}]]', "{}"),
        ('"a"', '"a\\"b"'),
        ("true", "true"),
        ("{}", "{ }"),
    ],
)
def test_keys_may_occur_more_than_once(one: str, other: str) -> None:
    for raw in ('{"x":%s,"model":"a","x":%s,"model":"b"}', '{"model":"a","x":%s,"model":"b", "x" : %s }'):
        new = raw.replace('"model":"a"', '"model":"new"').replace('"model":"b"', '"model":"new"')
        assert_replaced(raw % (one, other), new % (one, other))
        assert_replaced(raw % (other, one), new % (other, one))


def assert_replaced(raw: str, expected: str) -> None:
    read_request("/v1/chat/completions", [], raw.encode())
    assert replace_model(raw.encode(), "new").decode() == expected


@pytest.mark.parametrize("name", ["llama3:8b", 'with "quotes"', "back\\slash", "日本語/モデル", "new\nline", ""])
def test_any_name_can_be_put_in(name: str) -> None:
    for raw in (b'{"model":"old","n":1}', b'{"model":"old","model":"old","n":1}'):
        assert json.loads(replace_model(raw, name)) == {"model": name, "n": 1}


def test_numbers_too_long_for_python_are_stepped_over() -> None:
    digits = b"9" * 10_000
    raw = b'{"x":%b,"model":"a","x":1,"model":"b"}' % digits
    assert replace_model(raw, "new") == b'{"x":%b,"model":"new","x":1,"model":"new"}' % digits


def test_values_that_are_no_text_are_stepped_over() -> None:
    raw = b'{"x":"\xff\xfe","model":"a","model":"b"}'
    assert replace_model(raw, "new") == b'{"x":"\xff\xfe","model":"new","model":"new"}'


def test_keys_that_are_no_text_are_refused_where_they_matter() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        replace_model(b'{"\xff":1,"model":"a","model":"b"}', "new")


spaces = st.text(" \t\r\n", max_size=2)
texts = st.text(max_size=6) | st.sampled_from(["model", '"model"', '"model":', "\\", '\\"', "}", "]"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """A JSON string for ``text``, some of its characters escaped without need."""
    out = []
    for character in text:
        escaped = json.dumps(character, ensure_ascii=draw(st.booleans()))[1:-1]
        if ord(character) < 128 and draw(st.integers(0, 9)) == 0:
            escaped = f"\\u{ord(character):04{draw(st.sampled_from('xX'))}}"
        out.append(escaped)
    return f'"{"".join(out)}"'


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[bytes | None], bytes]:
    """A request body in pieces, ``None`` for each value of ``model`` at the top, and the body as it came."""
    pairs: list[tuple[str, Any]] = draw(
        st.lists(st.tuples(texts.filter(lambda key: key != "model"), values), max_size=5)
    )
    pairs += [("model", name) for name in draw(st.lists(texts, min_size=1, max_size=3))]
    pieces: list[bytes | None] = [f"{draw(spaces)}{{{draw(spaces)}".encode()]
    raw = pieces[0] or b""
    for number, (key, value) in enumerate(draw(st.permutations(pairs))):
        comma = "," + draw(spaces) if number else ""
        head = f"{comma}{draw(spelled(key))}{draw(spaces)}:{draw(spaces)}".encode()
        if key == "model":
            written = draw(spelled(value)).encode()
            pieces += [head, None]
        else:
            written = json.dumps(
                value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))
            ).encode()
            pieces += [head, written]
        tail = draw(spaces).encode()
        pieces.append(tail)
        raw += head + written + tail
    end = f"}}{draw(spaces)}".encode()
    return [*pieces, end], raw + end


@given(bodies(), texts)
def test_every_other_byte_stays_and_json_agrees(body: tuple[list[bytes | None], bytes], name: str) -> None:
    pieces, raw = body
    replaced = replace_model(raw, name)
    written = json.dumps(name, ensure_ascii=False).encode()
    decoded = json.loads(raw)
    assert json.loads(replaced) == {**decoded, "model": name}
    assert replaced == b"".join(written if piece is None else piece for piece in pieces)


def large_bodies() -> Iterator[tuple[str, bytes]]:
    message = {"role": "user", "content": 'a "word" and a \\ \u00e9 ' * (MEBIBYTE // 22)}
    yield "text", json.dumps({"model": "m", "messages": [message]}).encode()
    tool = {"function": {"name": "f", "parameters": {"properties": {"model": {"type": "string"}}}}}
    yield "tools", json.dumps({"tools": [tool] * (MEBIBYTE // 90), "model": "m"}).encode()
    yield "tokens", json.dumps({"prompt": list(range(MEBIBYTE // 8)), "model": "m", "x": {"model": 1}}).encode()
    yield "long name", b'{"model":"%b"}' % (b"m" * MEBIBYTE)


@pytest.mark.parametrize(("kind", "raw"), [*large_bodies()], ids=lambda value: value if isinstance(value, str) else "")
def test_a_mebibyte_takes_milliseconds(kind: str, raw: bytes) -> None:
    def seconds() -> float:
        start = time.thread_time()
        replace_model(raw, "another")
        return time.thread_time() - start

    assert len(raw) > MEBIBYTE * 0.8
    assert min(seconds() for _ in range(5)) < 0.03, kind
