"""Forms, as for a recording to transcribe: routed by their model, and passed on while they arrive."""

from __future__ import annotations

from functools import partial

import pytest

from enginehouse.http.admission import FORM_PATHS
from tests.support.launched_engine import Launch
from tests.support.openai_clients import async_openai_client
from tests.support.own_address import OWN_ADDRESS
from tests.support.scripted_engine import ScriptedEngine, StartEngine, chunk
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import within

AUDIO = "/v1/audio/transcriptions"
PIECE = b"x" * (1 << 18)
MANY = 128  # 32 MiB
BOUND = 24 << 20
"""What may be on its way while an engine reads nothing: mostly what the kernel holds for four ends of sockets."""
TYPE = b"content-type: multipart/form-data; boundary=b1"
MODEL_FIRST = b'--b1\r\ncontent-disposition: form-data; name="model"\r\n\r\n%s\r\n'
FILE = b'--b1\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
END = b"\r\n--b1--\r\n"


def beginning(model: bytes = b"m") -> bytes:
    return MODEL_FIRST % model + FILE


def head(gateway: ServedGateway, length: int | None, path: str = AUDIO) -> bytes:
    if length is None:
        chunked = gateway.post(b"", TYPE, b"transfer-encoding: chunked", path=path)
        return chunked.replace(b"content-length: 0\r\n", b"")
    return gateway.post(b"", TYPE, path=path).replace(b"content-length: 0", b"content-length: %d" % length)


def has_received(served: ScriptedEngine, size: int) -> bool:
    """Whether the engine has ``size`` bytes of a body."""
    return len(served.connections[0].received) == size


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
@pytest.mark.parametrize("path", FORM_PATHS)
@pytest.mark.parametrize("size", [100, 2 << 20])
async def test_openais_client_sends_a_file(path: str, size: int, house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    served.says(b'{"text": "hello", "created": 1, "data": []}')
    gateway = await house(served, routing={"aliases": {"whisper-1": "m"}})
    async with async_openai_client(f"http://{OWN_ADDRESS}:{gateway.port}") as client:
        if "images" in path:
            images = client.images
            if path.endswith("edits"):
                await images.edit(model="whisper-1", image=("a.png", b"\x89" * size, "image/png"), prompt="a hat")
            else:
                await images.create_variation(model="whisper-1", image=("a.png", b"\x89" * size, "image/png"))
        elif path.endswith("transcriptions"):
            answer = await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"\x89" * size))
            assert answer.text == "hello"
        else:
            await client.audio.translations.create(model="whisper-1", file=("a.wav", b"\x89" * size))
    call = await served.call()
    assert call.request_line == f"POST {path} HTTP/1.1".encode()
    assert b'name="model"\r\n\r\nm\r\n' in call.body
    assert b"\x89" * size in call.body
    assert call.header(b"content-length") == [b"%d" % len(call.body)]


