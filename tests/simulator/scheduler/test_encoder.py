from __future__ import annotations

from enginehouse_sim.simulator.domain.asked import MultiModalInput
from tests.support.scheduler_fakes import Requests, Run, Schedulers


def image(offset: int, length: int, name: str = "") -> MultiModalInput:
    return MultiModalInput(name or f"{offset}/{length}", offset, length)


def test_images_are_encoded_in_the_step_that_reaches_them(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=10)
    scheduler.add_request(new_request(30, mm_inputs=[image(2, 5), image(12, 8)]))
    encoded = [run(scheduler)[0].scheduled_encoder_inputs for _ in range(3)]
    assert encoded == [{"a": (0,)}, {"a": (1,)}, {}]


def test_a_prompt_stops_short_of_an_image_beyond_the_encoder_budget(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_encoder_input_tokens=10)
    scheduler.add_request(new_request(40, mm_inputs=[image(2, 8), image(15, 8)]))
    steps = [run(scheduler)[0] for _ in range(2)]
    assert [step.num_scheduled_tokens["a"] for step in steps] == [15, 25]
    assert [step.scheduled_encoder_inputs for step in steps] == [{"a": (0,)}, {"a": (1,)}]


def test_the_encoder_budget_is_shared_and_a_request_that_gets_nothing_stops_admission(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_encoder_input_tokens=10)
    scheduler.add_request(new_request(10, mm_inputs=[image(0, 8, "x")]))
    scheduler.add_request(new_request(10, mm_inputs=[image(0, 8, "y")]))
    scheduler.add_request(new_request(10))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 10}
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1, "b": 10, "c": 10}


def test_an_image_is_evicted_for_another_one_once_the_prompt_is_computed_past_it(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(encoder_cache_size=8, max_num_batched_tokens=10)
    scheduler.add_request(new_request(30, mm_inputs=[image(2, 8, "x"), image(12, 8, "y")]))
    steps = [run(scheduler)[0] for _ in range(3)]
    assert [step.scheduled_encoder_inputs for step in steps] == [{"a": (0,)}, {"a": (1,)}, {}]
    assert scheduler.state.encoder_cache.num_evictable == 8


def test_an_image_beyond_the_encoder_cache_waits_for_room(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(encoder_cache_size=8, max_num_batched_tokens=6)
    scheduler.add_request(new_request(8, mm_inputs=[image(0, 8, "x")], max_tokens=1))
    scheduler.add_request(new_request(8, mm_inputs=[image(0, 8, "y")]))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 6}
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 2}
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 6}


def test_equal_content_is_encoded_once_and_kept_for_later_requests(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(encoder_cache_size=8)
    scheduler.add_request(new_request(9, mm_inputs=[image(1, 8, "x")]))
    scheduler.add_request(new_request(9, mm_inputs=[image(1, 8, "x")]))
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 9, "b": 9}
    assert step.scheduled_encoder_inputs == {"a": (0,)}
    scheduler.add_request(new_request(9, mm_inputs=[image(1, 8, "x")]))
    assert not run(scheduler)[0].scheduled_encoder_inputs
    scheduler.add_request(new_request(9, mm_inputs=[image(1, 8, "y")]))
    step, _ = run(scheduler)
    assert step.scheduled_encoder_inputs == {"d": (0,)}


def test_an_aborted_request_lets_go_of_its_images(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(encoder_cache_size=8, max_num_batched_tokens=6)
    request = new_request(10, mm_inputs=[image(0, 8)])
    scheduler.add_request(request)
    run(scheduler)
    scheduler.finish_requests(["a"], request.status.FINISHED_ABORTED)
    assert scheduler.state.encoder_cache.num_evictable == 8
