"""A real vLLM publishes the events of its prefix cache: the gateway knows what it has, and notices what it missed.

What the gateway believes is compared with ``cached_tokens`` of vLLM's own answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import psutil
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway, Status
from tests.support.engine_groups import engine_groups, held_still
from tests.support.plain_httpx import post
from tests.support.real_gateways import VLLM_START_S, ready_gateway, vllm, vllm_table

zmq = pytest.importorskip("zmq")
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(VLLM_START_S)]

BLOCKS = 80
"""Room for 2,560 tokens: a prompt of ``OTHERS`` leaves none for one that came before."""


def words(first: str, count: int = 150) -> str:
    return " ".join(f"{first}{n}" for n in range(count))


OTHERS = [words(f"other{n}") for n in range(6)]


@pytest.fixture(scope="module")
def other() -> Iterator[SimEngine]:
    """Makes decisions necessary, and gets no request, because it has a worse priority."""
    with SimEngine("tiny") as engine:
        yield engine


def beside(other: SimEngine) -> str:
    return f'[backends.other]\ndriver = "sim"\nurl = "{other.url}"\npriority = 9\n'


@pytest.fixture(scope="module")
def gateway(other: SimEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that launches a vLLM with a small cache."""
    engine = vllm(tmp_path_factory.mktemp("tiny-hf"))
    table = vllm_table(
        "tiny",
        engine,
        options="max_num_seqs = 4, enable_prompt_tokens_details = true",
        args=f'["--num-gpu-blocks-override", "{BLOCKS}"]',
        kv_events="true",
        preload="true",
    )
    config = f'{table}VLLM_SERVER_DEV_MODE = "1"\n{beside(other)}'
    with ready_gateway(engine, config, "tiny", timeout=VLLM_START_S) as gateway:
        gateway.until_health(other="healthy")
        gateway.until(is_exact)
        yield gateway


def is_exact(status: Status) -> bool:
    return bool(status["kv_events"]) and all(each["connected"] and each["exact"] for each in status["kv_events"])


def ask(url: str, prompt: str) -> float:
    """Send a prompt, and return the share of its tokens that vLLM had cached."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "max_tokens": 2}
    answer = post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("x-enginehouse-backend") != "other"
    usage = answer.json()["usage"]
    return float((usage["prompt_tokens_details"] or {}).get("cached_tokens", 0) / usage["prompt_tokens"])


def believed(gateway: RunningGateway, prompt: str, backend: str = "tiny") -> float:
    """The share of a prompt's tokens that the gateway believes the engine has cached."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": prompt}]}
    shown = post(f"{gateway.url}/api/explain/route?path=/v1/chat/completions", json=body).json()
    [candidate] = [each for each in shown["candidates"] if each["backend"] == backend]
    return float(candidate["cached_tokens"] / shown["requirements"]["estimated_tokens"])


def fill(gateway: RunningGateway) -> None:
    """Have the engine evict all else, past the gateway's decisions."""
    for each in OTHERS:
        ask(f"{gateway.url}/upstream/tiny", each)


def test_what_it_stores_and_evicts_is_known_whoever_asks_it(gateway: RunningGateway) -> None:
    prompt = words("story")
    assert ask(gateway.url, prompt) < 0.1, "only what the chat template begins with"
    gateway.until(lambda _: believed(gateway, prompt) > 0.8)
    share = ask(gateway.url, prompt)
    assert abs(share - believed(gateway, prompt)) < 0.15, "a chunk has 64 tokens of 4 characters, a block 32 of its own"
    fill(gateway)
    gateway.until(lambda _: believed(gateway, prompt) == 0)
    assert ask(f"{gateway.url}/upstream/tiny", prompt) < 0.1, "vLLM has evicted it indeed"
    gateway.until(lambda _: believed(gateway, prompt) > 0.8)
    clear(gateway)
    gateway.until(lambda _: believed(gateway, prompt) == 0)
    assert is_exact(gateway.status())


def clear(gateway: RunningGateway) -> None:
    assert post(f"{gateway.url}/upstream/tiny/reset_prefix_cache", json={}).status_code == 200
    ask(f"{gateway.url}/upstream/tiny", "Hello")  # vLLM tells of it in its next step


class Forwarder:
    """Forwards the messages of an engine to one more socket, but for those that are to be lost."""

    def __init__(self, stack: ExitStack, source: str) -> None:
        context = stack.enter_context(zmq.Context())
        self._from, self._to = (stack.enter_context(context.socket(kind)) for kind in (zmq.SUB, zmq.PUB))
        self._from.subscribe("")
        self._from.connect(source)
        self.address = f"tcp://127.0.0.1:{self._to.bind_to_random_port('tcp://127.0.0.1')}"
        self.losing = False

    def forward(self) -> int:
        """Forward what has come within half a second, and return how many messages that were."""
        count = 0
        while self._from.poll(500):
            message = self._from.recv_multipart()
            count += 1
            if not self.losing:
                self._to.send_multipart(message)
        return count


