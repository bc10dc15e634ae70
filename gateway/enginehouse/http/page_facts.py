"""What pages of plugins know of their gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
from prometheus_client.core import Metric

from enginehouse.config.routing import Aliases
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import EndedRequest
from enginehouse.domain.usage import AuditEntry, UsageRow
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.engines.pulled_models import PulledModels
from enginehouse.http.admission import BodyMemory
from enginehouse.interfaces.accounting import LimitLeft
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import ModelFacts
from enginehouse.interfaces.observers import Observer
from enginehouse.interfaces.protocols import ClientProtocol
from enginehouse.interfaces.services import Measured
from enginehouse.relay.relay import Relay
from enginehouse.telemetry.log_ring import LogRing
from enginehouse.telemetry.model_totals import ModelTotals
from enginehouse.telemetry.plugin_times import PluginTimes


class WorkerFigures(NamedTuple):
    """``replaced``: how many workers were replaced, by reason. ``busy``: the share of each loop; live."""

    replaced: Mapping[str, int]
    busy: Mapping[int, float]


class MeasuredGateway(NamedTuple):
    """What metrics tell besides. ``by_others``: what services and accounting measure now."""

    body_memory: BodyMemory
    by_others: Callable[[], Iterable[Measured]]
    workers: Callable[[], WorkerFigures]
    plugin_times: PluginTimes


class OperatedGateway(NamedTuple):
    """Its parts, and what it does for operators.

    - ``about``: further facts for the status.
    - ``reload``: reads the configuration again. Its argument is whether this is a dry run.
    - ``replacement``: returns what starts another gateway that takes over, if that is possible here.
    """

    relay: Relay
    engines: ManagedEngines
    about: Callable[[], Mapping[str, Any]]
    reload: Callable[[bool], Awaitable[Any]]
    replacement: Callable[[], Callable[[], Awaitable[int]] | None]
    measured: MeasuredGateway


class UsageSums(Protocol):
    """Asks the usage store, as ``UsageStore.sums``; by default by hour, key, model and end user."""

    def __call__(
        self, since: float, until: float, by: Sequence[str] = ..., key: str | None = None, most: int | None = None
    ) -> Awaitable[Sequence[UsageRow]]: ...


class PageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's state for pages of plugins: ``request.app.state.facts``. Each call returns the current one."""

    epoch: Callable[[], float]
    """The time of day in seconds."""
    totals: Callable[[], Iterable[ModelTotals]]
    """What has ended at each model of each backend."""
    gauges: Callable[[], Iterable[tuple[str, str, str, float]]]
    """Requests in queues (``queue``), and what is in use: shares of KV caches (``kv_usage``), bytes of engines, hosts
    and GPUs (``engine_memory``, ``host_memory``, ``gpu_memory``), and of the time of GPUs (``gpu_utilization``).

    Each is the metric, what it is of (``model``, ``backend``, ``host``, ``gpu``, or empty for the gateway), the name
    of that, and the value."""
    ended: Callable[[], Iterator[EndedRequest]]
    """The last 1000 requests that have ended, newest first."""
    ended_count: Callable[[], int]
    """How many have ended since the gateway started."""
    session_headers: Callable[[], Sequence[str]]
    """The headers that name the session of a request, as ``routing.session`` has them."""
    logs: Callable[[], Mapping[str, LogRing]]
    """The logs of launched engines, by backend, and the gateway's own one under an empty name."""
    since: float
    """When the gateway started, in seconds of the time of day."""
    shows_metrics: bool
    """Whether the configuration wants pages of metrics (``telemetry.metrics``)."""
    metrics: Callable[[], Iterable[Metric]]
    """The gateway's metrics, and those of its process."""
    engine_metrics: Callable[[], Iterable[tuple[str, str, str]]]
    """The pages of engines' metrics: backend, path, and the model that it is of, empty for all of them."""
    engine: Callable[..., EngineClient]
    """A client of a backend's engine; further arguments are a time limit in seconds and the most bytes of an answer."""
    models: Callable[[], Mapping[str, Sequence[Any]]]
    """The models that are served, with their replicas: each a ``Candidate``."""
    unknown_model: Callable[[str], RequestError]
    """The error for a model that no backend has, or has listed yet."""
    aliases: Callable[[], Aliases]
    """Other names of models."""
    table: Callable[[str], Any]
    """The table ``[name]`` of the configuration in force, decoded."""
    model_facts: Callable[[], Mapping[str, ModelFacts]]
    """What the files of launched models tell."""
    protocols: Callable[[], Iterable[ClientProtocol]]
    """Clients' protocols, each of the kit's class ``Protocol``."""
    usage: UsageSums
    """What callers have used between two times."""
    limits: Callable[[str], Sequence[LimitLeft]]
    """What is left of the limits of the caller of that name."""
    cost: Callable[[str, float, float, float], float]
    """The price of tokens of a model: of the prompt, those of it that were cached, and of the answer."""
    audit: Callable[[float, int], Awaitable[Sequence[AuditEntry]]]
    """The actions of operators since a time, at most that many, the newest first."""
    caller: Callable[[Headers], str]
    """The name of the key in a request's headers, empty if no keys are set. Raises ``Unauthorized``, ``Forbidden``."""
    sender: Callable[[Headers], AdmittedCaller | None]
    """As ``caller``, whatever web page the request comes from. ``None`` if no keys are set."""
    pulled: Callable[[], PulledModels]
    """The models that were downloaded, and the sources of more, as ``[pull]`` says."""
    observe: Callable[[Observer], None]
    """Lets an observer get the requests of all processes, until ``ignore``. Workers report them only then."""
    ignore: Callable[[Observer], None]
    folder: Callable[[], Path]
    """Where the gateway keeps its state, once it runs."""
    closing: asyncio.Event
    """Set when the gateway begins to stop: streams without an end must then end."""
    gateway: OperatedGateway
    """The parts of the gateway, for the bundled pages of operators: they may change at any time."""
