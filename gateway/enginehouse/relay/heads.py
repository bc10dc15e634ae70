"""Heads of requests and answers: which headers pass, what they tell the gateway, and heads that repeat."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from enginehouse.domain.errors import InvalidRequest, RateLimited, RequestError
from enginehouse.domain.names import kept_name
from enginehouse.domain.request import Headers, RepeatedHeaders
from enginehouse.telemetry.trace_context import TRACE_HEADERS, find_traceparent

CALLER: Final = b"x-enginehouse-caller"
PRIORITY: Final = b"x-enginehouse-priority"
ATTEMPTS: Final = b"x-enginehouse-attempts: "
"""The beginning of the header line by which an answer says how many engines have had the request in vain."""
_LONGEST_CALLER: Final = 1024
_LONGEST_MS: Final = 86_400_000
_MOST_DIGITS: Final = 4096
"""Python reads no longer number."""
_NUMBER: Final = re.compile(rb"-?[0-9]{1,9}")
_LONGEST_ID: Final = 128
_PLAIN_CONNECTION: Final = frozenset({b"", b"keep-alive", b"close"})
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

_HOP_BY_HOP: Final = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
CREDENTIALS: Final = frozenset(
    {
        b"authorization",
        b"cookie",
        # keys of APIs: Anthropic's, Azure's, Google's and usual names
        *(b"x-api-key", b"api-key", b"x-goog-api-key", b"ocp-apim-subscription-key", b"x-auth-key", b"x-api-token"),
        *(b"x-auth-token", b"x-access-token", b"x-authorization", b"x-functions-key", b"x-amz-security-token"),
        # what proxies that sign users in add: oauth2-proxy, Cloudflare, Google, AWS
        *(b"x-forwarded-access-token", b"x-auth-request-access-token", b"cf-access-jwt-assertion"),
        *(b"cf-access-client-secret", b"x-goog-iap-jwt-assertion", b"x-amzn-oidc-data", b"x-amzn-oidc-accesstoken"),
    }
)
"""The headers with which clients identify themselves."""

NOT_TO_ENGINE: Final = frozenset(
    # Compressed streams cannot be split into events, so engines are asked for none.
    _HOP_BY_HOP
    | CREDENTIALS
    | {b"host", b"content-length", b"expect", b"accept-encoding", b"x-request-id", CALLER, PRIORITY}
)
"""The headers of a client's request that do not pass to an engine."""
TRACED_NOT_TO_ENGINE: Final = NOT_TO_ENGINE | TRACE_HEADERS
"""Those of a traced request: the engine gets the trace of the gateway."""
# server.cors decides which pages of a browser may read an answer.
_CORS: Final = {
    b"access-control-" + name
    for name in (b"allow-origin", b"allow-credentials", b"allow-methods", b"allow-headers", b"expose-headers")
}
FOR_THE_GATEWAY: Final = frozenset(
    _HOP_BY_HOP
    | _CORS
    | {
        b"content-length",
        b"date",
        b"x-request-id",
        b"x-enginehouse-backend",
        b"x-enginehouse-model",
        b"x-enginehouse-reason",
        b"x-enginehouse-overhead-us",
    }
)
"""The headers of an engine's answer that do not pass to the client."""


@cache
def with_authorization(withheld: frozenset[bytes]) -> frozenset[bytes]:
    """``withheld`` without ``Authorization``: one set for all backends that get it, so that it is compared fast."""
    return withheld - {b"authorization"}


def find_request_id(headers: Headers) -> bytes:
    """The id that the client gave its request; empty if there is none, or none to be used."""
    for name, value in headers:
        if name == b"x-request-id" and 0 < len(value) <= _LONGEST_ID and value.isascii():
            return value
    return b""


def passing_lines(headers: Headers, withheld: frozenset[bytes]) -> bytes:
    """A client's headers as an engine gets them: without those ``withheld``, and those that ``Connection`` names."""
    if not isinstance(headers, RepeatedHeaders):
        return b"".join(_passing_lines(headers, withheld))
    passing = headers.passing
    parts = passing.get(withheld)
    if parts is None:
        parts = passing[withheld] = _around(headers.traceparent, _passing_lines(headers, withheld))
    before, behind = parts
    return before + headers.traceparent + behind if behind else before


def _passing_lines(headers: Headers, withheld: frozenset[bytes]) -> list[bytes]:
    lines = []
    named = b""
    for name, value in headers:
        if name not in withheld:
            lines.append(name + b": " + value + b"\r\n")
        elif name == b"connection":
            named += b"," + value if named else value
    return without_named(lines, named) if named else lines


def _around(traceparent: bytes, lines: list[bytes]) -> tuple[bytes, bytes]:
    """The bytes of ``lines`` before the value of ``traceparent``, and those behind it, which are empty without it."""
    line = b"traceparent: " + traceparent + b"\r\n"
    if not traceparent or line not in lines:
        return b"".join(lines), b""
    at = lines.index(line)
    return b"".join(lines[:at]) + b"traceparent: ", b"\r\n" + b"".join(lines[at + 1 :])


