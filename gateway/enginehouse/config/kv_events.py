"""Where an engine publishes the events of its prefix cache."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from enginehouse.config.section import Section


class KvEventSettings(Section, frozen=True):
    """The ZeroMQ sockets of an engine's events, as vLLM's and SGLang's `--kv-events-config` names them."""

    endpoint: Annotated[str, Meta(min_length=1, description="where it publishes them, such as `tcp://10.0.0.5:5557`")]
    replay: Annotated[str, Meta(description="where it sends lost ones again, its `replay_endpoint`")] = ""
    topic: Annotated[str, Meta(description="their topic")] = ""
