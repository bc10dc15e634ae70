from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestStatus
from tests.support.scheduler_fakes import Grammars, Requests, Run, Schedulers


def test_a_request_waits_until_its_grammar_is_compiled(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Grammars
) -> None:
    grammars = new_grammars()
    scheduler = new_scheduler(grammars=grammars)
    request = new_request(8, structured_output="json")
    scheduler.add_request(request)
    assert request.status is RequestStatus.WAITING_FOR_FSM
    assert run(scheduler)[0].num_scheduled_tokens == {}
    grammars.ready.add("a")
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 8}


def test_a_grammar_that_cannot_be_compiled_ends_its_request_alone(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Grammars
) -> None:
    scheduler = new_scheduler(grammars=new_grammars(broken=["a"]))
    scheduler.add_request(new_request(8, structured_output="nonsense"))
    scheduler.add_request(new_request(8))
    _, outputs = run(scheduler)
    told = {output.request_id: (output.finish_reason, output.stop_reason) for output in outputs}
    assert told == {"a": ("abort", "no such grammar"), "b": (None, None)}


def test_rows_are_for_new_then_running_then_resumed_requests_that_sample(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Grammars
) -> None:
    grammars = new_grammars("a", "b", "d", "e")
    scheduler = new_scheduler(grammars=grammars, max_num_batched_tokens=40)
    for grammar in ("json", "json", None):
        scheduler.add_request(new_request(4, structured_output=grammar))
    run(scheduler)
    scheduler.pause("a", keep_blocks=False)
    scheduler.resume("a")
    for length in (4, 60):
        scheduler.add_request(new_request(length, structured_output="json"))
    step, _ = run(scheduler)
    assert grammars.rows_for == [["a", "b"], ["d", "b", "a"]]
    assert step.structured_output_request_ids == {"d": 0, "b": 1, "a": 2}
    assert step.grammar_bitmask == [frozenset(range(10))] * 3
    assert step.num_scheduled_tokens["e"] > 0


def test_a_step_without_grammars_has_no_rows(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Grammars
) -> None:
    grammars = new_grammars()
    scheduler = new_scheduler(grammars=grammars)
    scheduler.add_request(new_request(8))
    step, _ = run(scheduler)
    assert (step.grammar_bitmask, step.structured_output_request_ids, grammars.rows_for) == (None, {}, [])


def test_grammars_follow_the_tokens_and_are_dropped_at_the_end(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Grammars
) -> None:
    grammars = new_grammars("a")
    scheduler = new_scheduler(grammars=grammars)
    scheduler.add_request(new_request(8, structured_output="json", max_tokens=3))
    for token in (1, 2, 3):
        run(scheduler, {"a": [token]})
    assert grammars.accepted["a"] == [1, 2]
    assert grammars.forgotten == ["a"]


def test_a_request_off_its_grammar_ends_alone(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Grammars
) -> None:
    scheduler = new_scheduler(grammars=new_grammars("a"))
    scheduler.add_request(new_request(8, structured_output="json"))
    scheduler.add_request(new_request(8))
    _, outputs = run(scheduler, {"a": [99], "b": [99]})
    told = {output.request_id: (output.finish_reason, output.new_token_ids) for output in outputs}
    assert told == {"a": ("abort", [99]), "b": (None, [99])}
    assert len(scheduler.state.running) == 1


def test_drafts_end_where_the_grammar_does_not_allow_them(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Grammars
) -> None:
    scheduler = new_scheduler(grammars=new_grammars("a"), num_spec_tokens=3)
    scheduler.add_request(new_request(8, structured_output="json"))
    run(scheduler, spec_token_ids=[[1, 99, 2]])
    assert scheduler.schedule().scheduled_spec_decode_tokens == {"a": [1]}
