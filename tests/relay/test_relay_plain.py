from __future__ import annotations

from typing import Any


async def test_an_answer_comes_back_byte_for_byte(house: Any, engine: Any) -> None:
    served = await engine()
    gateway = await house(served)
    body = '{ "odd"  :[1,\n2] , "ünï": "\\u00e9 💡"}'.encode()
    served.says(body)
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.whole) == (200, body, True)
