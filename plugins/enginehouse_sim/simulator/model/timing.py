"""A model runner that makes no text: for replays, where only time counts."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.domain.outputs import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.steps.costs import StepLoad

TOKEN = 1
"""The token that every request gets."""
_SAMPLED = (TOKEN,)
_NOTHING: tuple[int, ...] = ()


class TimingRunner:
    """Samples the same token for every request, without drafts and grammars. No answer ends by itself.

    Loads, and therefore times, are those of ``ModelRunner``.
    """

    def __init__(self, total_kv_tokens: int) -> None:
        self.load = StepLoad()
        self._total_kv_tokens = total_kv_tokens
        self._requests: dict[str, list[int]] = {}  # the numbers of known tokens, and of prompt tokens

    def pass_steps(self, count: int) -> None:
        for length in self._requests.values():
            length[0] += count

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        self._note_changes(output)
        requests, scheduled = self._requests, output.num_scheduled_tokens
        prefill = pairs = own_pairs = first = decodes = active = 0
        index: dict[str, int] = {}
        sampled: list[Sequence[int]] = []
        parts = [(data.request_id, data.num_computed_tokens) for data in output.new_requests]
        parts += [(data.request_id, data.num_computed_tokens) for data in output.cached_requests]
        for request_id, computed in parts:
            length = requests[request_id]
            known = length[0]
            if computed + 1 >= known > length[1]:
                decodes += 1
                active += known
                whole = True
            else:
                tokens = scheduled[request_id]
                prefill += tokens
                pairs += tokens * computed
                own_pairs += tokens * (tokens + 1) // 2
                whole = computed + tokens >= known
                first += whole
            index[request_id] = len(sampled)
            sampled.append(_SAMPLED if whole else _NOTHING)
            length[0] += whole
        self.load = StepLoad(
            prefill_tokens=prefill,
            prefill_pairs=pairs,
            own_pairs=own_pairs,
            first_tokens=first,
            decodes=decodes,
            active_kv_tokens=active,
            total_kv_tokens=self._total_kv_tokens,
        )
        return ModelRunnerOutput(req_ids=list(index), req_id_to_index=index, sampled_token_ids=sampled)

    def _note_changes(self, output: SchedulerOutput) -> None:
        """Note the requests that are new, that have ended, and that are resumed with other tokens."""
        for request_id in output.finished_req_ids:
            self._requests.pop(request_id, None)
        for new in output.new_requests:
            prompt = len(new.prompt_token_ids)
            self._requests[new.request_id] = [prompt + len(new.output_token_ids), prompt]
        for cached in output.cached_requests:
            if cached.resumed_from_preemption:
                self._requests[cached.request_id][0] = len(cached.token_ids)