def sockets(gateway: RunningGateway) -> tuple[str, str]:
    """Where the vLLM publishes, and where it sends events again."""
    [line] = [
        each.cmdline() for each in psutil.Process(gateway.pid).children() if "--kv-events-config" in each.cmdline()
    ]
    config = msgspec.json.decode(line[line.index("--kv-events-config") + 1])
    return config["endpoint"], config["replay_endpoint"]


def remote(gateway: RunningGateway, other: SimEngine, events: str, replay: str = "") -> str:
    """The configuration of one more gateway, for which the vLLM runs elsewhere."""
    return f"""
{beside(other)}
[backends.elsewhere]
driver = "vllm"
url = "{gateway.url}/upstream/tiny"
kv_events = {{ endpoint = "{events}", replay = "{replay}" }}
"""


@pytest.mark.parametrize("replays", [True, False])
def test_messages_that_were_lost_are_asked_for_or_known_to_be_missing(
    gateway: RunningGateway, other: SimEngine, replays: bool
) -> None:
    events, replay = sockets(gateway)
    prompt, lost, shown = words(f"kept{replays}"), words(f"lost{replays}"), words(f"shown{replays}")
    with ExitStack() as stack:
        forwarder = Forwarder(stack, events)
        distant = stack.enter_context(
            RunningGateway(remote(gateway, other, forwarder.address, replay if replays else ""))
        )
        distant.until_health(elsewhere="healthy", other="healthy")
        distant.until(lambda status: status["kv_events"][0]["connected"])
        clear(gateway)
        distant.until(lambda status: bool(forwarder.forward()) or is_exact(status))
        distant.until(is_exact)
        for each in (prompt, lost):
            ask(distant.url, each)
            forwarder.forward()
        distant.until(lambda _: believed(distant, prompt, "elsewhere") > 0.8)
        forwarder.losing = True
        fill(gateway)
        assert forwarder.forward()
        assert believed(distant, prompt, "elsewhere") > 0.8, "it has not heard that it was evicted"
        forwarder.losing = False
        ask(f"{gateway.url}/upstream/tiny", shown)
        assert forwarder.forward()
        if replays:
            distant.until(lambda _: believed(distant, prompt, "elsewhere") == 0)
            [figures] = distant.until(is_exact)["kv_events"]
            assert (figures["gaps_lost"], figures["gaps_filled"] > 0) == (0, True)
        else:
            distant.until(lambda status: status["kv_events"][0]["gaps_lost"] > 0 and not is_exact(status))
            clear(gateway)
            forwarder.forward()
            distant.until(is_exact)
            assert believed(distant, prompt, "elsewhere") == 0


def test_an_engine_that_stands_still_is_asked_again_when_it_goes_on(gateway: RunningGateway, other: SimEngine) -> None:
    prompt = words("still")
    ask(gateway.url, prompt)
    config = remote(gateway, other, *sockets(gateway))
    with RunningGateway(config) as distant:
        distant.until_health(elsewhere="healthy", other="healthy")
        distant.until(is_exact)
        with held_still(*engine_groups(gateway).values()):
            distant.write_config(config + "[plugins.cache_aware]\npriority_s = 2.0\n")
            distant.reload()  # the new router wants to know what the engine has
            distant.until(lambda status: not is_exact(status))
            distant.until(lambda _: "does not send the events" in distant.log)
        distant.until(is_exact)
        ask(distant.url, prompt)
        distant.until(lambda _: believed(distant, prompt, "elsewhere") > 0.8)


def test_an_engine_that_was_killed_has_nothing_when_it_is_back(gateway: RunningGateway) -> None:
    prompt = words("killed")
    ask(gateway.url, prompt)
    gateway.until(lambda _: believed(gateway, prompt) > 0.8)
    engine_groups(gateway)["tiny"].kill()
    gateway.until(lambda status: not is_exact(status))
    gateway.until(lambda _: believed(gateway, prompt) == 0)
    assert post(f"{gateway.url}/api/models/tiny/load", json={}, timeout=VLLM_START_S).status_code < 300
    gateway.until(lambda status: all(each["state"] == "ready" for each in status["replicas"]), timeout=VLLM_START_S)
    gateway.until(is_exact)
    assert believed(gateway, prompt) == 0
    assert ask(f"{gateway.url}/upstream/tiny", prompt) < 0.1
    gateway.until(lambda _: believed(gateway, prompt) > 0.8)