def without_named(lines: list[bytes], connection: bytes) -> list[bytes]:
    """``lines`` without those that the value of a ``Connection`` header makes hop-by-hop (RFC 9110, 7.6.1)."""
    if connection.lower() in _PLAIN_CONNECTION:
        return lines
    named = {token.strip().lower() for token in connection.split(b",")}
    return [line for line in lines if line.partition(b":")[0] not in named]


def lines_without(lines: bytes, names: tuple[bytes, ...]) -> bytes:
    """Header ``lines`` as they stand on the wire, without those of ``names``, each with its colon."""
    return b"".join([line for line in lines.splitlines(keepends=True) if not line.lower().startswith(names)])


def error_lines(error: RequestError, request_id: bytes) -> bytes:
    """The header lines of an answer that is the gateway's own ``error``."""
    lines = b"content-type: application/json\r\nx-request-id: %s\r\n" % request_id
    if error.retry_after is not None:
        lines += b"retry-after: %d\r\n" % error.retry_after
    return lines + error.lines if isinstance(error, RateLimited) else lines


def read_lines(lines: bytes) -> Headers:
    """Split header lines as they stand on the wire."""
    pairs = [line.partition(b": ") for line in lines.split(b"\r\n") if line]
    return [(name, value) for name, _, value in pairs]


@lru_cache(maxsize=4096)
def origin_lines(backend: str, model: str, reason: str) -> bytes:
    """The header lines that name the backend and the model to the client, and the reason of the route."""
    named = {"backend": backend, "model": model, "reason": reason}
    # Engines choose the names of their models, so other characters than printable ASCII are percent-encoded.
    lines = (f"x-enginehouse-{key}: {quote(text, safe=_PRINTABLE)}\r\n" for key, text in named.items())
    return "".join(lines).encode("ascii")


class Behalf(NamedTuple):
    """The name of a caller's key, and the priority of its requests."""

    caller: str
    priority: int

    def lines(self) -> bytes:
        """The header lines that tell it."""
        return b"%s: %s\r\n%s: %d\r\n" % (CALLER, quote(self.caller).encode(), PRIORITY, self.priority)


def read_behalf(headers: Headers) -> Behalf | None:
    """What ``headers`` tell; ``None`` without a caller."""
    caller, priority = b"", 0
    for name, value in headers:
        if name == CALLER:
            caller = value
        elif name == PRIORITY and _NUMBER.fullmatch(value):
            priority = int(value)
    return (
        Behalf(kept_name(unquote(caller.decode("latin-1"))), priority) if 0 < len(caller) <= _LONGEST_CALLER else None
    )


def wants_cache_line(headers: Headers) -> bool:
    """Whether the client asks how much of its prompt was cached, with ``x-enginehouse-explain: cache``."""
    if isinstance(headers, RepeatedHeaders):
        return headers.wants_cache_line
    return (b"x-enginehouse-explain", b"cache") in headers


def deadline_in(headers: Headers) -> float | None:
    """The seconds in which the request is to be sent, from ``x-enginehouse-deadline`` in milliseconds.

    ``None`` if it has no such header. Raises ``InvalidRequest`` for another value.
    """
    for name, value in headers:
        if name == b"x-enginehouse-deadline":
            if len(value) <= _MOST_DIGITS and value.isdigit() and int(value) <= _LONGEST_MS:
                return int(value) / 1000
            raise InvalidRequest("x-enginehouse-deadline must be a whole number of milliseconds, a day at most")
    return None


class AnswerHead:
    """The head of an engine's answer. It never changes.

    ``lines``: the headers for the client, as they stand on the wire. ``length``: of the body in bytes, if the engine
    announced it. ``until_close``: only the end of the connection marks the end of the body. ``stream``: the body is a
    stream of server-sent events. ``json``: it is said to be JSON, as it is. ``at_once``: clients have no use for a part
    of it, so it may be held until it is whole. ``opaque``: its coding hides the body, or it has none.
    """

    __slots__ = ("at_once", "json", "length", "lines", "opaque", "status", "stream", "until_close")

    def __init__(
        self,
        status: int,
        lines: bytes,
        length: int | None,
        until_close: bool,
        stream: bool,
        json: bool = False,
        at_once: bool = False,
        opaque: bool = False,
    ) -> None:
        self.status = status
        self.lines = lines
        self.length = length
        self.until_close = until_close
        self.stream = stream
        self.json = json
        self.at_once = at_once
        self.opaque = opaque

    def of_length(self, length: int) -> AnswerHead:
        """The same head for a whole body of ``length`` bytes."""
        return AnswerHead(self.status, self.lines, length, False, self.stream, self.json, self.at_once, self.opaque)


_LENGTH: Final = b"content-length"
_LONGEST_VALUE: Final = 128
_LONGEST_HEAD: Final = 4096
_MOST_MISSES: Final = 8
"""After so many heads in a row that did not come again, the next ``_PAUSE`` ones are not learned."""
_PAUSE: Final = 62


