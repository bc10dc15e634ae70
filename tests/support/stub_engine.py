"""An engine that starts in a few hundredths of a second: ``python -S stub_engine.py --model NAME --port PORT``.

It speaks as much of OpenAI's protocol as a gateway needs. ``--ttft``, ``--tpot`` and ``--start-delay`` are as for the
simulated engine. With ``--stage FOLDER`` it waits to load while the file ``curtain`` there is locked; a number in the
file ``room`` says how many engines can be loaded at once, and one more finds no memory. It answers no request while the
file ``mute`` is locked, and no stream goes on after its first token while ``stall`` is.

It imports as little as it can: tests start hundreds of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DEFAULT_TOKENS = 16


def seconds(duration: str) -> float:
    number = duration.rstrip("ms")
    return float(number) * _UNITS.get(duration[len(number) :], 1.0)


def take_place(folder: str) -> bool:
    """Hold one of the places in memory until the process ends; true as well where there is no limit."""
    try:
        with open(f"{folder}/room") as room:
            places = int(room.read())
    except FileNotFoundError:
        return True
    for number in range(places):
        place = os.open(f"{folder}/place-{number}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(place)
        else:
            return True
    return False


def wait_for(path: str) -> None:
    """Wait while the file is locked."""
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def load(folder: str) -> None:
    wait_for(f"{folder}/curtain")
    if not take_place(folder):
        sys.exit("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory")


class Engine:
    """Answers every request, a thread for each connection."""

    def __init__(self, flags: dict[str, str]) -> None:
        self._model = flags["--model"]
        self._ttft = seconds(flags.get("--ttft", "0"))
        self._tpot = seconds(flags.get("--tpot", "0"))
        self._stage = flags.get("--stage", "")

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            while request := stream.readline():
                method, path, _ = request.decode().split(" ", 2)
                length = 0
                while (line := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = line.decode("latin-1").partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                body = stream.read(length)
                for piece in self._answer(method, path, body):
                    if method == "HEAD":
                        piece = piece[: piece.index(b"\r\n\r\n") + 4]
                    stream.write(piece)
                    stream.flush()

    def _answer(self, method: str, path: str, body: bytes) -> Iterator[bytes]:
        if method != "POST":
            listed = {"object": "list", "data": [{"id": self._model, "max_model_len": 8192}]}
            yield _whole(listed if path == "/v1/models" else {})
            return
        asked = json.loads(body)
        tokens = asked.get("max_tokens", _DEFAULT_TOKENS)
        time.sleep(self._ttft)
        if self._stage:
            wait_for(f"{self._stage}/mute")
        if not asked.get("stream"):
            time.sleep(self._tpot * tokens)
            yield _whole({"model": self._model, "choices": [{"message": {"content": "token " * tokens}}]})
            return
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        first = _answered(asked)
        for number in range(first, first + tokens):
            time.sleep(self._tpot)
            yield _event(json.dumps({"model": self._model, "choices": [{"delta": {"content": f"token {number} "}}]}))
            if self._stage:
                wait_for(f"{self._stage}/stall")
        yield _event("[DONE]") + b"0\r\n\r\n"


def _answered(asked: dict[str, Any]) -> int:
    """How many tokens of the answer the request has already, if it wants that answer to go on."""
    words = asked["messages"][-1]["content"].split() if asked.get("continue_final_message") else []
    return len(words) // 2


def _whole(answer: object) -> bytes:
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _event(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


def main(flags: dict[str, str]) -> None:
    if "--stage" in flags:
        load(flags["--stage"])
    time.sleep(seconds(flags.get("--start-delay", "0")))
    engine = Engine(flags)
    with socket.create_server(("127.0.0.1", int(flags["--port"])), backlog=128) as server:
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=engine.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(dict(zip(arguments[::2], arguments[1::2], strict=True)))
