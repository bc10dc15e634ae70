"""Reads backends from EndpointSlices and pods, which are JSON objects as the API server sends them.

The fields are those of https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import ValidationError, convert

from enginehouse.backends import FoundBackend

ANNOTATION = "enginehouse.dev/"
"""Begins the names of the annotations by which a pod says what it serves."""

Json = Mapping[str, Any]


class Serving(NamedTuple):
    """How the pods serve, unless an annotation says otherwise. ``port``: a name or a number; ``""`` for the first."""

    driver: str
    scheme: str
    port: str


def found_backends(
    slices: Iterable[Json], pods: Mapping[str, Json], serving: Serving
) -> tuple[dict[str, FoundBackend], dict[str, str]]:
    """The backends by the names of their pods, and why the annotations of other pods cannot be read.

    A pod is offered while its endpoint is ready. One that terminates drains as long as it serves.
    """
    backends, wrong = {}, {}
    for each in slices:
        for endpoint in each.get("endpoints") or ():
            for name, table in _offered(endpoint, _port(each, serving.port), pods, serving):
                try:
                    backends[name] = convert(table, FoundBackend, strict=False)
                except ValidationError as error:  # noqa: PERF203 - the other pods are offered all the same
                    wrong[name] = str(error)
    return backends, wrong


def _offered(
    endpoint: Json, port: int | None, pods: Mapping[str, Json], serving: Serving
) -> Iterator[tuple[str, dict[str, Any]]]:
    addresses, target = endpoint.get("addresses") or (), endpoint.get("targetRef") or {}
    if not addresses or port is None:
        return
    name = target.get("name") or addresses[0]
    metadata = pods.get(name, {}).get("metadata") or {}
    conditions = endpoint.get("conditions") or {}
    draining = conditions.get("terminating") is True or "deletionTimestamp" in metadata
    ready = conditions.get("ready") is not False  # absent means ready
    if ready or (draining and conditions.get("serving") is not False):
        yield name, _table(name, endpoint, port, metadata.get("annotations") or {}, serving, draining)


def _table(name: str, endpoint: Json, port: int, annotations: Json, serving: Serving, draining: bool) -> dict[str, Any]:
    """The fields of a backend, some as the texts that annotations are."""
    said = {key.removeprefix(ANNOTATION): text for key, text in annotations.items() if key.startswith(ANNOTATION)}
    address = endpoint["addresses"][0]
    place = f"[{address}]" if ":" in address else address
    table = {
        "url": f"{serving.scheme}://{place}:{port}",
        "driver": said.get("driver", serving.driver),
        "node": endpoint.get("nodeName") or "",
        "unit": endpoint.get("zone") or "",
        "draining": draining,
        "labels": {"pod": name},
    }
    if models := [model.strip() for model in said.get("models", "").split(",") if model.strip()]:
        table["models"] = models
    if said.get("role"):
        table["role"] = said["role"]
    for key in ("priority", "concurrency"):
        if said.get(key):
            table[key] = said[key]
    return table


def _port(endpoint_slice: Json, wanted: str) -> int | None:
    """The port of a slice: the one of that name or number, or the first."""
    ports = endpoint_slice.get("ports") or ()
    for each in ports:
        if wanted in ("", each.get("name"), str(each.get("port"))) and each.get("port"):
            return int(each["port"])
    return int(wanted) if wanted.isdecimal() else None