async def test_a_large_form_passes_on_while_it_arrives(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    client.send(head(gateway, len(beginning()) + 8 * len(PIECE) + len(END)) + beginning())
    await gateway.until(lambda: served.connections and served.connections[0].call is not None)
    for number in range(8):
        client.send(PIECE)
        received = len(beginning()) + (number + 1) * len(PIECE)
        await gateway.until(partial(has_received, served, received))
        await gateway.until(lambda: gateway.held == len(beginning()))
    reply = await client.ask(END)
    assert reply.status == 200
    assert (await served.call()).body == beginning() + PIECE * 8 + END


async def test_a_form_of_unknown_length_goes_on_in_chunks(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, routing={"aliases": {"whisper-1": "m"}})
    client = await gateway.client()
    client.send(head(gateway, None) + chunk(beginning(b"whisper-1")) + chunk(PIECE))
    assert (await client.ask(chunk(END) + b"0\r\n\r\n")).status == 200
    call = await served.call()
    assert call.header(b"transfer-encoding") == [b"chunked"]
    assert b'name="model"\r\n\r\nm\r\n' in call.body
    assert call.body.endswith(b"0\r\n\r\n")


async def test_a_file_before_the_model_is_kept_until_that_is_here(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, routing={"aliases": {"whisper-1": "m"}})
    form = FILE + PIECE * 8 + b"\r\n" + MODEL_FIRST % b"whisper-1" + b"--b1--\r\n"
    client = await gateway.client()
    client.send(head(gateway, len(form)) + form[: -len(MODEL_FIRST) - 20])
    await gateway.until(lambda: gateway.held > 7 * len(PIECE))
    assert served.connections == []
    assert (await client.ask(form[-len(MODEL_FIRST) - 20 :])).status == 200
    assert (await served.call()).body == form.replace(b"whisper-1", b"m")


async def test_a_slow_engine_slows_its_client(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, server={"max_body": 64 << 20, "max_body_memory": 4 << 20})
    client = await gateway.client()
    client.send(head(gateway, len(beginning()) + MANY * len(PIECE) + len(END)) + beginning())
    await gateway.until(lambda: served.connections and served.connections[0].call is not None)
    served.connections[0].transport.pause_reading()
    for _ in range(MANY):
        client.send(PIECE)
    client.send(END)
    before = [-1]

    def stands_still() -> bool:
        before.append(client.unsent())
        return len(before) > 200 and before[-1] == before[-200]

    await gateway.until(stands_still)
    assert MANY * len(PIECE) - client.unsent() < BOUND
    assert gateway.held < 1 << 20
    served.connections[0].transport.resume_reading()
    assert (await client.reply()).status == 200
    assert len((await served.call()).body) == len(beginning()) + MANY * len(PIECE) + len(END)


async def test_a_small_form_is_sent_again_and_a_large_one_is_not(house: OpenGateway, engine: StartEngine) -> None:
    first, second = await engine(), await engine()
    gateway = await house(first, second, routing={"strategy": "priority_only"}, backend={"priority": 1})
    for size, status in ((10, 200), (2 << 20, 503)):
        first.says(b'{"error": {}}', 503)
        second.says()
        form = beginning() + b"x" * size + END
        reply = await gateway.ask(head(gateway, len(form)) + form)
        gateway.fleet.succeeded("a")
        assert reply.status == status
    assert [len(each.calls) for each in (first, second)] == [2, 1]


@pytest.mark.parametrize("size", [10, 2 << 20])
async def test_another_gateway_learns_whose_form_it_gets(house: OpenGateway, engine: StartEngine, size: int) -> None:
    served = await engine()
    keys = [{"name": "ann", "key": "secret-of-ann", "priority": 3}]
    backend = {"api_key": "secret-of-front", "pass_caller": True}
    gateway = await house(served, backend=backend, auth={"keys": keys})
    form = beginning() + b"x" * size + END
    asking = head(gateway, len(form)).replace(b"\r\n\r\n", b"\r\nauthorization: Bearer secret-of-ann\r\n\r\n")
    assert (await gateway.ask(asking + form)).status == 200
    call = await served.call()
    assert [call.header(b"x-enginehouse-caller"), call.header(b"x-enginehouse-priority")] == [[b"ann"], [b"3"]]


async def test_a_large_form_goes_to_another_engine_if_the_first_cannot_be_reached(
    house: OpenGateway, engine: StartEngine
) -> None:
    gone, there = await engine(there=False), await engine()
    gateway = await house(gone, there, routing={"strategy": "priority_only"})
    form = beginning() + PIECE * 8 + END
    assert (await gateway.ask(head(gateway, len(form)) + form)).status == 200
    assert (await there.call()).body == form


async def test_a_form_waits_for_its_engine_to_load(house: OpenGateway, engine: StartEngine, launched: Launch) -> None:
    served = await engine()
    gateway = await house(served)
    loading = launched(gateway, "a")
    form = beginning() + PIECE * 8 + END
    client = await gateway.client()
    client.send(head(gateway, len(form)) + form)
    await loading.starting()
    await gateway.until(lambda: gateway.held == len(form))
    await loading.gets_ready()
    assert (await client.reply()).status == 200
    assert (await served.call()).body == form
    await gateway.until(lambda: gateway.held == 0)


async def test_forms_that_wait_leave_half_of_the_memory_to_others(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    served = await engine()
    gateway = await house(served, server={"max_body_memory": 4 << 20})
    loading = launched(gateway, "a")
    form = beginning() + PIECE * 16 + END
    client = await gateway.client()
    client.send(head(gateway, len(form)) + form)
    await loading.starting()
    await gateway.until(lambda: gateway.held > 2 << 20)
    assert gateway.held < (2 << 20) + (1 << 19)
    await loading.gets_ready()
    assert (await client.reply()).status == 200
    assert (await served.call()).body == form


@pytest.mark.parametrize("pieces", [8, 7], ids=["whole", "half-sent"])
async def test_a_form_leaves_the_queue_with_its_client(
    pieces: int, house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    gateway = await house(await engine())
    loading = launched(gateway, "a")
    client = await gateway.client()
    client.send(head(gateway, len(beginning()) + 8 * len(PIECE)) + beginning() + PIECE * pieces)
    await loading.starting()
    await gateway.until(lambda: gateway.held == len(beginning()) + pieces * len(PIECE))
    assert gateway.relay.live
    client.close()
    await gateway.until(lambda: not gateway.relay.live and gateway.held == 0)


async def test_an_engine_may_answer_before_it_has_all(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    served.answers_early(served.answer(b'{"error": {"message": "no audio"}}', 415))
    gateway = await house(served)
    client = await gateway.client()
    client.send(head(gateway, 8 << 20) + beginning())
    assert (await client.reply()).status == 415
    await gateway.quiet()


async def test_an_engine_that_breaks_off_fails_the_request(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    client.send(head(gateway, 8 << 20) + beginning())
    await gateway.until(lambda: served.connections and served.connections[0].call is not None)
    served.connections[0].transport.abort()
    reply = await client.reply()
    assert (reply.status, reply.code) == (502, "upstream_error")


async def test_an_engine_that_reads_nothing_is_given_up(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, server={"max_body": 64 << 20})
    client = await gateway.client()
    client.send(head(gateway, 64 << 20) + beginning())
    await gateway.until(lambda: served.connections and served.connections[0].call is not None)
    gateway.pass_time(10_000)
    assert gateway.relay.live, "the client's turn has no limit here: its connection has one"
    served.connections[0].transport.pause_reading()
    for _ in range(MANY):
        client.send(PIECE)
    await gateway.until(lambda: gateway.attempts()[0].deadline < 1e9)
    gateway.pass_time(10_000)
    reply = await client.reply()
    assert (reply.status, reply.code) == (504, "upstream_timeout")
    assert "did not take the request" in reply.error["message"]


async def test_a_client_that_leaves_ends_the_upload(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    client.send(head(gateway, 8 << 20) + beginning() + PIECE)
    await gateway.until(lambda: served.connections and served.connections[0].call is not None)
    client.reset()
    await within(served.connections[0].closed.wait())
    await gateway.quiet()
    assert not gateway.relay.live


@pytest.mark.parametrize("length", [2 << 20, None])
async def test_a_second_model_is_refused_wherever_it_comes(
    length: int | None, house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    framed = chunk if length is None else bytes
    client.send(head(gateway, length) + framed(beginning()))
    await gateway.until(lambda: served.connections and served.connections[0].call is not None)
    reply = await client.ask(framed(PIECE + b"\r\n" + MODEL_FIRST % b"other"))
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert "several fields 'model'" in reply.error["message"]
    await gateway.until(lambda: served.connections[0].closed.is_set())
    assert served.calls == []


@pytest.mark.parametrize(
    ("form", "lines", "status", "code", "words"),
    [
        (FILE + END, TYPE, 400, "invalid_request", "no field 'model'"),
        (beginning(b"gone") + END, TYPE, 404, "model_not_found", "'gone'"),
        (beginning() + END, b"content-type: multipart/form-data", 400, "invalid_request", "boundary"),
        (beginning() + END, b"x: y", 400, "invalid_request", "not valid JSON"),
        (beginning() + b"x" * 4_000_000 + END, TYPE, 413, "invalid_request", "server.max_body"),
    ],
)
async def test_a_refusal_says_why(
    form: bytes, lines: bytes, status: int, code: str, words: str, house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, server={"max_body": 3 << 20})
    reply = await gateway.ask(gateway.post(form, lines, path=AUDIO))
    assert (reply.status, reply.code) == (status, code)
    assert words in reply.error["message"]
    assert served.calls == []


async def test_json_is_taken_as_well(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    assert (await gateway.ask(gateway.post({"prompt": "a hat"}, path="/v1/images/edits"))).status == 200


async def test_a_key_may_use_only_its_models(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    keys = [{"name": "a", "key": "k-a", "models": ["other"]}]
    gateway = await house(served, auth={"keys": keys})
    form = beginning() + PIECE * 8 + END
    for size in (len(form), None):
        client = await gateway.client()
        client.send(head(gateway, size).replace(TYPE, TYPE + b"\r\nauthorization: Bearer k-a"))
        reply = await client.ask(form if size else chunk(form) + b"0\r\n\r\n")
        assert (reply.status, reply.code) == (403, "forbidden")
    assert served.calls == []
