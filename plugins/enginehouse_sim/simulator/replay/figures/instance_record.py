"""The record of one engine of a replay."""

from __future__ import annotations


class InstanceRecord:
    """Counts of one engine. ``batches``: the sum of its batch sizes. ``busy``: its seconds of computing.

    ``peak_kv_use``: the largest sampled share of blocks in use, 0 to 1.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = self.input_tokens = self.cached_tokens = self.output_tokens = 0
        self.preemptions = self.steps = self.batches = 0
        self.busy = self.peak_kv_use = 0.0

    def __repr__(self) -> str:
        tokens = f"input_tokens={self.input_tokens}, cached_tokens={self.cached_tokens}"
        return (
            f"InstanceRecord(name={self.name!r}, requests={self.requests}, {tokens}, "
            f"output_tokens={self.output_tokens}, preemptions={self.preemptions}, steps={self.steps}, "
            f"batches={self.batches}, busy={self.busy}, peak_kv_use={self.peak_kv_use})"
        )
