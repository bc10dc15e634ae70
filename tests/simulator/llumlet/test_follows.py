"""The rest of a request that migrated, asked of the engine where it runs now."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from http.client import HTTPConnection

import httpx

from enginehouse_sim.simulator.model.text import encode
from tests.support.llumlet import PROMPT, Instance, Open, Start, expected, until

REST = {"model": "sim", "max_tokens": 400}


def follow(instance: Instance, request: str, prompt: list[int], **more: object) -> httpx.Response:
    body = {**REST, "prompt": prompt, "follows": request, **more}
    return instance.http.post("/v1/completions", json=body)


def prompt_and(text: str) -> list[int]:
    return [*encode(PROMPT), *encode(text)]


def test_the_rest_comes_from_the_destination_when_the_source_is_gone(instance: Start, stream: Open) -> None:
    source, destination, last = instance(own=True, slow=True), instance(slow=True), instance()
    reader = stream(source, 200, "r")
    reader.until(pieces=3)
    assert source.migrate(destination).success
    text = reader.text
    with destination.http.stream(
        "POST",
        "/v1/completions",
        json={**REST, "prompt": prompt_and(text), "follows": "cmpl-r", "stream": True},
    ) as response:
        lines = response.iter_lines()
        first = next(lines)
        source.engine.kill()
        assert destination.migrate(last).success
        rest = [line.removeprefix("data: ") for line in (first, *lines) if line]
    assert rest[-1] == "[DONE]"
    texts = [json.loads(line)["choices"][0]["text"] for line in rest[:-1]]
    assert text + "".join(texts) == expected(200)
    until(lambda: last.engine.running() == 0)
    reader.finish()


def test_several_follow_one_request(instance: Start, stream: Open) -> None:
    source, destination = instance(), instance()
    reader = stream(source, 120, "r")
    reader.until(pieces=10)
    assert source.migrate(destination).success
    engine, asked = destination.engine, {**REST, "prompt": prompt_and(""), "follows": "cmpl-r"}
    os.kill(engine.pid, signal.SIGSTOP)  # or it might be at the end before it is asked
    with closing(HTTPConnection("127.0.0.1", engine.port)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(asked))
        os.kill(engine.pid, signal.SIGCONT)
        answer = json.loads(connection.getresponse().read())
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == (expected(120), "length")
    assert answer["usage"]["completion_tokens"] == 120
    assert reader.finish() == expected(120)


def test_a_follower_that_leaves_ends_nothing(instance: Start, stream: Open) -> None:
    source, destination, last = instance(slow=True), instance(slow=True), instance()
    reader = stream(source, 200, "r")
    reader.until(pieces=3)
    assert source.migrate(destination).success
    body = {**REST, "prompt": prompt_and(""), "follows": "cmpl-r", "stream": True}
    with destination.http.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_lines())
    assert destination.migrate(last).success
    assert reader.finish() == expected(200)


def test_what_cannot_be_followed(instance: Start, stream: Open) -> None:
    source, destination, last = instance(slow=True), instance(slow=True), instance()
    reader = stream(source, 200, "r")
    reader.until(pieces=3)
    assert follow(source, "cmpl-r", prompt_and("")).status_code == 404, "it has not migrated"
    assert source.migrate(destination).success
    assert follow(destination, "cmpl-other", prompt_and("")).status_code == 404
    assert follow(destination, "cmpl-r", prompt_and("another prompt")).status_code == 400
    assert follow(destination, "cmpl-r", prompt_and(""), n=2).status_code == 400
    assert destination.migrate(last).success
    assert reader.finish() == expected(200)
