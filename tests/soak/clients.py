"""What clients ask during a soak, and what they check: an answer is whole and right, or visibly broken."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
import msgspec

from tests.support.seen_stream import SeenStream, read_stream
from tests.support.stream_reader import request

_LONGEST_S = 60.0
_FLOOD_BYTES = 5_000_000
_LENGTHS = (20, 60, 150, 300)
_NUMBERS = 40


class Question(NamedTuple):
    """One of the requests that clients repeat: its number and how many tokens it asks for."""

    number: int
    tokens: int


Expected = Mapping[Question, SeenStream]


class Tally:
    """``outcomes`` counts how requests ended. ``wrong`` tells what must not happen."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []

    def count(self, kind: str) -> None:
        self.outcomes[kind] += 1

    def tell(self, question: Question, fault: str) -> None:
        self.count("WRONG")
        self.wrong.append(f"{question}: {fault}")


async def expected_answers(http: httpx.AsyncClient, url: str) -> Expected:
    """Ask every question of an engine that never fails."""
    rng = random.Random(0)
    questions = [Question(number, rng.choice(_LENGTHS)) for number in range(_NUMBERS)]
    answers = {}
    for each in questions:
        path, body = request(each.number, each.tokens)
        answers[each] = read_stream((await http.post(url + path, json=body)).content)
    return answers


class Client:
    """Asks one question after the other until ``leave``."""

    def __init__(self, http: httpx.AsyncClient, url: str, expected: Expected, tally: Tally, rng: random.Random) -> None:
        self._http = http
        self._url = url
        self._expected = expected
        self._tally = tally
        self._rng = rng
        self._leaves = False

    def leave(self) -> None:
        self._leaves = True

    async def run(self) -> None:
        ways = (self.ask_stream, self.ask_stream, self.ask_whole, self.ask_and_leave, self.ask_flood)
        while not self._leaves:
            question = self._rng.choice([*self._expected])
            way = self._rng.choices(ways, (8, 8, 8, 2, 0.2))[0]
            try:
                await asyncio.wait_for(way(question), _LONGEST_S)
            except asyncio.TimeoutError:
                self._tally.tell(question, f"{way.__name__} still hung after {_LONGEST_S:g} s")

    async def ask_stream(self, question: Question) -> None:
        path, body = request(*question)
        wire = b""
        try:
            async with self._http.stream("POST", self._url + path, json=body) as answer:
                if answer.status_code != 200:
                    self._refused(question, answer.status_code, await answer.aread())
                    return
                async for piece in answer.aiter_raw():
                    wire += piece
        except httpx.HTTPError:
            self._tally.count("stream: connection broken")
        self._judge(question, wire)

    def _judge(self, question: Question, wire: bytes) -> None:
        whole = self._expected[question]
        try:
            seen = read_stream(wire)
        except Exception as error:
            self._tally.tell(question, f"unreadable stream ({error!r}): {wire[-300:]!r}")
            return
        if seen.ended and (seen.answer, seen.counts) == (whole.answer, whole.counts):
            self._tally.count("stream: whole")
        elif not seen.ended and whole.text.startswith(seen.text):
            self._tally.count("stream: visibly broken" if seen.error else "stream: cut off")
        else:
            self._tally.tell(question, f"got {seen!r} instead of {whole!r}")

    async def ask_whole(self, question: Question) -> None:
        path, body = request(*question)
        plain = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
        try:
            answer = await self._http.post(self._url + path, json=plain)
        except httpx.HTTPError:
            self._tally.count("plain: connection broken")
            return
        if answer.status_code != 200:
            self._refused(question, answer.status_code, answer.content)
            return
        choice = answer.json()["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        if text == self._expected[question].text:
            self._tally.count("whole")
        else:
            self._tally.tell(question, f"got {text!r}")

    async def ask_and_leave(self, question: Question) -> None:
        path, body = request(*question)
        try:
            async with self._http.stream("POST", self._url + path, json=body) as answer:
                async for _ in answer.aiter_raw():
                    if self._rng.random() < 0.2:
                        break
        except httpx.HTTPError:
            pass
        self._tally.count("left early")

    async def ask_flood(self, question: Question) -> None:
        body: dict[str, Any] = {"model": "flood", "stream": self._rng.random() < 0.7}
        body |= {"messages": [{"role": "user", "content": f"Tell {question.number}"}]}
        read = 0
        try:
            async with self._http.stream("POST", f"{self._url}/v1/chat/completions", json=body) as answer:
                async for piece in answer.aiter_raw():
                    read += len(piece)
                    if read > _FLOOD_BYTES:
                        break
        except httpx.HTTPError:
            pass
        self._tally.count("flood read")

    def _refused(self, question: Question, status: int, body: bytes) -> None:
        try:
            code = msgspec.json.decode(body)["error"]["code"]
        except (msgspec.DecodeError, KeyError, TypeError):
            self._tally.tell(question, f"status {status} with {body[:300]!r}")
            return
        self._tally.count(f"refused: {status} {code}")
