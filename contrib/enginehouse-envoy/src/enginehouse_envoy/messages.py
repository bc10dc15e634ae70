"""What is read from and written to a processing stream (GIE proposal 004, the endpoint picker protocol).

Also who sends a request, as Envoy and the gateway in front of it tell in headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from google.protobuf import struct_pb2

from enginehouse import Headers, RequestError
from enginehouse_envoy import envoy_pb2 as pb

DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
_SUBSET = "x-gateway-destination-endpoint-subset"
_HINT = "envoy.lb.subset_hint"
_LB = "envoy.lb"
_MOST_IN_A_PIECE = 62_000
"""In bytes: Envoy takes up to 64 KiB of a body in one message."""
_OVERWRITE = pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
HeaderLines = Iterable[tuple[str, bytes]]
_FORWARDED = b"x-forwarded-for"
_FAIRNESS = (b"x-gateway-inference-fairness-id", b"x-llm-d-inference-fairness-id")
_OBJECTIVE = (b"x-gateway-inference-objective", b"x-llm-d-inference-objective")
_TOLD = frozenset((_FORWARDED, *_FAIRNESS, *_OBJECTIVE))
_NOBODY = "default-flow"
"""Who sends a request without a fairness id, as llm-d's picker calls it."""


def inference_path(path: str) -> str:
    """``path`` without what may stand before ``/v1/``."""
    at = path.rfind("/v1/")
    return path[at:] if at > 0 else path


def read_headers(headers: pb.HttpHeaders) -> tuple[Headers, dict[str, str]]:
    """The headers with lower-case names, and the pseudo-headers such as ``:path``."""
    plain: list[tuple[bytes, bytes]] = []
    pseudo: dict[str, str] = {}
    for each in headers.headers.headers:
        value = each.raw_value or each.value.encode()
        if each.key.startswith(":"):
            pseudo[each.key] = value.decode("latin-1")
        else:
            plain.append((each.key.lower().encode("latin-1"), value))
    return plain, pseudo


def subset_in(message: pb.ProcessingRequest) -> list[str] | None:
    """The addresses of the subset hint: a list, or one text with commas; ``None`` without a hint."""
    hints = message.metadata_context.filter_metadata
    if _HINT not in hints or _SUBSET not in hints[_HINT].fields:
        return None
    hint = hints[_HINT].fields[_SUBSET]
    texts = (
        [each.string_value for each in hint.list_value.values] if hint.HasField("list_value") else [hint.string_value]
    )
    return [each.strip() for text in texts for each in text.split(",") if each.strip()]


def served_in(message: pb.ProcessingRequest) -> str:
    """The address of the engine that answered, if Envoy says so."""
    metadata = message.metadata_context.filter_metadata
    return metadata[_LB].fields[SERVED].string_value if _LB in metadata and SERVED in metadata[_LB].fields else ""


def read_lines(lines: bytes) -> Iterator[tuple[str, bytes]]:
    """The headers in ``lines``, each of which ends in CRLF."""
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        if colon:
            yield name.decode("latin-1"), value


def destined(
    text: str, set_headers: HeaderLines, removed: Iterable[bytes]
) -> tuple[pb.CommonResponse, struct_pb2.Struct]:
    """The changes that lead a request to ``text``, ``ip:port`` or several, and the same as metadata."""
    options = [_option(DESTINATION, text.encode()), *(_option(name, value) for name, value in set_headers)]
    mutation = pb.HeaderMutation(set_headers=options, remove_headers=[name.decode("latin-1") for name in removed])
    metadata = struct_pb2.Struct()
    metadata.get_or_create_struct(_LB)[DESTINATION] = text
    return pb.CommonResponse(header_mutation=mutation, clear_route_cache=True), metadata


def pieces(body: bytes) -> Iterator[pb.ProcessingResponse]:
    """``body`` for the engine, in messages as large as Envoy takes them; the last one ends the stream."""
    starts = range(0, max(1, len(body)), _MOST_IN_A_PIECE)
    for start in starts:
        piece = body[start : start + _MOST_IN_A_PIECE]
        yield pb.ProcessingResponse(request_body=_streamed(piece, start == starts[-1]))


def returned(message: pb.HttpBody) -> pb.ProcessingResponse:
    """A piece of an answer as it came, for a stream in which Envoy waits for it."""
    return pb.ProcessingResponse(response_body=_streamed(message.body, message.end_of_stream))


def refusal(status: int, lines: bytes, body: bytes) -> pb.ProcessingResponse:
    """An answer to the client in place of an engine's."""
    headers = [_option(name, value) for name, value in read_lines(lines)]
    return pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(
            status=pb.HttpStatus(code=_status(status)),
            headers=pb.HeaderMutation(set_headers=headers),
            body=body,
        )
    )


def error_refusal(error: RequestError) -> pb.ProcessingResponse:
    """``refusal`` with an error."""
    return refusal(error.status, b"content-type: application/json\r\n", msgspec.json.encode(error.envelope()))


def _status(status: int) -> Any:
    """429 for a request that has waited in vain: pickers drop it (GIE proposal 004)."""
    return 429 if status == 504 else status


def _option(name: str, value: bytes) -> pb.HeaderValueOption:
    header = pb.HeaderValue(key=name, raw_value=value)
    return pb.HeaderValueOption(header=header, append_action=_OVERWRITE)


def _streamed(body: bytes, last: bool) -> pb.BodyResponse:
    mutation = pb.BodyMutation(streamed_response=pb.StreamedBodyResponse(body=body, end_of_stream=last))
    return pb.BodyResponse(response=pb.CommonResponse(body_mutation=mutation))


class Sender(NamedTuple):
    """The client's ``address`` and, if the headers tell them, the caller and the priority of the request."""

    address: str
    on_behalf: tuple[str, int] | None


def sender_in(headers: Headers, priorities: Mapping[str, int]) -> Sender:
    """The sender that ``headers`` tell. ``priorities``: of each objective; 0 for others.

    The last address of ``X-Forwarded-For`` is Envoy's own word (``use_remote_address``).
    """
    address = caller = objective = ""
    for name, value in headers:
        if name in _TOLD:
            text = value.decode("latin-1")
            if name == _FORWARDED:
                address = text.rpartition(",")[2].strip()
            elif name in _FAIRNESS:
                caller = text[:256]
            else:
                objective = text
    if not caller and objective not in priorities:
        return Sender(address, None)
    return Sender(address, (caller or _NOBODY, priorities.get(objective, 0)))
