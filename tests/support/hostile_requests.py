"""Requests that want to hold the gateway up, or to fill its memory: heads, names and bodies of every size and shape."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

MODELS = ("m", "n")
_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/v1/messages/count_tokens"),
    *("/v1/responses", "/v1/rerank", "/v1/audio/speech", "/v1/responses/x/cancel", "/infill", "/tokenize"),
    *("/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show", "/api/delete", "/upstream/m/v1/x"),
    *("/api/explain/route", "/api/explain/swap", "/api/keys", "/api/requests/x/move", "/api/models/m/load"),
)
_PAGES = (
    *(
        "/v1/models",
        "/v1/models/{}",
        "/v1/usage?by={}",
        "/v1/limits",
        "/v1/responses/{}",
        "/api/tags",
        "/api/ps",
        "/running",
        "/{}",
    ),
    *("/api/usage?by={}", "/api/status", "/api/history?limit={}", "/api/series?metric={}", "/api/requests/{}"),
    *("/api/decisions?{}", "/upstream/{}", "/dashboard/{}", "/metrics", "/metrics/engines", "/health"),
)
_HEADERS = (
    *("x-request-id", "traceparent", "tracestate", "baggage", "authorization", "x-api-key", "user-agent", "cookie"),
    *("x-forwarded-for", "forwarded", "accept", "accept-encoding", "x-session-id", "x-enginehouse-deadline", "origin"),
    *("x-enginehouse-explain", "sec-fetch-site", "content-type", "anthropic-beta", "range", "expect", "te", "upgrade"),
    *("connection", "transfer-encoding", "content-encoding", "host"),
)
_FIELDS = (
    *("messages", "prompt", "input", "tools", "system", "stop", "user", "metadata", "response_format", "tool_choice"),
    *("logit_bias", "instructions", "previous_response_id", "include", "stream_options", "images", "options", "format"),
    *("query", "documents", "prompt_cache_key", "functions", "suffix", "template", "context", "keep_alive", "thinking"),
    *("text", "reasoning", "n", "max_tokens", "model", "key", "to", "name", "stream", "conversation", "store"),
)
_UNITS = ("a", " ", "\0", "é", "\N{STEAM LOCOMOTIVE}", "\ud800", '"\\', "data: {}\n\n")
_HEAD = 32 * 1024
_BODY = 4 << 20
_CHUNKS = 200_000
_PIPELINED = 2000


class _Json(str):
    """A text that is JSON already, or wants to be."""


def _size(chance: Random, most: int) -> int:
    """From 1 to ``most``: small ones as often as large ones."""
    return int(math.exp(chance.uniform(0, math.log(max(most, 1)))))


def _name(chance: Random) -> str:
    return "".join(chr(chance.choice((chance.randrange(32, 127), chance.randrange(32, 12_000)))) for _ in range(9))


def _text(chance: Random, most: int) -> str:
    unit = chance.choice(_UNITS)
    return unit * max(1, _size(chance, most) // len(unit))


def _part(chance: Random) -> dict[str, Any]:
    kinds = ("text", "image_url", "input_text", "tool_result", "thinking", "input_image", "function_call", "message")
    url = {"url": "data:image/png;base64,AAAA"}
    inner = [{"type": "text", "text": "x"}]
    return {"type": chance.choice(kinds), "text": _name(chance), "image_url": url, "call_id": "c", "content": inner}


def _value(chance: Random, most: int) -> Any:
    """A value of about ``most`` bytes or fewer."""
    depth = _size(chance, min(most // 6, 100_000))
    makers: Sequence[Callable[[], Any]] = (
        lambda: _text(chance, most),
        lambda: [chance.choice((0, None, "a", {}, []))] * _size(chance, most // 2),
        lambda: {f"k{number}": number for number in range(_size(chance, most // 12))},
        lambda: _Json("[" * depth + "]" * depth),
        lambda: _Json('{"a":' * depth + "1" + "}" * depth),
        lambda: _Json("9" * _size(chance, most)),
        lambda: _Json(chance.choice(("1e999", "-0", "NaN", "Infinity", "0." + "1" * _size(chance, most)))),
        lambda: [_part(chance)] * _size(chance, most // 150),
        lambda: _Json("{" + '"a":1,' * _size(chance, most // 6) + '"a":2}'),
        lambda: _Json('"' + chance.choice((r"\u0041", r"\ud83d\ude00", r"\ud800", r"\n", r"\\")) * depth + '"'),
        lambda: _name(chance),
        lambda: chance.choice((True, False, None, 1, -1, 1.5, 1 << 62, "", [], {})),
    )
    return chance.choice(makers)()


def _message(chance: Random, most: int) -> dict[str, Any]:
    role = chance.choice(("user", "system", "assistant", "tool", "developer", _name(chance)))
    message = {"role": role, "content": _value(chance, most)}
    if chance.random() < 0.2:
        call = {"id": _name(chance), "type": "function", "function": {"name": "f", "arguments": _text(chance, 1000)}}
        message["tool_calls"] = [call] * _size(chance, most // 200)
    return message


def _tools(chance: Random, most: int) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": _value(chance, 1000)}
    tool = {"type": "function", "name": "f", "function": {"name": "f", "parameters": schema}, "input_schema": schema}
    return [tool] * _size(chance, most // 200)


def _body(chance: Random) -> bytes:
    most = _size(chance, _BODY) + 1000
    fields: dict[str, Any] = {"model": chance.choice((*MODELS, *MODELS, "gpt", _name(chance), _text(chance, 1 << 14)))}
    fields |= {chance.choice(_FIELDS): _value(chance, most) for _ in range(chance.randrange(1, 5))}
    if chance.random() < 0.7:
        messages = chance.choice(([_message(chance, most)], [_message(chance, 200)] * _size(chance, most // 200)))
        fields[chance.choice(("messages", "messages", "input"))] = messages
    if chance.random() < 0.3:
        fields["tools"] = _tools(chance, most)
    data = _written(fields).encode("utf-8", "surrogatepass")
    wrong: Sequence[Callable[[], bytes]] = (
        lambda: data[: chance.randrange(len(data))],
        lambda: data + b"]" * _size(chance, most),
        lambda: b" " * _size(chance, most) + data,
        lambda: chance.randbytes(_size(chance, most)),
    )
    return chance.choice(wrong)() if chance.random() < 0.1 else data


def _written(value: Any) -> str:
    """``value`` as JSON, with each ``_Json`` as it is."""
    if isinstance(value, _Json):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list) and value:
        alike = all(each is value[0] for each in value)
        return "[" + ",".join([_written(value[0])] * len(value) if alike else map(_written, value)) + "]"
    return json.dumps(value)


def _form(chance: Random) -> bytes:
    most = _size(chance, _BODY) + 100
    names = (b"model", b"file", b"x", b"a" * _size(chance, 1000))
    part = b'--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    few = [part % (chance.choice(names), chance.choice((b"m", b"a" * _size(chance, most)))) for _ in range(3)]
    many = [part % (chance.choice(names), b"m")] * _size(chance, most // 60)
    return b"".join((*few, *many)) + chance.choice((b"--b--\r\n", b""))


def _header(chance: Random) -> bytes:
    most = _HEAD // 4
    name = chance.choice((*_HEADERS, *_HEADERS, "x-" + "a" * _size(chance, most), f"x{chance.randrange(1000)}"))
    unit = chance.choice(("a", "a,", "a=b; ", "1.2.3.4, ", "\t ", "%41", "é\xff", "9", "Bearer e30.e30.", "00-0-"))
    return f"{name}: {unit * _size(chance, most // len(unit))}".encode("latin-1", "replace")


def _page(chance: Random) -> bytes:
    unit = chance.choice(("a", "day,", "%00", "a/", "../", "a=b&", "é"))
    target = chance.choice(_PAGES).replace("{}", unit * _size(chance, _HEAD // len(unit)))
    return f"{chance.choice(('GET', 'GET', 'DELETE', 'HEAD', 'OPTIONS'))} {target} HTTP/1.1".encode()


def _chunked(chance: Random, data: bytes) -> bytes:
    size = max(_size(chance, 5000), len(data) // _CHUNKS + 1)
    extension = chance.choice((b"", b";" + b"a" * _size(chance, 60)))
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    chunks = [b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces]
    return b"".join((*chunks, b"0\r\n", chance.choice((b"", b"x: y\r\n" * _size(chance, 2000))), b"\r\n"))


def _pipelined(chance: Random) -> bytes:
    """Many requests at once, the last one with the end of the connection."""
    post = b"POST %s HTTP/1.1\r\nhost:a\r\n%scontent-length:%d\r\n\r\n%s"
    body = b'{"model":"m","prompt":"a"}'
    one = chance.choice(
        (
            *(b"GET %s HTTP/1.1\r\nhost:a\r\n\r\n" % path for path in (b"/health", b"/", b"/x", b"/upstream/m/x")),
            *(post % (path, b"", 2, b"{}") for path in (b"/v1/completions", b"/v1/messages")),
            post % (b"/v1/completions", b"a:b\r\n" * _size(chance, 10_000), len(body), body),
            b"\r\n",
        )
    )
    last = b"GET /health HTTP/1.1\r\nhost:a\r\nconnection:close\r\n\r\n"
    return one * min(_PIPELINED, (1 << 20) // len(one)) + last


def hostile_request(chance: Random) -> bytes:
    """What a client sends on one connection, which the gateway closes behind it."""
    if chance.random() < 0.04:
        return _pipelined(chance)
    few = chance.randrange(3)
    lines = [_header(chance) for _ in range(_size(chance, 200) if chance.random() < 0.2 else few)]
    head = [b"host: 127.0.0.1", b"connection: close"]
    if chance.random() < 0.25:
        return b"\r\n".join([_page(chance), *head, *lines, b"", b""])
    query = "?" + "a=b&" * _size(chance, _HEAD // 4) if chance.random() < 0.1 else ""
    is_form = chance.random() < 0.15
    data, kind = (
        (_form(chance), b"multipart/form-data; boundary=b") if is_form else (_body(chance), b"application/json")
    )
    if chance.random() < 0.15:
        data = _chunked(chance, data)
        head.append(b"transfer-encoding: chunked")
    else:
        head.append(b"content-length: %d" % len(data))
    first = f"POST {chance.choice(_PATHS)}{query} HTTP/1.1".encode()
    return b"\r\n".join([first, *head, b"content-type: " + kind, *lines, b"", b""]) + data
