from __future__ import annotations

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.events import BlockRemoved, BlockStored, KvEvent
from tests.support.asked import new_state


def ask(name: str, first_token: int) -> RequestState:
    prompt = list(range(first_token, first_token + 8))
    return new_state(request_id=name, prompt_token_ids=prompt, max_tokens=1)


def test_events_of_a_step_are_published_when_it_begins() -> None:
    heard: list[KvEvent] = []
    constants = SchedulerConstants(block_size=4, total_gpu_blocks=4)
    core = build_core(CoreSettings(constants=constants), on_kv_events=heard.extend)
    core.scheduler.add_request(ask("a", 100))
    core.step()
    stored = [event for event in heard if isinstance(event, BlockStored)]
    assert [tuple(event.token_ids) for event in stored] == [(100, 101, 102, 103), (104, 105, 106, 107)]
    assert stored[1].parent_block_hash == stored[0].block_hashes[0]
    heard.clear()
    core.scheduler.add_request(ask("b", 200))
    core.step()
    removed = [event.block_hashes for event in heard if isinstance(event, BlockRemoved)]
    assert removed == [stored[1].block_hashes], "the end of what was kept goes first"
