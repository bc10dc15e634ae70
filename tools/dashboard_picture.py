"""Makes the picture of the dashboard in the README: ``python -m tools.dashboard_picture [FILE]``.

A gateway, three simulated engines, one that it launches, and 15 minutes of chats that come and go, as Chromium shows
them (Debian's package ``chromium``).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import sys
from base64 import b64decode
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from websockets.asyncio.client import ClientConnection, connect

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

FILE = Path(__file__).parents[1] / "docs/images/dashboard.png"
SIZE = {"width": 1280, "height": 960}
DRAWS_S = 5.0
SECONDS = 930.0
CLIENTS = {"llama3:70b": 12, "qwen3-coder": 5, "gemma3:12b": 2}
ENGINES = {"gpu-1": "llama3:70b", "gpu-2": "llama3:70b", "gpu-3": "qwen3-coder"}
WORDS = "the engine reads a prompt and writes an answer while others wait for their turn"


def config(urls: dict[str, str]) -> str:
    """The gateway's configuration. ``urls``: of the engines, by backend."""
    tables = [
        f'[backends.{name}]\ndriver = "sim"\nurl = "{url}"\nmodels = ["{ENGINES[name]}"]\n'
        for name, url in urls.items()
    ]
    launched = '[models."gemma3:12b"]\ndriver = "sim"\nttl = "30s"\nargs = ["--ttft", "90ms", "--tpot", "12ms"]\n'
    return "\n".join([*tables, launched])


async def chats(url: str, model: str, seed: int) -> None:
    """Conversations of one client, one after the other, with pauses between and longer ones now and then."""
    chance = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while True:
            messages: list[dict[str, str]] = []
            for _ in range(chance.randint(2, 6)):
                question = " ".join(chance.choices(WORDS.split(), k=chance.randint(20, 400)))
                messages.append({"role": "user", "content": question})
                body = {"model": model, "messages": messages, "max_tokens": chance.randint(40, 260), "stream": True}
                body["stream_options"] = {"include_usage": True}
                async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    async for _line in answer.aiter_lines():
                        pass
                messages.append({"role": "assistant", "content": "so it is"})
                await asyncio.sleep(chance.expovariate(1.2))
            await asyncio.sleep(chance.choice((1, 5, 20, 60)))


async def traffic(url: str) -> None:
    """Chat for ``SECONDS``, then take the picture while the chats go on."""
    models = [model for model, count in CLIENTS.items() for _ in range(count)]
    clients = [asyncio.create_task(chats(url, model, seed)) for seed, model in enumerate(models)]
    await asyncio.sleep(SECONDS)
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(await picture(url))
    for client in clients:
        client.cancel()
        with suppress(asyncio.CancelledError):
            await client


async def picture(url: str) -> bytes:
    """The page as a PNG, after it has drawn its charts."""
    with TemporaryDirectory() as profile:
        flags = ["--headless=new", "--no-sandbox", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        browser = await asyncio.create_subprocess_exec(
            shutil.which("chromium") or "google-chrome", *flags, f"{url}/dashboard", stderr=asyncio.subprocess.PIPE
        )
        try:
            assert browser.stderr is not None
            printed = await browser.stderr.readuntil(b"/devtools/")
            port = re.findall(rb"ws://127.0.0.1:(\d+)/", printed)[-1].decode()
            async with httpx.AsyncClient() as client:
                pages = (await client.get(f"http://127.0.0.1:{port}/json")).json()
            [address] = [page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"]
            async with connect(address, max_size=None) as page:
                await command(page, "Emulation.setDeviceMetricsOverride", **SIZE, deviceScaleFactor=1, mobile=False)
                await command(page, "Emulation.setScrollbarsHidden", hidden=True)
                await asyncio.sleep(DRAWS_S)
                return b64decode((await command(page, "Page.captureScreenshot"))["data"])
        finally:
            browser.terminate()
            await browser.communicate()


async def command(page: ClientConnection, method: str, **parameters: object) -> dict[str, str]:
    """The result of a command of Chromium's protocol."""
    await page.send(json.dumps({"id": 1, "method": method, "params": parameters}))
    while "result" not in (answer := json.loads(await page.recv())):
        pass
    result: dict[str, str] = answer["result"]
    return result


def main() -> None:
    with ExitStack() as stack:
        urls = {
            name: stack.enter_context(SimEngine(model, ttft="180ms", tpot="22ms", max_num_seqs=8)).url
            for name, model in ENGINES.items()
        }
        gateway = stack.enter_context(RunningGateway(config(urls)))
        gateway.until_health(**dict.fromkeys(urls, "healthy"))
        asyncio.run(traffic(gateway.url))


if __name__ == "__main__":
    main()
