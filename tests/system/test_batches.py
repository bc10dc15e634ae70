"""Batches through OpenAI's SDK, beside people, and over a gateway that is killed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import openai
import pytest
from openai.types import Batch

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.openai_clients import openai_client

PATH: Final = "/v1/chat/completions"
KEYS = """
[auth]
keys = [
  { name = "root", key = "k-root", admin = true },
  { name = "ann", key = "k-ann" },
  { name = "bob", key = "k-bob", models = ["a"] },
]
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("a", "b") as engine:
        yield engine


class Open(Protocol):
    """Opens clients of OpenAI's SDK."""

    def __call__(self, gateway: RunningGateway, key: str = "k-ann") -> openai.OpenAI: ...


@pytest.fixture
def sdk() -> Iterator[Open]:
    with ExitStack() as opened:
        yield lambda gateway, key="k-ann": opened.enter_context(openai_client(gateway.url, key))


def config(engine: SimEngine, folder: Path, more: str = "") -> str:
    return f"""
[backends.sim]
driver = "sim"
url = "{engine.url}"
[services.batches]
folder = "{folder}"
slots = 8
{more}
"""


@pytest.fixture
def gateway(engine: SimEngine, tmp_path: Path) -> Iterator[RunningGateway]:
    with RunningGateway(config(engine, tmp_path, KEYS), key="k-root") as gateway:
        yield gateway


