"""The tables ``[scheduling]`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from enginehouse.config.section import Count, Duration, Positive, ProgressForm, Section, about

STATIC_FILES = r"\.(css|gif|ico|jpe?g|js|json|map|png|svg|txt|woff2?)$"
"""The files of an engine's page."""


class GroupSettings(Section, frozen=True):
    """A group of models for the `group` swapper."""

    members: Annotated[list[str], about("models of the group")]
    swap: Annotated[bool, about("run one member at a time")] = True
    exclusive: Annotated[bool, about("loading a member stops the models of other groups")] = True
    persistent: Annotated[bool, about("other groups never stop its members")] = False


class MatrixSettings(Section, frozen=True):
    """The combinations of models that may run together, for the `matrix` swapper."""

    vars: Annotated[dict[str, str], about("short names of models")] = {}
    costs: Annotated[dict[str, Positive], about("cost of stopping a model; 1 by default")] = {}
    sets: Annotated[dict[str, str], about("allowed combinations, best first: `(g | q) & v`")] = {}


class SchedulingSettings(Section, frozen=True):
    """How requests wait for models, and how models are loaded."""

    scheduler: Annotated[str, about("`fifo` or a plugin's")] = "fifo"
    swapper: Annotated[str, about("`group`, `matrix`, `memory` or a plugin's")] = "group"
    scaler: Annotated[
        str, about("decides for models with `replicas = { min, max }`: `expected_wait` or a plugin's")
    ] = "expected_wait"
    queue_timeout: Annotated[Duration, about("longest time that a request waits for its model")] = 600
    max_queue: Annotated[Count, about("most requests waiting on one host")] = 1000
    min_residency: Annotated[Duration, about("time before a loaded model may be evicted")] = 0
    max_wait: Annotated[
        Duration, about("after this time, a waiting request holds back newer requests for the models that block it")
    ] = 60
    cancel_loads: Annotated[
        Literal["wanted", "always", "never"],
        about(
            "when a load that no request waits for any more is cancelled: `wanted`, if another model needs its memory; "
            "`always`, at once; or `never`"
        ),
    ] = "wanted"
    never_load_for: Annotated[
        list[str],
        about(
            "regular expressions of paths below `/upstream/MODEL` that never load a model: if it is not loaded, "
            "the answer is 409, so that an open page of an engine causes no swap"
        ),
    ] = field(default_factory=lambda: [STATIC_FILES])
    progress: Annotated[ProgressForm, about("form of the progress that waiting streams get")] = "off"
    progress_patience: Annotated[
        Duration, about("wait before the first report; an error before that keeps its HTTP status")
    ] = 5
    priorities: Annotated[dict[str, int], about("queue priorities of models; higher first")] = {}
    groups: Annotated[
        dict[str, GroupSettings],
        about("groups of the `group` swapper; by default, all models of a host form one group"),
    ] = {}
    matrix: Annotated[MatrixSettings, about("rules of the `matrix` swapper")] = MatrixSettings()
