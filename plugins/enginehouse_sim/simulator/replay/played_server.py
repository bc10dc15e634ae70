"""An engine of a replay as the gateway reaches it, and its answers on their way there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from enginehouse.runtime import BackgroundTasks
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.model.timing import TOKEN
from enginehouse_sim.simulator.replay.answer import AnswerRecord
from enginehouse_sim.simulator.replay.faults import FaultKind, PlannedFault
from enginehouse_sim.simulator.replay.played_connection import (
    LAST_CHUNK,
    STREAM_HEAD,
    Asked,
    HttpRequest,
    PlayedConnection,
    PlayedModels,
    read_body,
)
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.replay.replay_world import PlayedClient, ReplayWorld
from enginehouse_sim.simulator.server.load_figures import load_figures
from enginehouse_sim.simulator.steps.profile import NOTHING_OUTSIDE, OutsideCosts
from enginehouse_sim.virtual import VirtualBackend, VirtualProcess

_EVENT = (
    b'data: {"id":"%s","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"%s"%s,'
    b'"finish_reason":%s}]%s}\n\n'
)
_WHOLE = (
    b'{"id":"%s","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"%s",'
    b'"finish_reason":"length"}]%s%s}'
)
_USAGE = b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}'
_TOKENS = b"%d," % TOKEN
_DONE = b"data: [DONE]\n\n"


class PlayedAnswer(AnswerRecord):
    """Sends its tokens: as a stream, or as a whole.

    Only the first and the last tokens of a stream are sent as they are made. Those between are sent when somebody would
    notice: from time to time, before the gateway stops reading, and before the engine breaks.

    - ``answers`` has this one until it ends, or the gateway leaves.
    - ``client``: ``None`` if the gateway asks on its own behalf.
    - ``id``: of the request at the engine.
    - ``base``: the number of tokens that other engines had made when this one began.
    - ``more``: fields of a whole answer.
    - ``on_end`` is called when the engine has made the last token.
    """

    def __init__(
        self,
        connection: PlayedConnection,
        engine: PlayedEngine,
        asked: Asked,
        arrival: float,
        input_length: int,
        client: PlayedClient | None,
        id: str,
        answers: dict[PlayedAnswer, None],
        base: int,
    ) -> None:
        super().__init__(arrival, input_length, is_ahead=client is None)
        self.engine = engine
        self.client = client
        self.id = id
        self.more = b""
        self.base = base
        self.on_end: Callable[[], None] | None = None
        self._sent = 0
        self._has_ended = False
        self._connection = connection
        self._answers = answers
        self._go_through(connection, asked, answers)

    def _go_through(self, connection: PlayedConnection, asked: Asked, answers: dict[PlayedAnswer, None]) -> None:
        self._connection, self._asked, self._answers = connection, asked, answers
        self._has_begun = self.is_unread = False
        connection.reader = self
        answers[self] = None

    def follow(self, connection: PlayedConnection, asked: Asked, answers: dict[PlayedAnswer, None]) -> None:
        """Send the rest on another connection, after the tokens that the gateway has."""
        self._connection.reader = None
        self._answers.pop(self, None)
        self._sent = len(asked.prompt) - 1 - self.base
        self._go_through(connection, asked, answers)
        self.catch_up()

    # --- from the engine

    def has_first_token(self) -> None:
        if self.client is not None:
            self.client.begins_part(self.first_token, self.cached_tokens)
        self._send()

    def has_last_token(self) -> None:
        self._has_ended = True
        self._answers.pop(self, None)
        if self.on_end is not None:
            self.on_end()
        if not self._connection.is_paused:
            self._finish()

    def catch_up(self) -> None:
        self.engine.catch_up()
        self._send()

    def break_off(self) -> None:
        """Send the tokens so far: the engine has ended, and the connection breaks."""
        self._send()
        if self.client is not None:
            self.client.is_broken = True

    # --- from the connection

    def paused(self) -> None:
        self.catch_up()
        self.is_unread = True

    def resumed(self) -> None:
        self.is_unread = False
        if self._has_ended:
            self._finish()

    def left(self) -> None:
        if self._has_ended:
            return
        self._answers.pop(self, None)
        if self.engine.has(self.id):
            self.engine.abort(self.id)

    # --- inside

    def _send(self) -> None:
        if self._asked.stream and not self._connection.is_paused and not self._has_ended:
            count = self._take()
            if count:
                self._connection.send(self._head() + _chunk(self._event(count, b"null", b"")))

    def _finish(self) -> None:
        count = self._take()
        usage = _USAGE % (self.input_length, self.output_tokens, self.cached_tokens)
        self._connection.reader = None
        if self._asked.stream:
            events = self._event(count, b'"length"', usage) + _DONE
            self._connection.send(self._head() + _chunk(events) + LAST_CHUNK)
        else:
            self._connection.answer(200, _WHOLE % (self.id.encode(), b"x" * count, usage, self.more))

    def _take(self) -> int:
        count, self._sent = self.output_tokens - self._sent, self.output_tokens
        if self.client is not None and count:
            self.client.received(count, self.last_token)
        return count

    def _head(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return STREAM_HEAD

    def _event(self, count: int, finish: bytes, usage: bytes) -> bytes:
        ids = b',"token_ids":[%s]' % (_TOKENS * count)[:-1] if self._asked.return_token_ids else b""
        return _EVENT % (self.id.encode(), b"x" * count, ids, finish, usage)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_TOO_LONG = (
    b'{"error":{"message":"The request is longer than the context","type":"BadRequestError","code":"invalid_request"}}'
)


class PlayedServer:
    """Serves HTTP for one engine, and takes ``outside`` for it. ``answers``: those that clients wait for, in order.

    ``is_down``: the engine does not run. ``refuses``: it accepts no connection.
    """

    def __init__(
        self,
        backend: VirtualBackend,
        models: PlayedModels,
        engine: PlayedEngine,
        world: ReplayWorld,
        outside: OutsideCosts = NOTHING_OUTSIDE,
    ) -> None:
        self.engine = engine
        self.backend = backend
        self.is_down = backend.spec is not None
        self.refuses = False
        self.answers: dict[PlayedAnswer, None] = {}
        self._models = models
        self._world = world
        self._outside = outside
        self._connections: dict[PlayedConnection, None] = {}
        self._tasks = BackgroundTasks()
        self._count = 0
        self._process: VirtualProcess | None = None

    def connect(self, protocol: asyncio.Protocol) -> None:
        """Accept a connection. Raises ``ConnectionRefusedError``."""
        if self.is_down or self.refuses:
            raise ConnectionRefusedError("the engine accepts no connection")
        connection = PlayedConnection(protocol, self._serve, self._lost)
        self._connections[connection] = None
        protocol.connection_made(connection)

    # --- the engine's process

    def start(self, process: VirtualProcess) -> None:
        self._process = process
        self.is_down = False

    def crash(self) -> None:
        """End as an engine that is killed."""
        self.kill()
        process, self._process = self._process, None
        if process is not None:
            process.exit(-9)

    def suffer(self, fault: PlannedFault, begins: bool) -> None:
        """Begin a fault, or end it."""
        if fault.kind is FaultKind.KILL:
            if begins:
                self.crash()
            elif self.backend.spec is None:  # the gateway starts one that it has launched itself
                self.is_down = False
        elif fault.kind is FaultKind.SLOW:
            self.engine.slow_down(fault.factor if begins else 1.0)
        elif fault.kind is FaultKind.REFUSE:
            self.refuses = begins
            for connection in [each for each in self._connections if begins and each.reader is None]:
                self._connections.pop(connection, None)  # it is idle
                connection.break_off()
        elif begins:
            self.catch_up()  # what has been made is sent
            self.engine.stall()
        else:
            self.engine.resume(asyncio.get_running_loop().time())
            self._world.begin_step(self.engine)

    def kill(self) -> None:
        """End the engine: break what it serves off."""
        self.is_down = True
        self.engine.catch_up()
        answers, connections = list(self.answers), list(self._connections)
        self.answers.clear()
        self._connections.clear()
        self._tasks.cancel()
        for answer in answers:
            answer.break_off()
        self.engine.kill()
        for connection in connections:
            connection.break_off()

    def catch_up(self) -> None:
        """Send all tokens that have been made."""
        for answer in list(self.answers):
            answer.catch_up()

    # --- inside

    def _lost(self, connection: PlayedConnection) -> None:
        self._connections.pop(connection, None)

    def _serve(self, connection: PlayedConnection, request: HttpRequest) -> None:
        if self.engine.is_stalled and not request.id:
            return  # it says nothing
        if (page := self._models.page(request.path)) is not None:
            connection.answer(200, page)
        elif request.path == "/instance_status":
            connection.answer(200, msgspec.json.encode(self._figures()))
        elif request.path != "/v1/completions":
            connection.answer(404, b"{}")
        else:
            asked = read_body(request.body)
            is_ahead = not request.id
            if is_ahead:  # also where a prefill engine gets the body of the decode engine
                asked = msgspec.structs.replace(asked, max_tokens=1, stream=False)
            self._complete(connection, asked, is_ahead=is_ahead)

    def _figures(self) -> dict[str, Any]:
        engine, constants = self.engine, self.engine.state.constants
        return {
            **load_figures(engine.state),
            **engine.slots.figures(),
            "waiting_requests": (),
            "instance_id": self.backend.name,
            "timestamp_ms": 0,
            "block_size": constants.block_size,
            "max_num_batched_tokens": constants.max_num_batched_tokens,
        }

    def _complete(self, connection: PlayedConnection, asked: Asked, *, is_ahead: bool) -> None:
        client = self._world.clients.get(asked.prompt[0])
        if client is None:
            connection.answer(404, b"{}")  # its client has left
        elif asked.follows:
            self._follow(connection, asked)
        else:
            self._begin(connection, asked, client, is_ahead=is_ahead)

    def _begin(self, connection: PlayedConnection, asked: Asked, client: PlayedClient, *, is_ahead: bool) -> None:
        engine, now, made = self.engine, asyncio.get_running_loop().time(), len(asked.prompt) - 1
        self._count += 1
        id = f"{client.number}/{self._count}" if made or is_ahead else str(client.number)
        wanted = engine.wanted(client.trace, client.number, now, id=id, made=made, max_tokens=asked.max_tokens)
        if wanted is None:
            connection.answer(400, _TOO_LONG)
            return
        if not is_ahead:
            self._world.routed(client.number, self.backend.name)
        told, length = None if is_ahead else client, client.trace.input_length
        played = PlayedAnswer(connection, engine, asked, now, length, told, id, self.answers, base=made)
        self._start(played, wanted, asked, client, now)

    def _start(
        self, played: PlayedAnswer, wanted: RequestState, asked: Asked, client: PlayedClient, now: float
    ) -> None:
        params = asked.kv_transfer_params
        room = None if params is None else params.get("room", str(client.number))
        if room is not None and played.is_ahead:
            played.on_end = lambda: self._read(played, room, client)
            played.more = b',"kv_transfer_params":{"room":"%s"}' % room.encode()
        elif room is not None:
            self._tasks.start(self._take_over(played, wanted, room, client))
            return
        delay = self._outside.seconds(wanted.num_prompt_tokens)
        if delay:
            self._tasks.start(self._enter_later(played, wanted, delay))
            return
        self.engine.attach(wanted, played, now)
        self._world.begin_step(self.engine)

    async def _enter_later(self, played: PlayedAnswer, wanted: RequestState, delay: float) -> None:
        await asyncio.sleep(delay)
        if played in self.answers:
            now = asyncio.get_running_loop().time()
            wanted.arrival_time = now
            self.engine.attach(wanted, played, now)
            self._world.begin_step(self.engine)

    def _read(self, played: PlayedAnswer, room: str, client: PlayedClient) -> None:
        client.seen.cached_tokens = played.cached_tokens
        self._world.prompt_is_read(room).set()

    async def _take_over(self, played: PlayedAnswer, wanted: RequestState, room: str, client: PlayedClient) -> None:
        """Answer a prompt that another engine has read."""
        await self._world.prompt_is_read(room).wait()
        tokens = len(wanted.prompt_token_ids)
        await asyncio.sleep(self._world.transfer.seconds(tokens))
        if played not in self.answers:
            return
        played.is_read, played.cached_tokens = True, client.seen.cached_tokens
        self.engine.attach(wanted, played, asyncio.get_running_loop().time(), copied=tokens)
        self._world.begin_step(self.engine)

    def _follow(self, connection: PlayedConnection, asked: Asked) -> None:
        """Send the rest of a request that another engine has moved here."""
        answer = self.engine.answer(asked.follows)
        if isinstance(answer, PlayedAnswer):
            answer.follow(connection, asked, self.answers)
        else:
            connection.answer(404, b"{}")