def lines(*asked: dict[str, Any], url: str = PATH) -> bytes:
    rows = [
        {"custom_id": f"c-{number}", "method": "POST", "url": url, "body": {"max_tokens": 3, **body}}
        for number, body in enumerate(asked)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def chat(text: str, model: str = "a") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def begin(client: openai.OpenAI, content: bytes, url: Any = PATH) -> Batch:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h", metadata={"for": "us"})


def until(holds: Callable[[Batch], object], client: openai.OpenAI, id: str, gateway: RunningGateway) -> Batch:
    found: list[Batch] = []

    def look(_: object) -> bool:
        found[:] = [client.batches.retrieve(id)]
        return bool(holds(found[0]))

    gateway.until(look, timeout=120)
    return found[0]


def ended(batch: Batch) -> bool:
    return batch.status in ("completed", "failed", "expired", "cancelled")


def content(client: openai.OpenAI, file: str | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.files.content(file).text.splitlines()] if file else []


def test_the_sdk_s_calls_work(gateway: RunningGateway, sdk: Open) -> None:
    ann = sdk(gateway)
    asked = [chat("one"), chat("two", "b"), chat("three", "nobody has this")]
    batch = begin(ann, lines(*asked))
    assert (batch.object, batch.status, batch.endpoint, batch.metadata) == ("batch", "validating", PATH, {"for": "us"})
    done = until(ended, ann, batch.id, gateway)
    assert done.status == "completed"
    assert done.request_counts is not None
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (3, 2, 1)
    served, failed = content(ann, done.output_file_id), content(ann, done.error_file_id)
    assert {row["custom_id"]: row["response"]["body"]["model"] for row in served} == {"c-0": "a", "c-1": "b"}
    assert [row["response"]["body"]["error"]["code"] for row in failed] == ["model_not_found"]

    assert [each.id for each in ann.batches.list()] == [batch.id]
    files = [each.id for each in ann.files.list(purpose="batch")]
    assert files == [batch.input_file_id]
    assert ann.files.retrieve(files[0]).filename == "in.jsonl"
    assert ann.files.content(files[0]).content == lines(*asked)
    assert ann.files.delete(files[0]).deleted
    with pytest.raises(openai.NotFoundError):
        ann.files.retrieve(files[0])


def test_an_embedding_and_a_response_of_another_protocol(gateway: RunningGateway, sdk: Open) -> None:
    ann = sdk(gateway)
    for url, body in (
        ("/v1/embeddings", {"model": "a", "input": "x"}),
        ("/v1/responses", {"model": "a", "input": "x"}),
        ("/v1/completions", {"model": "a", "prompt": "x"}),
    ):
        batch = begin(ann, lines(body, url=url), url)
        done = until(ended, ann, batch.id, gateway)
        [row] = content(ann, done.output_file_id)
        assert row["response"]["status_code"] == 200


def test_callers_have_their_own_and_pay_for_it(gateway: RunningGateway, sdk: Open) -> None:
    ann, bob = (sdk(gateway, f"k-{name}") for name in ("ann", "bob"))
    batch = begin(bob, lines(chat("one"), chat("two", "b")))
    done = until(ended, bob, batch.id, gateway)
    failed = content(bob, done.error_file_id)
    assert [row["response"]["status_code"] for row in failed] == [403]
    for call in (ann.batches.retrieve, ann.batches.cancel):
        with pytest.raises(openai.NotFoundError, match="No such Batch object"):
            call(batch.id)
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        ann.files.content(done.output_file_id or "")
    with pytest.raises(openai.NotFoundError):
        ann.batches.create(input_file_id=batch.input_file_id, endpoint=PATH, completion_window="24h")
    assert [*ann.batches.list()] == []

    operator = {"x-api-key": "k-root"}
    usage = plain_httpx.get(f"{gateway.url}/api/usage?by=key", headers=operator).json()["rows"]
    assert {row["key"]: row["requests"] for row in usage} == {"bob": 2}
    [row] = plain_httpx.get(f"{gateway.url}/api/batches", headers=operator).json()["batches"]
    assert (row["id"], row["caller"], row["running"], row["waits_for"]) == (batch.id, "bob", 0, {})
    assert plain_httpx.get(f"{gateway.url}/api/batches", headers={"x-api-key": "k-bob"}).status_code == 403
    assert 'enginehouse_batch_lines_done_total{outcome="served"} 1.0' in _metrics(gateway)


def _metrics(gateway: RunningGateway) -> str:
    return plain_httpx.get(f"{gateway.url}/metrics", headers={"x-api-key": "k-root"}).text


def test_what_is_wrong_is_said_as_openai_says_it(gateway: RunningGateway, sdk: Open) -> None:
    ann = sdk(gateway)
    with pytest.raises(openai.AuthenticationError):
        sdk(gateway, "wrong").batches.list()
    with pytest.raises(openai.BadRequestError, match="purpose=batch"):
        ann.files.create(file=b"x", purpose="assistants")
    file = ann.files.create(file=("in.jsonl", b"{\n"), purpose="batch")
    other: Any = "/v1/moderations"
    with pytest.raises(openai.BadRequestError, match="'endpoint' must be one of"):
        ann.batches.create(input_file_id=file.id, endpoint=other, completion_window="24h")
    window: Any = "1h"
    with pytest.raises(openai.BadRequestError, match="completion_window"):
        ann.batches.create(input_file_id=file.id, endpoint=PATH, completion_window=window)
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        ann.batches.create(input_file_id="file-x", endpoint=PATH, completion_window="24h")
    batch = ann.batches.create(input_file_id=file.id, endpoint=PATH, completion_window="24h")
    failed = until(ended, ann, batch.id, gateway)
    assert failed.status == "failed"
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert [(each.code, each.line) for each in failed.errors.data] == [("invalid_json_line", 1)]
    with pytest.raises(openai.BadRequestError, match="Cannot cancel"):
        ann.batches.cancel(batch.id)
    with httpx.Client(trust_env=False, headers={"x-api-key": "k-ann"}) as raw:
        for path, body in (("files", b"no form"), ("batches", b"["), ("batches", b"[" * 100_000), ("batches", b"{}")):
            answer = raw.post(f"{gateway.url}/v1/{path}", content=body)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        for query in ("limit=0", "limit=x", "limit=1000", f"limit={'9' * 5000}"):
            assert raw.get(f"{gateway.url}/v1/batches?{query}").status_code == 400


def test_a_running_batch_is_cancelled(tmp_path: Path, sdk: Open) -> None:
    with SimEngine("a", tpot="200ms") as slow, RunningGateway(config(slow, tmp_path)) as gateway:
        client = sdk(gateway)
        batch = begin(client, lines(*[chat(str(number)) | {"max_tokens": 1000} for number in range(20)]))
        gateway.until(lambda _: _row(gateway, batch.id)["running"] > 0)
        client.batches.cancel(batch.id)
        done = until(ended, client, batch.id, gateway)
        assert done.status == "cancelled"
        assert {row["error"]["code"] for row in content(client, done.error_file_id)} == {"batch_cancelled"}
        gateway.until(lambda status: status["batches"]["lines"] == {"waiting": 0, "running": 0})
        assert plain_httpx.get(f"{gateway.url}/api/requests").json()["requests"] == []


def _row(gateway: RunningGateway, id: str) -> dict[str, Any]:
    row: dict[str, Any] = plain_httpx.get(f"{gateway.url}/api/batches/{id}").json()
    return row


@pytest.mark.parametrize(
    ("number", "kills"), [(60, 2), pytest.param(1000, 20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_a_killed_gateway_loses_no_line_and_has_none_twice(tmp_path: Path, sdk: Open, number: int, kills: int) -> None:
    chance = random.Random(number)
    moments = sorted(chance.sample(range(number * 9 // 10), kills))
    with SimEngine("a", "b", ttft="10ms", tpot="5ms") as slow:
        text = config(slow, tmp_path)
        batch: Batch | None = None
        for moment in [*moments, None]:
            with RunningGateway(text) as gateway:
                client = sdk(gateway)
                if batch is None:
                    batch = begin(client, lines(*[chat(str(each), "ab"[each % 2]) for each in range(number)]))
                if moment is None:
                    done = until(ended, client, batch.id, gateway)
                    assert done.status == "completed"
                    rows = content(client, done.output_file_id)
                else:
                    until(lambda it, most=moment: _completed(it) > most, client, batch.id, gateway)  # type: ignore[misc]
                    gateway.kill()
    assert done.error_file_id is None
    assert sorted(row["custom_id"] for row in rows) == sorted(f"c-{each}" for each in range(number))


def _completed(batch: Batch) -> int:
    return batch.request_counts.completed if batch.request_counts is not None else 0


def test_models_are_loaded_one_after_the_other(tmp_path: Path, sdk: Open) -> None:
    models = "".join(f'[models.{name}]\ndriver = "sim"\n' for name in "abc")
    with RunningGateway(f'{models}[batches]\nfolder = "{tmp_path}"\n') as gateway:
        client = sdk(gateway)
        batch = begin(client, lines(*[chat(str(number), "abc"[number % 3]) for number in range(30)]))
        done = until(ended, client, batch.id, gateway)
        assert len(content(client, done.output_file_id)) == 30
        page = plain_httpx.get(f"{gateway.url}/metrics").text
    swaps = re.findall(r'^enginehouse_swap_duration_seconds_count\{.*"ready".*\} (\S+)$', page, re.MULTILINE)
    assert sum(map(float, swaps)) == 3