class AlikeHeads:
    """What was found out of clients' heads that are alike, one of which had these ``headers``.

    ``passing``: the lines that pass to an engine, by what is withheld from it. Those before the value of
    ``traceparent`` come first, then those behind it; the latter are empty where it does not pass.
    ``request_id``, ``traceparent`` and ``wants_cache_line``: as the functions of these names say, of that head.
    """

    __slots__ = ("headers", "passing", "request_id", "target", "traceparent", "wants_cache_line")

    def __init__(self, target: bytes, headers: Headers) -> None:
        self.target = target
        self.headers = headers
        self.request_id = find_request_id(headers)
        self.traceparent = find_traceparent(headers)
        self.passing: dict[frozenset[bytes], tuple[bytes, bytes]] = {}
        self.wants_cache_line = wants_cache_line(headers)


Meaning = TypeVar("Meaning")


class KnownHead(Generic[Meaning]):
    """Knows a head that came in one piece with its body, what it means, and the later ones that are like it.

    Two heads are alike if only their lengths and the values of headers ``varying`` differ, and consist of letters,
    digits and dashes. These end no line, so the parser would find the same lines, and checks of their form would have
    the same results. What depends on more, such as keys and limits, must be checked each time.

    ``places``: the lines whose values may differ, counted from the first header. ``values``: theirs, in the head that
    was read last. ``is_same``: whether that was the head before it, byte for byte. ``_last`` and ``_size``: that head,
    and the bytes of its message; empty and -1 if none was read. ``_begin``: the bytes before the first of the values;
    empty if nothing is known. ``_parts``: for each, the usual size and the bytes up to the next one. ``_sized``: which
    of them is the length.
    """

    __slots__ = (
        *("_begin", "_last", "_misses", "_parts", "_pause", "_size", "_sized", "_used", "_varying"),
        *("is_same", "meaning", "places", "values"),
    )

    meaning: Meaning

    def __init__(self, *varying: bytes) -> None:
        self._varying = frozenset({_LENGTH, *varying})
        self._begin = b""
        self._parts: list[tuple[int, bytes]] = []
        self._sized = 0
        self.places: list[int] = []
        self.values: list[bytes] = []
        self.is_same = False
        self._last = b""
        self._size = -1
        self._used = False
        self._misses = self._pause = 0

    def read(self, data: bytes) -> bytes | None:
        """The body of the message ``data``; ``None`` unless its head is known and its body whole."""
        if len(data) == self._size and data.startswith(self._last):  # most clients' requests are alike
            self.is_same = True
            return data[len(self._last) :]
        begin = self._begin
        if not begin or not data.startswith(begin):
            return None
        self.is_same = False
        at, values = len(begin), []
        for usual, behind in self._parts:
            end = at + usual
            if data[end : end + len(behind)] != behind:
                end = data.find(b"\r", at, at + _LONGEST_VALUE)
                if end <= at or data[end : end + len(behind)] != behind:
                    return None
            values.append(data[at:end])
            at = end + len(behind)
        if len(values) > 1 and not b"".join(values).replace(b"-", b"").isalnum():
            return None
        if values[self._sized] != b"%d" % (len(data) - at):
            return None
        self._used = True
        self.values = values
        self._last, self._size = data[:at], len(data)
        return data[at:]

    def learn(self, data: bytes) -> bool:
        """Learn the head of ``data``, a whole message, unless heads seldom come again. The caller sets ``meaning``."""
        if self._pause:
            self._pause -= 1
            return False
        end = data.find(b"\r\n\r\n") + 4
        if not 4 <= end <= _LONGEST_HEAD:
            return False
        first, *lines = data[: end - 4].split(b"\r\n")
        names = [line.partition(b":")[0].lower() for line in lines]
        places: list[int] = []
        begun, sizes, length, sized = [first + b"\r\n"], [], b"", 0
        for place, (name, line) in enumerate(zip(names, lines, strict=True)):
            value = line.partition(b": ")[2]
            if name in self._varying and names.count(name) == 1 and _is_plain(value):
                if name == _LENGTH:
                    length, sized = value, len(places)
                places.append(place)
                sizes.append(len(value))
                begun[-1] += line[: -len(value)]
                begun.append(b"\r\n")
            else:
                begun[-1] += line + b"\r\n"
        begun[-1] += b"\r\n"
        if not length.isdigit() or int(length) != len(data) - end:
            return False
        self._count_miss()
        self._last, self._size = b"", -1
        self.places, self._begin, self._sized = places, begun[0], sized
        self._parts = list(zip(sizes, begun[1:], strict=True))
        return True

    def _count_miss(self) -> None:
        """Another head than the known one came."""
        self._misses = 0 if self._used else self._misses + 1
        self._used = False
        if self._misses == _MOST_MISSES:
            self._misses -= 2  # two heads suffice after the pause
            self._pause = _PAUSE


def _is_plain(value: bytes) -> bool:
    return len(value) < _LONGEST_VALUE and value.replace(b"-", b"").isalnum()
