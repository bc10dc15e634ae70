from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.scheduler_fakes import Outcome, Requests, Schedulers


@pytest.mark.parametrize("workers", [1, 3, 16])
@pytest.mark.parametrize("constants", [{}, {"num_spec_tokens": 2}, {"total_gpu_blocks": 20, "max_model_len": 70}])
def test_threads_take_a_step_in_byte_for_byte_like_the_caller_alone(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome, workers: int, constants: dict[str, Any]
) -> None:
    logs: list[bytes] = []
    for update_workers in (0, workers):
        scheduler = new_scheduler(update_workers=update_workers, **constants)
        for number in range(9):
            prompt = [*range(100 * number, 100 * number + 5 + number)]
            scheduler.add_request(new_request(prompt, 3 + number, request_id=f"r{number}", client_index=number % 3))
        log = []
        while scheduler.state.requests:
            step = scheduler.schedule()
            accepted = {request_id: [1, 9] for request_id in step.scheduled_spec_decode_tokens}
            drafts = [[1, 2]] * len(step.num_scheduled_tokens)
            result = outcome(scheduler, step, accepted, spec_token_ids=drafts)
            outputs = scheduler.update_from_output(step, result)
            log.append(msgspec.msgpack.encode((step, list(outputs.items()))))
        logs.append(b"".join(log))
        scheduler.shutdown()
    assert logs[0] == logs[1]
