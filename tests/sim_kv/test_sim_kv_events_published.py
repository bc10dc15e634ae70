from __future__ import annotations

from enginehouse_sim.core.build import build_core
from enginehouse_sim.core.settings import CoreSettings
from enginehouse_sim.kv.events import BlocksRemoved, BlocksStored, KvEvent
from enginehouse_sim.scheduler.constants import SchedulerConstants
from enginehouse_sim.scheduler.request import RequestState


def ask(name: str, first_token: int) -> RequestState:
    prompt = list(range(first_token, first_token + 8))
    return RequestState(request_id=name, prompt_token_ids=prompt, max_tokens=1)


def test_what_a_step_fills_is_told_when_it_begins_and_what_it_takes_away_too() -> None:
    heard: list[KvEvent] = []
    constants = SchedulerConstants(block_size=4, total_gpu_blocks=4)
    core = build_core(CoreSettings(constants=constants), on_kv_events=heard.extend)
    core.add_request(ask("a", 100))
    core.step()
    stored = [event for event in heard if isinstance(event, BlocksStored)]
    assert [tuple(event.token_ids) for event in stored] == [(100, 101, 102, 103), (104, 105, 106, 107)]
    assert stored[1].parent_hash == stored[0].block_hashes[0]
    heard.clear()
    core.add_request(ask("b", 200))
    core.step()
    removed = [event.block_hashes for event in heard if isinstance(event, BlocksRemoved)]
    assert removed == [stored[1].block_hashes], "the end of what was kept goes first"
