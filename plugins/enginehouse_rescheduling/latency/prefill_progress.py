"""Predicts the tokens that an instance has computed since it reported, from the steps that it and others reported."""

from __future__ import annotations

from enginehouse import Role
from enginehouse.rescheduling import ClusterView, InstanceView
from enginehouse_rescheduling.latency.least_squares import Function, fit

_SHORTEST_MS, _LONGEST_MS = 1e-3, 1e6


class PrefillProgress:
    """Learns the duration of a step from its tokens of prompts, once, from ``samples`` steps of prefill instances.

    Before that, and for other instances, nothing is predicted: decodes would lengthen the steps.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._steps: dict[tuple[str, int], tuple[float, float]] = {}
        self._duration: Function | None = None

    def learn(self, view: ClusterView) -> None:
        """Take the last steps of all prefill instances."""
        if self._duration is not None:
            return
        for each in view.instances:
            tokens, duration = each.status.num_scheduled_prefill_tokens, each.status.step_duration
            if each.role is Role.PREFILL and tokens > 0 and _SHORTEST_MS <= duration <= _LONGEST_MS:
                self._steps[each.id, each.status.step_id] = tokens, duration
        if len(self._steps) >= self._samples:
            self._duration = fit(list(self._steps.values()))
            self._steps = {}

    def computed(self, instance: InstanceView, now_ms: int) -> int:
        """The tokens of prompts that the instance has probably computed since its status; at most all it had."""
        if self._duration is None or instance.role is not Role.PREFILL:
            return 0
        status, most = instance.status, instance.max_num_batched_tokens
        running = status.num_uncomputed_tokens_scheduler_running_prefills
        left = running + status.num_uncomputed_tokens_all_waiting_prefills
        elapsed, done = float(now_ms - status.timestamp_ms), 0
        step = running if 0 < running < most else 0  # a prompt that has begun is finished first
        while left > 0 and elapsed > 0:
            step = min(step or left, most or left)
            duration = self._duration(step)
            if not _SHORTEST_MS <= duration <= _LONGEST_MS:
                break
            if duration > elapsed:
                return done + round(step * elapsed / duration)
            done, left, elapsed, step = done + step, left - step, elapsed - duration, 0
        return done
