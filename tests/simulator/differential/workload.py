"""A workload that two schedulers can be driven with: limits, requests, and what the model answers.

Both interpreters import this, so it needs the standard library and msgspec only.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

EOS = 1
WRONG = 9
"""A draft that the model never samples."""


class Item(msgspec.Struct, kw_only=True):
    """One request, and everything that happens to it.

    ``outputs``: the tokens that the model samples for it, in order. ``comes_at``, ``leaves_at``: steps. ``images``:
    (identifier, offset, length). ``external``: the tokens that the connector has, loaded within the step or, with
    ``load_steps``, in the steps between; ``asks``: how many times the connector cannot tell yet. ``send_steps``: how
    long its blocks are still read after its end.
    """

    request_id: str
    prompt: list[int]
    outputs: list[int]
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: list[int] = []
    priority: int = 0
    arrival_time: float = 0.0
    comes_at: int = 0
    leaves_at: int | None = None
    lora: int = 0
    salt: str | None = None
    images: list[tuple[str, int, int]] = []
    external: int = 0
    load_steps: int = 0
    asks: int = 0
    send_steps: int = 0


class Workload(msgspec.Struct, kw_only=True):
    """``limits``: fields of ``SchedulerConstants``. ``acceptance``: the chance of each draft to be right."""

    seed: int
    limits: dict[str, Any]
    items: list[Item]
    acceptance: float = 0.5
    connector: bool = False

    def sampled(self, item: Item, num_outputs: int, drafts: Sequence[int]) -> list[int]:
        """The tokens of one step: one, and one more for each draft that is right.

        A step that is planned ahead has placeholders for what the drafter proposes.
        """
        if self.limits["async_scheduling"]:
            drafts = self.drafts(item, num_outputs)[: len(drafts)]
        tokens = [item.outputs[num_outputs]]
        for draft in drafts:
            if draft != tokens[-1] or len(tokens) + num_outputs >= len(item.outputs):
                break
            tokens.append(item.outputs[num_outputs + len(tokens)])
        return tokens

    def drafts(self, item: Item, num_outputs: int) -> list[int]:
        """What the drafter proposes after so many outputs."""
        random = Random(f"{self.seed} {item.request_id} {num_outputs}")
        count = self.limits.get("num_spec_tokens", 0)
        right = item.outputs[num_outputs : num_outputs + count]
        return [token if random.random() < self.acceptance else WRONG for token in right]


class StepRecord(msgspec.Struct, kw_only=True):
    """What one step decided and what came of it; two schedulers agree if these are equal.

    ``scheduled``: (request, tokens, computed before), in order. ``blocks``: the block tables of all requests that have
    one. ``outputs``: (request, tokens, finish reason, stop reason, cached tokens), by request.
    """

    step: int
    scheduled: list[tuple[str, int, int]]
    drafts: dict[str, int]
    encoder_inputs: dict[str, list[int]]
    preempted: list[str]
    running: list[str]
    waiting: list[str]
    free_blocks: int
    blocks: dict[str, list[int]]
    outputs: list[tuple[str, list[int], str | None, int | None, int]] = []
