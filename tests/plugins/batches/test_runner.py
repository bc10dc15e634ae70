"""What becomes of batches: from the file of a client to the file of results."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse import Candidate, Headers, InvalidRequest, RequestError
from enginehouse.errors import NotFound, Overloaded, ShuttingDown
from enginehouse.routing_facts import Load
from enginehouse.runtime import Clock
from enginehouse.services import GatewayCaller, GatewayRequest, Submitted
from enginehouse.tickets import Phase
from enginehouse_batches.objects import WINDOW_S, Batch, BatchSettings, new_id
from enginehouse_batches.pages import expiry_of
from enginehouse_batches.runner import Runner
from enginehouse_batches.store import CountedBatch, Storage, Store
from enginehouse_kit.testing import FakeGatewayRequest, FakeServiceGateway
from tests.support.waiting import until

PATH = "/v1/completions"
ANN = GatewayCaller("ann")


class Sent:
    """A request that was sent. ``end`` answers it."""

    def __init__(
        self, id: str, body: dict[str, Any], caller: GatewayCaller | None, priority: int | None, aside: bool
    ) -> None:
        self.id, self.body, self.caller, self.priority, self.aside = id, body, caller, priority, aside
        self.answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()

    def end(self, status: int = 200, body: bytes = b'{\n "ok": true}') -> None:
        self.answer.set_result(Submitted(status, body))


class Requests:
    """The requests of a gateway: those of ``people``, and the ``open`` ones that were sent here, of all ``sent``."""

    def __init__(self) -> None:
        self.people: list[GatewayRequest] = []
        self.open: list[Sent] = []
        self.sent: list[str] = []

    def __iter__(self) -> Iterator[GatewayRequest]:
        yield from self.people
        for each in self.open:
            yield FakeGatewayRequest(id=each.id, model=each.body["model"], backend=each.body["model"])

    async def submit(
        self,
        path: str,
        body: bytes,
        headers: Headers | None = None,
        *,
        caller: GatewayCaller | None = None,
        priority: int | None = None,
        aside: bool = False,
    ) -> Submitted:
        sent = Sent(dict(headers or ())[b"x-request-id"].decode(), json.loads(body), caller, priority, aside)
        self.open.append(sent)
        self.sent.append(sent.body["prompt"])
        try:
            return await sent.answer
        finally:
            self.open.remove(sent)

    async def move(self, request: str, destination: str, engine_request: str = "") -> None: ...
    def cancel(self, request: str) -> None: ...


class House:
    """A gateway with a runner of batches. ``later``: seconds that have passed."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.later = 0.0
        self.gateway = FakeServiceGateway(folder, Clock(lambda: self.later, lambda: 1e9 + self.later))
        self.requests = self.gateway.requests = Requests()  # type: ignore[assignment]
        self.load = Load(slots=4)
        self.gateway.candidates["m"] = [Candidate(model="m", backend="m", replica="m@m", load=self.load)]
        self.settings = BatchSettings(**settings)
        self.storage = Storage(Store(folder, self.settings))
        self.store = self.storage.store
        self.store.open()
        self.runner = Runner(self.gateway, self.storage, self.settings)

    def file(self, content: bytes, owner: str = "ann", expires_in: int | None = None) -> str:
        return self.store.add_file(owner, "in.jsonl", io.BytesIO(content), expires_in, self.now).id

    def batch(self, *prompts: str, model: str = "m", sender: GatewayCaller | None = ANN) -> str:
        lines = [
            {"custom_id": f"c-{each}", "method": "POST", "url": PATH, "body": {"model": model, "prompt": each}}
            for each in prompts
        ]
        content = "\n".join(json.dumps(line) for line in lines).encode()
        batch = self.new_batch(self.file(content, "" if sender is None else sender.name), sender)
        self.store.add_batch(batch)
        return batch.id

    def new_batch(self, file: str, sender: GatewayCaller | None = ANN) -> Batch:
        return Batch(
            id=new_id("batch_"),
            sender=sender,
            endpoint=PATH,
            input_file_id=file,
            metadata=None,
            created_at=self.now,
            expires_at=self.now + WINDOW_S,
        )

    @property
    def now(self) -> int:
        return int(self.gateway.clock.epoch())

    async def looks(self) -> None:
        """What the service does all the time."""
        await self.runner.look()
        self.runner.tick()
        for _ in range(20):
            await asyncio.sleep(0.0005)

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await self.looks()

    def seen(self, id: str) -> CountedBatch:
        return self.store.batch(id)

    def status(self, id: str) -> str:
        return self.seen(id).batch.status

    def results(self, id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The lines of both output files, by custom id."""
        batch = self.seen(id).batch
        found = []
        for file in (batch.output_file_id, batch.error_file_id):
            lines = self.store.content(file).read_text().splitlines() if file else []
            rows = [json.loads(line) for line in lines]
            assert len({row["custom_id"] for row in rows}) == len(rows)
            found.append({row["custom_id"]: row for row in rows})
        return found[0], found[1]

    async def close(self) -> None:
        await self.runner.stop()
        await self.storage.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.close()


async def test_a_batch_becomes_files_of_results(house: House) -> None:
    id = house.batch("x", "y", "z")
    assert house.status(id) == "validating"
    await house.until(lambda: len(house.requests.open) == 3)
    assert (house.status(id), house.seen(id).batch.total) == ("in_progress", 3)
    assert {(each.caller, each.priority) for each in house.requests.open} == {(ANN, -1000)}
    first, second, third = house.requests.open
    first.end()
    second.end(400, b"no JSON")
    await house.until(lambda: house.seen(id)[1:] == (1, 1))
    third.end()
    await house.until(lambda: house.status(id) == "completed")
    served, failed = house.results(id)
    assert {name: row["response"]["body"] for name, row in served.items()} == {"c-x": {"ok": True}, "c-z": {"ok": True}}
    assert failed["c-y"]["response"] == {"status_code": 400, "request_id": second.id, "body": "no JSON"}
    batch = house.seen(id).batch
    assert house.store.file("ann", batch.output_file_id or "").purpose == "batch_output"
    assert house.seen(id)[1:] == (2, 1)
    assert house.runner.counts == {"waiting": 0, "running": 0}


async def test_a_file_with_an_error_fails_as_a_whole(house: House) -> None:
    id = house.batch("x", model="")
    await house.until(lambda: house.status(id) == "failed")
    assert house.seen(id).batch.errors[0].line == 1
    assert house.requests.sent == []


async def test_lines_wait_for_people_and_make_room_for_them(house: House) -> None:
    house.load.slots = 16
    house.requests.people = [FakeGatewayRequest(id="p", model="m", waits=True, phase=Phase.QUEUED)]
    id = house.batch("x", "y")
    await house.until(lambda: house.status(id) == "in_progress")
    await house.looks()
    assert house.requests.sent == []
    assert house.runner.facts(id)["waits_for"] == {"m": "no slot is free that nobody waits for"}
    house.requests.people = []
    await house.until(lambda: len(house.requests.open) == 2)
    assert all(each.aside for each in house.requests.open)
    house.requests.people = [FakeGatewayRequest(id="p", model="m", waits=True, phase=Phase.QUEUED)]
    house.runner.tick()
    await until(lambda: len(house.requests.open) == 1)
    house.requests.people = []
    await house.until(lambda: len(house.requests.open) == 2)
    assert house.requests.sent == ["x", "y", "y"]
    for each in [*house.requests.open]:
        each.end()
    await house.until(lambda: house.status(id) == "completed")
    assert len(house.results(id)[0]) == 2


async def test_what_may_pass_is_sent_again_later(house: House) -> None:
    id = house.batch("x")
    for attempt in range(3):
        await house.until(lambda: house.requests.open)
        house.requests.open[0].end([429, 503, 504][attempt])
        await until(lambda: not house.requests.open)
        await house.looks()
        assert house.requests.open == []
        house.later += 2.0**attempt
    await house.until(lambda: house.requests.open)
    house.requests.open[0].end()
    await house.until(lambda: house.status(id) == "completed")
    assert len(house.results(id)[0]) == 1


async def test_a_fault_that_stays_fails_the_line(house: House) -> None:
    id = house.batch("x")
    for _ in range(5):
        await house.until(lambda: house.requests.open)
        house.requests.open[0].end(503, b'{"error": {"code": "load_failed"}}')
        await until(lambda: not house.requests.open)
        house.later += 300.0
    await house.until(lambda: house.status(id) == "completed")
    assert house.results(id)[1]["c-x"]["response"]["status_code"] == 503


@pytest.mark.parametrize("error", [NotFound("no such thing"), RequestError("broken")])
async def test_an_error_of_the_gateway_is_an_answer(house: House, error: RequestError) -> None:
    id = house.batch("x")
    await house.until(lambda: house.requests.open)
    house.requests.open[0].answer.set_exception(error)
    await house.until(lambda: house.status(id) == "completed")
    response = house.results(id)[1]["c-x"]["response"]
    assert (response["status_code"], response["body"]["error"]["code"]) == (error.status, error.code)


async def test_a_gateway_that_shuts_down_keeps_the_line(house: House) -> None:
    id = house.batch("x")
    await house.until(lambda: house.requests.open)
    house.requests.open[0].answer.set_exception(ShuttingDown("ends"))
    await until(lambda: not house.requests.open)
    house.later += 2
    await house.until(lambda: house.requests.open)
    house.requests.open[0].end()
    await house.until(lambda: house.status(id) == "completed")


async def test_a_cancelled_batch_keeps_what_it_has(house: House) -> None:
    id = house.batch("x", "y")
    await house.until(lambda: len(house.requests.open) == 2)
    house.requests.open[0].end()
    await house.until(lambda: house.seen(id).completed == 1)
    with pytest.raises(NotFound):
        house.store.cancel(id, "bob", house.now)
    assert house.store.cancel(id, "ann", house.now).batch.status == "cancelling"
    await house.until(lambda: house.status(id) == "cancelled")
    assert house.requests.open == []
    served, failed = house.results(id)
    assert (set(served), failed["c-y"]["error"]["code"]) == ({"c-x"}, "batch_cancelled")
    with pytest.raises(InvalidRequest, match="Cannot cancel a batch with status 'cancelled'"):
        house.store.cancel(id, "ann", house.now)


async def test_a_batch_expires(house: House) -> None:
    id = house.batch("x", "y")
    await house.until(lambda: len(house.requests.open) == 2)
    house.requests.open[0].end()
    await house.until(lambda: house.seen(id).completed == 1)
    house.later = WINDOW_S + 1.0
    await house.until(lambda: house.status(id) == "expired")
    served, failed = house.results(id)
    assert (set(served), failed["c-y"]["error"]["code"]) == ({"c-x"}, "batch_expired")
    assert house.seen(id)[1:] == (1, 1)


async def test_another_process_takes_a_batch_over(house: House, tmp_path: Path) -> None:
    id = house.batch("x", "y")
    await house.until(lambda: len(house.requests.open) == 2)
    other = House(tmp_path)
    await other.looks()
    assert other.requests.sent == [], "two processes run beside each other during an upgrade"
    house.requests.open[0].end()
    await house.until(lambda: house.seen(id).completed == 1)
    await house.runner.stop()
    house.store.close()
    await other.until(lambda: other.requests.open)
    assert other.requests.sent == ["y"]
    other.requests.open[0].end()
    await other.until(lambda: other.status(id) == "completed")
    assert len(other.results(id)[0]) == 2
    await other.close()
    house.store.open()


async def test_a_batch_that_was_ended_halfway_is_ended(house: House, tmp_path: Path) -> None:
    id = house.batch("x")
    await house.until(lambda: house.requests.open)
    house.requests.open[0].end()
    await house.until(lambda: house.seen(id).completed == 1)
    await house.runner.stop()
    found = house.seen(id).batch
    house.store.move(msgspec.structs.replace(found, status="finalizing"), "in_progress")
    (tmp_path / "files" / "file-half").write_bytes(b"{")
    house.runner = Runner(house.gateway, house.storage, house.settings)
    await house.until(lambda: house.status(id) == "completed")
    assert len(house.results(id)[0]) == 1


async def test_an_input_that_is_gone_stops_no_other_batch(house: House) -> None:
    broken, whole = house.batch("x"), house.batch("y")
    house.store.content(house.seen(broken).batch.input_file_id).unlink()
    await house.until(lambda: house.requests.open)
    house.requests.open[0].end()
    await house.until(lambda: house.status(whole) == "completed")
    assert [each.code for each in house.seen(broken).batch.errors] == ["missing_file"]


async def test_a_line_that_cannot_be_read_is_read_again_later(house: House, caplog: pytest.LogCaptureFixture) -> None:
    id = house.batch("x")
    file = house.store.content(house.seen(id).batch.input_file_id)
    content = file.read_bytes()
    house.load.pending = 4
    await house.until(lambda: house.status(id) == "in_progress")
    file.unlink()
    house.load.pending = 0
    await house.until(lambda: "cannot be read" in caplog.text)
    await house.looks()
    assert caplog.text.count("cannot be read") == 1
    file.write_bytes(content)
    house.later += 1.5
    await house.until(lambda: house.requests.open)
    house.requests.open[0].end()
    await house.until(lambda: house.status(id) == "completed")


async def test_a_batch_that_cannot_go_on_goes_on_later(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    id = house.batch("x")
    with monkeypatch.context() as patch:
        patch.setattr(house.store, "begin", full)
        await house.until(lambda: "cannot go on" in caplog.text)
        await house.looks()
    assert caplog.text.count("cannot go on") == 1
    assert house.status(id) == "validating"
    house.later += 1.5
    await house.until(lambda: house.status(id) == "in_progress")


async def test_files_have_owners_bounds_and_an_end(tmp_path: Path) -> None:
    here = House(tmp_path, max_files=2, max_storage=100, max_batches=1, keep=7200.0)
    file = here.file(b"x" * 50)
    with pytest.raises(NotFound):
        here.store.file("bob", file)
    with pytest.raises(Overloaded, match="max_storage"):
        here.file(b"x" * 60)
    here.store.add_batch(here.new_batch(file))
    with pytest.raises(InvalidRequest, match="max_batches"):
        here.store.add_batch(here.new_batch(file))
    here.store.cancel(here.store.open_batches()[0].batch.id, None, here.now)
    await here.until(lambda: not here.store.open_batches())
    short = here.file(b"y", expires_in=3600)
    with pytest.raises(InvalidRequest, match="max_files"):
        here.file(b"y")
    here.file(b"y", owner="bob")
    here.later = 3601
    here.store.forget(here.now)
    assert [each.id for each in here.store.files("ann", None, None, 9, oldest_first=True)[0]] == [file]
    assert not here.store.content(short).exists()
    here.store.delete_file("ann", file)
    await here.close()


async def test_a_file_that_a_batch_reads_stays(house: House) -> None:
    id = house.batch("x")
    file = house.seen(id).batch.input_file_id
    with pytest.raises(InvalidRequest, match="still reads this file"):
        house.store.delete_file("ann", file)
    house.later = 40 * 86_400
    house.store.forget(house.now)
    assert house.store.content(file).exists()
    await house.until(lambda: house.status(id) == "expired")
    house.later = 80 * 86_400
    house.store.forget(house.now)
    assert not house.store.content(file).exists()
    with pytest.raises(NotFound):
        house.store.batch(id)


async def test_pages_of_lists(house: House) -> None:
    ids = [house.batch(str(number)) for number in range(3)][::-1]
    first, more = house.store.batches("ann", None, 2)
    assert ([each.batch.id for each in first], more) == (ids[:2], True)
    rest, more = house.store.batches("ann", ids[1], 2)
    assert ([each.batch.id for each in rest], more) == (ids[2:], False)
    assert house.store.batches("bob", None, 2) == ([], False)
    assert len(house.store.batches(None, None, 9)[0]) == 3


async def test_nothing_is_sent_any_more_while_the_runner_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = House(tmp_path)
    here.batch("x")
    here.gateway.candidates["n"] = [Candidate(model="n", backend="n", replica="n@n", load=Load(slots=4))]
    here.batch("y", model="n")
    await here.until(lambda: len(here.requests.open) == 2)
    here.later += 1  # since the last decision
    end_lines = here.runner._end_lines

    async def end_after_another_line(job: Any) -> None:
        await end_lines(job)
        for each in [*here.requests.open]:
            each.end()
        await until(lambda: not here.runner._sent)

    monkeypatch.setattr(here.runner, "_end_lines", end_after_another_line)
    await here.runner.stop()
    assert here.requests.sent == ["x", "y"]
    assert here.runner.counts == {"waiting": 0, "running": 0}
    await here.storage.close()


def test_a_file_that_cannot_be_kept_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = House(tmp_path)

    def full(content: object, target: io.BytesIO) -> None:
        target.write(b"some of it")
        raise OSError("no space left on device")

    monkeypatch.setattr("enginehouse_batches.store.shutil.copyfileobj", full)
    with pytest.raises(OSError, match="no space"):
        here.file(b"x" * 50)
    assert not list((tmp_path / "files").iterdir())


@pytest.mark.parametrize("seconds", ["\u00b2", "3599", "x", "-1"])
def test_a_file_expires_after_a_number_of_seconds(seconds: str) -> None:
    with pytest.raises(InvalidRequest, match="expires_after"):
        expiry_of({"expires_after[anchor]": "created_at", "expires_after[seconds]": seconds})


async def test_the_ended_batches_of_a_caller_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse_batches.store._MOST_ENDED", 3)
    here = House(tmp_path)
    other = here.batch("x", model="", sender=GatewayCaller("bob"))
    ids = []
    for number in range(6):
        ids.append(here.batch(str(number), model=""))
        await here.until(lambda: not here.store.open_batches())
    assert [each.batch.id for each in here.store.batches("ann", None, 9)[0]] == ids[:1:-1]
    assert here.status(other) == "failed"
    await here.close()
