"""The tables ``[scheduling]`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from enginehouse.config.section import Count, Duration, Positive, ProgressForm, Section

STATIC_FILES = r"\.(css|gif|ico|jpe?g|js|json|map|png|svg|txt|woff2?)$"
"""The files of an engine's page."""


class GroupSettings(Section, frozen=True):
    """A group of models for the `group` swapper."""

    members: Annotated[list[str], Meta(description="models of the group")]
    swap: Annotated[bool, Meta(description="run one member at a time")] = True
    exclusive: Annotated[bool, Meta(description="loading a member stops the models of other groups")] = True
    persistent: Annotated[bool, Meta(description="other groups never stop its members")] = False


class MatrixSettings(Section, frozen=True):
    """The combinations of models that may run together, for the `matrix` swapper."""

    vars: Annotated[dict[str, str], Meta(description="short names of models")] = {}
    costs: Annotated[dict[str, Positive], Meta(description="cost of stopping a model; 1 by default")] = {}
    sets: Annotated[dict[str, str], Meta(description="allowed combinations, best first: `(g | q) & v`")] = {}


class SchedulingSettings(Section, frozen=True):
    """How requests wait for models, and how models are loaded."""

    scheduler: Annotated[str, Meta(description="`fifo` or a plugin's")] = "fifo"
    swapper: Annotated[str, Meta(description="`group`, `matrix`, `memory` or a plugin's")] = "group"
    scaler: Annotated[
        str, Meta(description="decides for models with `replicas = { min, max }`: `expected_wait` or a plugin's")
    ] = "expected_wait"
    queue_timeout: Annotated[Duration, Meta(description="longest time that a request waits for its model")] = 600
    max_queue: Annotated[Count, Meta(description="most requests waiting on one host")] = 1000
    min_residency: Annotated[Duration, Meta(description="time before a loaded model may be evicted")] = 0
    max_wait: Annotated[
        Duration,
        Meta(description="after this time, a waiting request holds back newer requests for the models that block it"),
    ] = 60
    cancel_loads: Annotated[
        Literal["wanted", "always", "never"],
        Meta(description="when a load that no request waits for any more is cancelled: if its place is wanted"),
    ] = "wanted"
    never_load_for: Annotated[
        list[str],
        Meta(
            description="regular expressions of paths below `/upstream/MODEL`, with which a model that is not loaded "
            "stays so: the answer is 409, so that an open page of an engine causes no swap"
        ),
    ] = field(default_factory=lambda: [STATIC_FILES])
    progress: Annotated[ProgressForm, Meta(description="form of the progress that waiting streams get")] = "off"
    progress_patience: Annotated[
        Duration, Meta(description="wait before the first report; an error before that keeps its HTTP status")
    ] = 5
    priorities: Annotated[dict[str, int], Meta(description="queue priorities of models; higher first")] = {}
    groups: Annotated[
        dict[str, GroupSettings],
        Meta(description="groups of the `group` swapper; by default, all models of a host form one group"),
    ] = {}
    matrix: Annotated[MatrixSettings, Meta(description="rules of the `matrix` swapper")] = MatrixSettings()
