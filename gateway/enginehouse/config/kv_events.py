"""Where an engine publishes the events of its prefix cache."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from enginehouse.config.section import Section, about


class KvEventSettings(Section, frozen=True):
    """The ZeroMQ sockets of an engine's events, as vLLM's and SGLang's `--kv-events-config` names them."""

    endpoint: Annotated[str, about("where it publishes them, such as `tcp://10.0.0.5:5557`", min_length=1)]
    replay: Annotated[str, about("where it sends lost events again, its `replay_endpoint`")] = ""
    topic: Annotated[str, about("their topic")] = ""
    ranks: Annotated[
        int, about("its data-parallel ranks; each publishes at a TCP port of its own, one after the other", ge=1)
    ] = 1

    def of_rank(self, rank: int) -> KvEventSettings:
        """The sockets of one rank, as vLLM and SGLang number them."""
        return replace(self, endpoint=_moved(self.endpoint, rank), replay=_moved(self.replay, rank), ranks=1)


def _moved(endpoint: str, by: int) -> str:
    address, _, port = endpoint.rpartition(":")
    return f"{address}:{int(port) + by}" if by and endpoint else endpoint
