"""Measures the memory of live streams with long prompts.

``python benchmarks/prompt_memory.py``: starts a gateway in front of two engines that begin streams and do not end them,
opens streams with prompts of their own, and compares what the gateway's process has grown by with the bodies.
"""

from __future__ import annotations

import asyncio
import resource

import click
import msgspec
import psutil

from enginehouse_kit.gateway import RunningGateway

_MODELS = b'{"object":"list","data":[{"id":"m"}]}'
_BEGINNING = (
    b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},'
    b'"finish_reason":null}]}\n\n'
)


async def _engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request after the other; a stream begins and stays open."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            left = length
            while left:
                left -= len(await reader.read(min(left, 65536)))
            if not length:
                answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                writer.write(answer % (len(_MODELS), _MODELS))
                continue
            stream = (
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n"
            )
            writer.write(stream % (len(_BEGINNING), _BEGINNING))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _open(port: int, body: bytes) -> asyncio.StreamWriter:
    """Begin a stream, and wait for its first event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
    await reader.readuntil(b'"Hi"')
    return writer


def _body(number: int, size: int, shared: float) -> bytes:
    alike = int(size * shared)
    content = ("All aboard. " * size)[:alike] + (f"{number:07d} " * size)[: size - alike]
    message = {"role": "user", "content": content}
    return msgspec.json.encode({"model": "m", "stream": True, "max_tokens": 100, "messages": [message]})


async def _measure(streams: int, size: int, shared: float) -> tuple[int, int]:
    """The bytes of all bodies, and what the gateway has grown by."""
    servers = [await asyncio.start_server(_engine, "127.0.0.1", 0, backlog=1024) for _ in range(2)]
    backends = "".join(
        f'[backends.{name}]\nurl = "http://127.0.0.1:{server.sockets[0].getsockname()[1]}"\ndriver = "vllm"\n'
        for name, server in zip("ab", servers, strict=True)
    )
    running = await asyncio.to_thread(RunningGateway, backends)
    await asyncio.to_thread(running.__enter__)
    try:
        await asyncio.to_thread(running.until_health, a="healthy", b="healthy")
        port, process = int(running.url.rpartition(":")[2]), psutil.Process(running.pid)
        opened = [await _open(port, _body(-number - 2, size, 0)) for number in range(8)]
        before, bodies = process.memory_info().rss, 0
        for number in range(streams):
            body = _body(number, size, shared)
            bodies += len(body)
            opened.append(await _open(port, body))
        await asyncio.sleep(1)
        return bodies, process.memory_info().rss - before
    finally:
        for each in opened:
            each.close()
        await asyncio.to_thread(running.__exit__, None, None, None)
        for server in servers:
            server.close()


@click.command()
@click.option("--streams", default=2000, show_default=True)
@click.option("--size", default=200_000, show_default=True, help="Characters of each prompt.")
@click.option("--shared", default=0.0, show_default=True, help="Share of each prompt that is the same in all.")
def main(streams: int, size: int, shared: float) -> None:
    """Print the bytes of the bodies and of the process, and their ratio."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 3 * streams + 100)), hard))
    bodies, grown = asyncio.run(_measure(streams, size, shared))
    click.echo(
        f"{streams} streams: bodies {bodies / 1e6:.1f} MB, the gateway {grown / 1e6:.1f} MB, {grown / bodies:.3f} times"
    )


if __name__ == "__main__":
    main()
