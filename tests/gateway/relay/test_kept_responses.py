"""Kept responses, as clients use them."""

from __future__ import annotations

import msgspec

from tests.support.keys import bearer, key
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import MODEL, OpenGateway

KEPT = {"parameters": {"responses": {"stored": "1MiB"}}}
CHATS: dict[str, dict[str, list[str]]] = {MODEL: {"endpoints": []}}
ANSWER = b'{"choices":[{"message":{"content":"ho"},"finish_reason":"stop"}]}'


async def test_a_response_belongs_to_the_key_that_asked_for_it(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("ann"), key("ben")]}, plugins=KEPT, models=CHATS)
    for _ in range(2):
        served.says(ANSWER)

    async def asks(name: str, **fields: object) -> tuple[int, bytes]:
        reply = await gateway.ask(gateway.post({"input": "hi", **fields}, bearer(name), path="/v1/responses"))
        return reply.status, reply.body

    _, first = await asks("ann")
    id: str = msgspec.json.decode(first)["id"]
    page = f"/v1/responses/{id}"
    assert (await gateway.ask(gateway.get(page, bearer("ben")))).status == 404
    assert (await gateway.ask(gateway.get(page, bearer("ben"), method="DELETE"))).status == 404
    assert (await asks("ben", previous_response_id=id))[0] == 400
    assert (await gateway.ask(gateway.get(page, bearer("ann")))).body == first
    assert (await asks("ann", previous_response_id=id))[0] == 200
    said = msgspec.json.decode(served.calls[-1].body)["messages"]
    assert [(turn["role"], turn["content"]) for turn in said] == [("user", "hi"), ("assistant", "ho"), ("user", "hi")]
    assert (await gateway.ask(gateway.get(page, bearer("ann"), method="DELETE"))).status == 200
    assert (await gateway.ask(gateway.get(page, bearer("ann")))).status == 404


async def test_a_client_that_leaves_while_its_conversation_is_read_harms_nobody(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, plugins=KEPT, models=CHATS)
    for _ in range(20):
        client = await gateway.client()
        client.send(gateway.post({"input": "hi", "previous_response_id": "resp_x"}, path="/v1/responses"))
        client.reset()
    served.says(ANSWER)
    assert (await gateway.ask(gateway.post({"input": "hi"}, path="/v1/responses"))).status == 200


async def test_the_items_that_a_response_was_asked_with(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, plugins=KEPT, models=CHATS)
    served.says(ANSWER)
    asked = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"role": "user", "content": "so"},
    ]
    first = msgspec.json.decode((await gateway.ask(gateway.post({"input": asked}, path="/v1/responses"))).body)
    page = f"/v1/responses/{first['id']}/input_items"
    listed = msgspec.json.decode((await gateway.ask(gateway.get(f"{page}?order=asc&limit=2"))).body)
    assert [item["content"][0]["text"] for item in listed["data"]] == ["hi", "ho"]
    assert (listed["has_more"], listed["last_id"]) == (True, listed["data"][1]["id"])
    rest = msgspec.json.decode((await gateway.ask(gateway.get(f"{page}?order=asc&after={listed['last_id']}"))).body)
    assert [item["content"][0]["text"] for item in rest["data"]] == ["so"]
    latest = msgspec.json.decode((await gateway.ask(gateway.get(page))).body)
    assert [item["content"][0]["text"] for item in latest["data"]] == ["so", "ho", "hi"]
    for query in ("limit=0", "limit=x", "order=up", "after=none"):
        assert (await gateway.ask(gateway.get(f"{page}?{query}"))).status == 400
    assert (await gateway.ask(gateway.get("/v1/responses/none/input_items"))).status == 404


async def test_only_what_runs_in_the_background_can_be_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, plugins=KEPT, models=CHATS)
    served.says(ANSWER)
    first = msgspec.json.decode((await gateway.ask(gateway.post({"input": "hi"}, path="/v1/responses"))).body)
    ended = await gateway.ask(gateway.post(b"", path=f"/v1/responses/{first['id']}/cancel"))
    assert (ended.status, "has ended" in ended.error["message"]) == (400, True)
    assert (await gateway.ask(gateway.post(b"", path="/v1/responses/none/cancel"))).status == 404
    again = await gateway.ask(gateway.get(f"/v1/responses/{first['id']}?stream=true"))
    assert again.status == 400
