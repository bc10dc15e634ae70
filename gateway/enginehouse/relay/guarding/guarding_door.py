"""The client's side of a request whose answer guards watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from enginehouse.domain.errors import RequestError, UpstreamError
from enginehouse.interfaces.guards import GuardAnswer, GuardRequest
from enginehouse.relay.answers.changing_door import ChangingDoor
from enginehouse.relay.door import Door
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.events.sse import read_events
from enginehouse.relay.guarding.guards import GuardedText, Guards
from enginehouse.relay.heads.headers import lines_without

_JSON: Final = b"content-type: application/json\r\n"
_REPLACED: Final = (b"content-type:", b"content-length:")
_DONE: Final = b"[DONE]"
_SPELLED: Final = ("logprobs", "token_ids")
"""The fields of a choice that have its text once more: of OpenAI, and of vLLM."""
_object = msgspec.json.Decoder(dict[str, Any]).decode


class GuardingDoor(ChangingDoor):
    """Passes on what guards leave of an answer.

    ``request`` and ``caller``: as the guards let them go on.
    """

    __slots__ = ("_guards", "_task", "_texts", "_then", "caller", "request")

    def __init__(self, door: Door, guards: Guards, memory: EngineMemory) -> None:
        super().__init__(door, memory)
        self._guards = guards
        self.request = GuardRequest("", "", {}, b"")
        self.caller: str | None = None
        self._then: Callable[[RequestError | None], None] | None = None
        self._texts: dict[int, list[GuardedText]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        super().start(status, lines, length)
        if self._streams:
            self._door.start(status, lines, None)

    def _whole(self, body: bytes) -> None:
        if self._status >= 300 and not self._dropped:
            self._deliver(self._status, self._lines, body)
        else:
            self._task = asyncio.ensure_future(self._decide(body))

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        if self._task is not None:
            self._then = then
        else:
            super().settle(then)

    def release(self) -> None:
        self._then = None
        if self._task is not None:
            self._task.cancel()
        super().release()

    async def _decide(self, body: bytes) -> None:
        refusal: RequestError | None = None
        try:
            if self._dropped:
                raise UpstreamError(f"The engine's answer was dropped before guards saw it: {self._dropped}")
            body = await self._guards.after(GuardAnswer(self.request, self.caller, self._status, body))
        except RequestError as error:
            lines = lines_without(self._lines, _REPLACED) + _JSON
            self._deliver(error.status, lines, msgspec.json.encode(error.envelope()))
            refusal = error.with_traceback(None)
        else:
            self._deliver(self._status, self._lines, body)
        then, self._then, self._task = self._then, None, None
        if then is None:
            return
        if refusal is None:
            super().settle(then)
        else:
            then(refusal)
        refusal = None  # its context may refer to this frame

    # --- streams

    def _changed(self, chunk: bytes) -> bytes:
        if not self._guards.on_text:
            return chunk
        pieces, begin = [], 0
        for event in read_events(chunk):
            text = chunk[begin : event.end]
            begin = event.end
            if event.data is None:
                pieces.append(text)
                continue
            try:
                pieces.extend(self._event(event.data, text))
            except RequestError as error:
                self._guards = Guards(())
                if pieces:
                    self._door.write(b"".join(pieces))
                raise error.with_traceback(None) from None
        return b"".join(pieces)

    def _event(self, data: bytes, text: bytes) -> Iterator[bytes]:
        if data == _DONE:
            yield from self._ends()
            yield text
            return
        try:
            event = _object(data)
        except (ValueError, RecursionError):
            yield text
            return
        choices = event.get("choices")
        changed = False
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                changed = self._choice(choice) or changed
        yield _written(event) if changed else text

    def _choice(self, choice: dict[str, Any]) -> bool:
        """Let guards see the text of a choice. Whether it has changed.

        Tokens spell the text as the engine wrote it, and ahead of what guards still hold, so they do not pass.
        """
        changed = bool([name for name in _SPELLED if choice.pop(name, None) is not None])
        number = choice.get("index") or 0
        delta = choice.get("delta")
        place, name = (delta, "content") if isinstance(delta, dict) else (choice, "text")
        text = place.get(name)
        last = choice.get("finish_reason") is not None
        if not isinstance(text, str):
            text = ""
        if not text and not (last and number in self._texts):
            return changed
        passed = self._through(number, text, last=last)
        if passed == text:
            return changed
        place[name] = passed
        return True

    def _through(self, number: int, text: str, *, last: bool) -> str:
        if number not in self._texts:
            self._texts[number] = [GuardedText(each) for each in self._guards.on_text]
        for each in self._texts[number]:
            text = each.passed(text, last=last)
        if last:
            del self._texts[number]
        return text

    def _ends(self) -> Iterator[bytes]:
        """Events with the texts that are still held, of a stream that ends without a reason."""
        chat = self.request.path.endswith("/chat/completions")
        for number in list(self._texts):
            if text := self._through(number, "", last=True):
                choice: dict[str, Any] = {"index": number, "finish_reason": None}
                choice |= {"delta": {"content": text}} if chat else {"text": text}
                yield _written({"choices": [choice]})


def _written(event: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(event)
