"""An engine for ``swaps.py``, which is ready after a given time.

``python -I -S swap_engine.py PORT READY_AFTER EVENTS [quiet]`` imports nothing that takes long. It appends a line to
the file ``EVENTS`` when it begins, when it is ready, when a request comes and when it is asked to stop, with the time
of the machine's monotonic clock, which all processes share. Unless it is ``quiet``, it also prints that it is ready, as
real engines do.
"""

import _thread
import os
import signal
import socket
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
MODELS = b'{"object": "list", "data": []}'
PORT, READY_AFTER, EVENTS = int(sys.argv[1]), float(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND)


def note(event: str) -> None:
    """Record an event."""
    os.write(EVENTS, b"%s %d\n" % (event.encode(), time.monotonic_ns()))


def answer(connection: socket.socket) -> None:
    """Answer the requests of one connection, until one side closes it."""
    while request := connection.recv(65536):
        if request.startswith(b"POST"):
            note("request")
            connection.sendall(HEAD % (b"text/event-stream", len(CHUNK)) + CHUNK)
        else:
            connection.sendall(HEAD % (b"application/json", len(MODELS)) + MODELS)
        if b"\r\nconnection: close\r\n" in request:
            break
    connection.close()


def stop(*_: object) -> None:
    """End at once, as an engine does that has nothing to free."""
    note("stop")
    os._exit(0)


note("begin")
signal.signal(signal.SIGTERM, stop)
time.sleep(READY_AFTER)
server = socket.create_server(("127.0.0.1", PORT), backlog=64)
note("ready")
if "quiet" not in sys.argv:
    sys.stderr.write(f"listening on port {PORT}\n")
    sys.stderr.flush()
while True:
    _thread.start_new_thread(answer, (server.accept()[0],))
