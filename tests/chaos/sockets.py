"""WebSockets through the gateway: scripted clients and engines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import Literal, NamedTuple

from websockets import ClientProtocol, Frame, Opcode, Request, Response, ServerProtocol
from websockets.protocol import Event, Protocol
from websockets.uri import parse_uri

from tests.chaos.endpoint import Address, LinkQuality
from tests.chaos.network import Network
from tests.chaos.streams import Stream
from tests.chaos.virtual_time import clock

Opens = Literal["accepts", "refuses", "answers plainly", "is silent", "resets", "accepts wrongly"]
Ends = Literal["closes", "resets", "cuts a message", "talks nonsense", "waits", "closes without a word"]
_OPENS: tuple[Opens, ...] = ("refuses", "answers plainly", "is silent", "resets", "accepts wrongly")
_ENDS: tuple[Ends, ...] = ("closes", "resets", "cuts a message", "talks nonsense", "waits", "closes without a word")
_PATIENCE_S = 60.0
_SIZES = (0, 5, 200, 70_000)


class SocketPlan(NamedTuple):
    """One WebSocket of a client: what it sends, and its end if the engine has not ended it ``lasts`` seconds later."""

    at: float
    number: int
    model: str
    key: str
    sizes: tuple[int, ...]
    pause: float
    lasts: float
    ends: Ends

    @property
    def nonce(self) -> bytes:
        return b"nonce-%d-" % self.number


def make_plans(rng: random.Random, models: Sequence[str], keys: Sequence[str], length: float) -> Iterator[SocketPlan]:
    """A few WebSockets, in some of the runs."""
    for number in range(rng.choice((0, 0, 1, 3))):
        yield SocketPlan(
            at=rng.uniform(0.1, length),
            number=900 + number,
            model=rng.choice(models),
            key=rng.choice(keys) if keys else "",
            sizes=tuple(rng.choice(_SIZES) for _ in range(rng.randint(0, 5))),
            pause=rng.choice((0.0, 0.1, 1.0)) * rng.random(),
            lasts=rng.choice((0.0, 0.5, 10.0)) * rng.random(),
            ends=rng.choice(("closes", "closes", "resets", "cuts a message", "talks nonsense")),
        )


class Peer:
    """One side of a WebSocket. ``got`` are the messages that came, ``code`` is that of the close frame that came."""

    def __init__(self, stream: Stream, protocol: Protocol) -> None:
        self.got: list[bytes] = []
        self.sent: list[bytes] = []
        self.code = 0
        self._stream = stream
        self._protocol = protocol
        self._parts: list[bytes] = []

    async def talk(self, sizes: Sequence[int], pause: float, mark: bytes) -> None:
        """Send messages that begin with ``mark`` and their number."""
        for number, size in enumerate(sizes):
            await asyncio.sleep(pause)
            if self._stream.transport.is_closing() or self._protocol.close_expected():
                return
            message = b"%s %d %s" % (mark, number, b"m" * size)
            self._protocol.send_binary(message)
            self.sent.append(message)
            await self._flush()

    async def end(self, how: Ends, code: int) -> None:
        transport = self._stream.transport
        if transport.is_closing() or how == "waits":
            return
        if how == "closes" and not self._protocol.close_expected():
            self._protocol.send_close(code, "the end")
            await self._flush()
        elif how == "resets":
            transport.reset()
        elif how == "cuts a message":
            transport.write(b"\x82\x7e\x40\x00cut" if self._is_engine else b"\x82\xfe\x40\x00maskcut")
            transport.close()
        elif how == "talks nonsense":
            transport.write(b"\xff" * 40)
        else:
            transport.close()

    @property
    def _is_engine(self) -> bool:
        return isinstance(self._protocol, ServerProtocol)

    async def read(self) -> None:
        """Receive until the end of the connection."""
        while data := await self._stream.read():
            self.take(data)
            await self._flush()
            if self._protocol.close_expected() and self._is_engine:
                self._stream.transport.close()

    def take(self, data: bytes) -> list[Event]:
        self._protocol.receive_data(data)
        events = self._protocol.events_received()
        for event in events:
            if not isinstance(event, Frame):
                continue
            if event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._parts.append(bytes(event.data))
                if event.fin:
                    self.got.append(b"".join(self._parts))
                    self._parts.clear()
            elif event.opcode is Opcode.CLOSE:
                self.code = int.from_bytes(bytes(event.data[:2]), "big") or 1005
        return events

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data and not self._stream.transport.is_closing():
                await self._stream.write(data)


class SocketServing:
    """One handshake as an engine got it. ``peer``: its side, if it accepted. ``ends_with``: its own close code."""

    def __init__(self, id: str, nonce: bytes, opens: Opens, ends: Ends, ends_with: int) -> None:
        self.id = id
        self.nonce = nonce
        self.opens = opens
        self.ends = ends
        self.ends_with = ends_with
        self.status = 0
        self.peer: Peer | None = None


async def serve_socket(stream: Stream, head: bytes, serving: SocketServing, rng: random.Random) -> None:
    """What an engine does with a handshake; ``head`` is all of it."""
    if serving.opens == "is silent":
        await stream.wait_ended()
        return
    if serving.opens == "resets":
        stream.transport.reset()
        return
    if serving.opens in ("refuses", "answers plainly"):
        serving.status = 200 if serving.opens == "answers plainly" else rng.choice((400, 403, 404, 429, 500, 503))
        body = b'{"error": {"message": "no%s"}}' % (b"z" * rng.choice((0, 0, 100_000, 2_000_000)))
        await stream.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (serving.status, len(body), body))
        return
    protocol = ServerProtocol()
    protocol.receive_data(head)
    [request] = protocol.events_received()
    assert isinstance(request, Request)
    response: Response = protocol.accept(request)
    if serving.opens == "accepts wrongly":
        response.headers["Sec-WebSocket-Accept"] = "wrong"
    protocol.send_response(response)
    await asyncio.sleep(rng.choice((0.0, 0.0, 0.3)))
    await stream.write(b"".join(protocol.data_to_send()))
    serving.status = response.status_code
    if serving.opens == "accepts wrongly" or response.status_code != 101:
        return
    serving.peer = peer = Peer(stream, protocol)
    reading = asyncio.ensure_future(peer.read())
    try:
        sizes = [rng.choice(_SIZES) for _ in range(rng.randint(0, 6))]
        await peer.talk(sizes, rng.choice((0.0, 0.05, 0.5)), serving.id.encode())
        await peer.end(serving.ends, serving.ends_with)
        await asyncio.wait_for(reading, _PATIENCE_S)
    except asyncio.TimeoutError:
        stream.transport.reset()
    finally:
        reading.cancel()


def make_serving(rng: random.Random, id: str, nonce: bytes, fault_rate: float) -> SocketServing:
    """How an engine treats a handshake; without faults it accepts, and closes or waits for its client to close."""
    faulty = rng.random() < fault_rate
    opens: Opens = rng.choice(_OPENS) if faulty and rng.random() < 0.5 else "accepts"
    ends: Ends = rng.choice(_ENDS if faulty else ("closes", "waits"))
    return SocketServing(id, nonce, opens, ends, rng.choice((1000, 3000 + rng.randrange(900))))


class SocketClient:
    """Carries out a plan. ``left``: it ended the WebSocket in another way than with a close frame."""

    def __init__(self, plan: SocketPlan, network: Network, address: Address, rng: random.Random) -> None:
        self.plan = plan
        self.status = 0
        self.answer = b""
        self.refused = self.left = False
        self.asked = False
        self.violations: list[str] = []
        self._network = network
        self._address = address
        self._rng = rng
        self._stream = Stream()
        self._protocol = ClientProtocol(
            parse_uri(f"ws://127.0.0.1:8080/upstream/{plan.model}/ws?{plan.nonce.decode()}"), max_size=None
        )
        self.peer = Peer(self._stream, self._protocol)

    async def run(self) -> None:
        await asyncio.sleep(max(0.0, self.plan.at - clock.now))
        try:
            endpoint, _ = await self._network.connect(
                lambda: self._stream, self._address, "client", LinkQuality(self._rng)
            )
        except ConnectionRefusedError:
            self.refused = True
            return
        try:
            await asyncio.wait_for(self._talk(), _PATIENCE_S)
        except asyncio.TimeoutError:
            if not self.left:
                self.violations.append("waited for the end of its WebSocket in vain")
        finally:
            endpoint.abort()

    async def _talk(self) -> None:
        plan = self.plan
        request = self._protocol.connect()
        if plan.key:
            request.headers["Authorization"] = f"Bearer {plan.key}"
        self._protocol.send_request(request)
        await self._stream.write(b"".join(self._protocol.data_to_send()))
        self.asked = True
        response = await self._response()
        if response is None:
            return
        self.status, self.answer = response.status_code, bytes(response.body or b"")
        if self.status != 101:
            return
        work: list[Coroutine[None, None, None]] = [self.peer.read(), self._speak()]
        reading, speaking = (asyncio.ensure_future(each) for each in work)
        await reading
        speaking.cancel()

    async def _response(self) -> Response | None:
        while data := await self._stream.read():
            for event in self.peer.take(data):
                if isinstance(event, Response):
                    return event
        self._protocol.receive_eof()
        return next((each for each in self._protocol.events_received() if isinstance(each, Response)), None)

    async def _speak(self) -> None:
        plan = self.plan
        await self.peer.talk(plan.sizes, plan.pause, plan.nonce)
        await asyncio.sleep(plan.lasts)
        self.left = plan.ends != "closes"
        await self.peer.end(plan.ends, 1000)
